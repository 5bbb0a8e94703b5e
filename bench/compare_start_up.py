"""Seconds from the launcher's start to the first step: mpirun with bench_start_up against torchrun with PyTorch DDP.

The two take turns, and the order is swapped every time. A job's time ends when rank 0 says that all ranks have taken
their first synchronized step. One untimed run of each comes first, so that all files are in memory, and Python's modules
are compiled.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from comparison import LINES_OF_A_FAILURE, ROOT, ProgramFailed, end, launch, range_of, require_programs, variables

PEER = ROOT / "bench" / "peers" / "ddp_start_up.py"
MARK = "first step"
RUN_TIMEOUT_S = 300


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="timed starts of each program (default: 15)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_start_up", help="the libtrain program")
    parser.add_argument("--mpirun", default=ROOT / ".deps/bin/mpirun")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append a record of each program to this file")
    options = parser.parse_args()
    if min(options.runs, options.ranks) < 1:
        parser.error("--runs and --ranks must be at least 1")
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def libtrain_command(options, directory):
    return [*launch(options), options.program, f"--output={directory}"]


def peer_command(options, _directory):
    torchrun = [options.python, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [*torchrun, "--nproc-per-node", options.ranks, PEER]


def seconds_to_first_step(command, environment):
    """Runs a program to its end, and says when it printed the line with MARK, counted from before it was started."""
    command = [str(word) for word in command]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    watchdog = threading.Timer(RUN_TIMEOUT_S, end, [process])
    watchdog.start()
    seconds = None
    lines = []
    try:
        for line in process.stdout:
            if seconds is None and MARK in line:
                seconds = time.perf_counter() - start
            lines.append(line)
        process.wait()
    finally:
        watchdog.cancel()
        end(process)
        process.stdout.close()
    if process.returncode != 0 or seconds is None:
        tail = "".join(lines[-LINES_OF_A_FAILURE:])
        what = f"ended with {process.returncode}" + (" and without a first step" if seconds is None else "")
        raise ProgramFailed(f"{' '.join(command)} {what}:\n{tail}")
    return seconds


def run_in_turns(options):
    """{implementation: [seconds of run 0, seconds of run 1, ...]}, without the first run, which warms up."""
    programs = [("libtrain", libtrain_command), ("pytorch_ddp", peer_command)]
    environment = variables(options)
    results = {name: [] for name, _ in programs}
    for number in range(options.runs + 1):
        for name, command_of in programs if number % 2 == 0 else reversed(programs):
            print(f"run {number}/{options.runs}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="compare_start_up_") as directory:
                seconds = seconds_to_first_step(command_of(options, directory), environment)
            if number > 0:
                results[name].append(seconds)
    return results


def record_of(name, seconds, options):
    return {
        "event": "start_up",
        "implementation": name,
        "ranks": options.ranks,
        "threads": options.threads,
        "runs": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "time": time.time(),
    }


def table(results):
    lines = [f"{'':<14}{'minimum s':>12}{'median s':>12}"]
    for name, seconds in results.items():
        lines.append(f"{name:<14}{min(seconds):>12.2f}{statistics.median(seconds):>12.2f}")
    quotients = [ours / theirs for ours, theirs in zip(results["libtrain"], results["pytorch_ddp"])]
    lines.append(f"libtrain/DDP, run by run: {range_of(quotients)}")
    return "\n".join(lines)


def main():
    options = parse_arguments()
    require_programs(options, "bench_start_up")
    try:
        results = run_in_turns(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for name, seconds in results.items():
                file.write(json.dumps(record_of(name, seconds, options)) + "\n")
    print(
        f"from the launcher to the first step, {options.ranks} ranks of {options.threads} threads, {options.runs} runs "
        "of each"
    )
    print(table(results))


if __name__ == "__main__":
    main()
