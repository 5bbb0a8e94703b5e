"""Seconds from the launcher's start to the first step: libtrain under mpirun against PyTorch DDP under torchrun.

Workloads: `network`, bench_start_up's three layers, until rank 0 says that all ranks have taken their first synchronised
step; `texts`, RoBERTa fine-tuned by train_text_classification and by transformers, until rank 0 begins its first step
(reading weights, vocabulary and texts, but no training) and until it has taken it. The two take turns, and the order is
swapped every time. One untimed run of each comes first, so that all files are in memory, and Python's modules are
compiled.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from comparison import (
    LINES_OF_A_FAILURE,
    ROOT,
    ProgramFailed,
    end,
    first_step_times,
    launch,
    range_of,
    read_records,
    require_programs,
    run,
    torchrun,
    variables,
)

PEERS = ROOT / "bench" / "peers"
REVIEWS = ROOT / "examples" / "classify_text" / "reviews"
PROGRAMS = {"network": "bench_start_up", "texts": "train_text_classification"}
TEXTS = 8  # of a rank's step
MARK = "first step"
RUN_TIMEOUT_S = 300


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="timed starts of each program (default: 15)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--workload", choices=PROGRAMS, default="network", help="(default: network)")
    parser.add_argument("--size", choices=("base", "tiny"), default="base", help="of the RoBERTa of texts (default: base)")
    parser.add_argument("--program", help="the libtrain program (default: the workload's in build/release)")
    parser.add_argument("--mpirun", default=ROOT / ".deps/bin/mpirun")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append a record of each program to this file")
    options = parser.parse_args()
    if min(options.runs, options.ranks) < 1:
        parser.error("--runs and --ranks must be at least 1")
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    options.program = options.program or ROOT / "build/release/bin" / PROGRAMS[options.workload]
    return options


def libtrain_network(options, directory):
    return {"first step": seconds_to_first_step([*launch(options), options.program, f"--output={directory}"],
                                                variables(options))}


def peer_network(options, _directory):
    return {"first step": seconds_to_first_step([*torchrun(options), PEERS / "ddp_start_up.py"], variables(options))}


def since(launched, times):
    if not times:
        raise ProgramFailed("train_text_classification has left no record of its first step.")
    return {"the step begins": times["first_step_began"] - launched, "first step": times["first_step_ended"] - launched}


def libtrain_texts(options, directory):
    command = [*launch(options), options.program, f"--weights={options.weights}", f"--data={REVIEWS}", "--dev", ""]
    launched = time.time()
    run([*command, f"--batch-size={TEXTS}", "--max-steps=1", f"--output={directory}"], options)
    return since(launched, first_step_times(read_records(directory / "metrics.jsonl"), TEXTS * options.ranks))


def peer_texts(options, directory):
    command = [*torchrun(options), PEERS / "text_start_up.py", f"--weights={options.weights}", f"--batch-size={TEXTS}"]
    file = directory / "record.jsonl"
    launched = time.time()
    run([*command, f"--data={REVIEWS / 'train.tsv'}", f"--json={file}"], options)
    return since(launched, read_records(file)[-1])


CONTENDERS = {
    "network": {"libtrain": libtrain_network, "pytorch_ddp": peer_network},
    "texts": {"libtrain": libtrain_texts, "transformers": peer_texts},
}


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
    """{implementation: [seconds of run 1 by what they are until, ...]}, without run 0, which warms up."""
    programs = CONTENDERS[options.workload]
    results = {name: [] for name in programs}
    for number in range(options.runs + 1):
        for name in programs if number % 2 == 0 else reversed(programs):
            print(f"run {number}/{options.runs}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="compare_start_up_") as directory:
                seconds = programs[name](options, pathlib.Path(directory))
            if number > 0:
                results[name].append(seconds)
    return results


def record_of(name, runs, options):
    seconds = [run["first step"] for run in runs]
    return {
        "event": "start_up",
        "implementation": name,
        "workload": options.workload if options.workload == "network" else f"texts, {options.size}",
        "ranks": options.ranks,
        "threads": options.threads,
        "runs": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "time": time.time(),
    }


def table(results):
    """Minimum and median of each, and libtrain's share of the other's seconds in the same run."""
    ours, theirs = results.values()
    lines = []
    for until in ours[0]:
        lines.append(f"{'until ' + until:<22}{'minimum s':>12}{'median s':>12}")
        for name, runs in results.items():
            seconds = [run[until] for run in runs]
            lines.append(f"{name:<22}{min(seconds):>12.2f}{statistics.median(seconds):>12.2f}")
        quotients = [our[until] / their[until] for our, their in zip(ours, theirs, strict=True)]
        lines.append(f"{'/'.join(results)}, run by run: {range_of(quotients)}")
    return "\n".join(lines)


@contextlib.contextmanager
def weights_of(options):
    """The folder of random weights that both programs of texts load; None for the network."""
    if options.workload == "network":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="compare_start_up_") as folder:
        make = [options.python, PEERS / "text_start_up.py", "--make", REVIEWS / "model", "--weights", folder]
        run([*make, "--size", options.size], options)
        yield folder


def main():
    options = parse_arguments()
    require_programs(options, PROGRAMS[options.workload])
    try:
        with weights_of(options) as options.weights:
            results = run_in_turns(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for name, runs in results.items():
                file.write(json.dumps(record_of(name, runs, options)) + "\n")
    print(
        f"{options.workload}, from the launcher to the first step, {options.ranks} ranks of {options.threads} threads, "
        f"{options.runs} runs of each"
    )
    print(table(results))


if __name__ == "__main__":
    main()
