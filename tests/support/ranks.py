"""Ranks as processes of the test's own, each with its own environment and place, for jobs that no launcher starts."""

import os
import subprocess
import time
from dataclasses import dataclass

import jobs


@dataclass(frozen=True)
class Rank:
    exit_code: int
    stderr: str
    ended: float
    timed_out: bool

    def __str__(self):
        return f"exit code {self.exit_code}{', timed out' * self.timed_out}\n--- standard error\n{self.stderr}"


def start(test, commands, environments=None):
    """Starts one process a command, rank r with RANK=r and the r-th environment; they are killed when the test ends."""
    kept = {name: value for name, value in os.environ.items() if not jobs.FOREIGN.match(name)}
    processes = []
    for rank, command in enumerate(commands):
        log = open(jobs.temporary_directory(test) / "stderr", "w+", encoding="utf-8")
        test.addCleanup(log.close)
        own = {"RANK": str(rank), "WORLD_SIZE": str(len(commands)), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=log,
                                   env=kept | own | (environments[rank] if environments else {}))
        test.addCleanup(_end, process)
        processes.append((process, log))
    return processes


def wait(processes, time_limit=60):
    """The ends of all of them, in rank order; those that take longer than `time_limit` seconds are killed."""
    deadline = time.monotonic() + time_limit
    ends = [None] * len(processes)
    while None in ends and time.monotonic() < deadline:
        for rank, (process, _) in enumerate(processes):
            if ends[rank] is None and process.poll() is not None:
                ends[rank] = time.time()
        time.sleep(0.01)
    for process, _ in processes:
        _end(process)
    return [Rank(process.returncode, _text_of(log), end or time.time(), end is None)
            for end, (process, log) in zip(ends, processes)]


def _end(process):
    if process.poll() is None:
        process.kill()
        process.wait()


def _text_of(log):
    log.seek(0)
    return log.read()
