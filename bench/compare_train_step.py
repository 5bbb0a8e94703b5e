"""libtrain against PyTorch DDP: runs bench_train_step and bench/peers/ddp_train_step.py in turns and compares them.

Both get the same workload, batch, threads and number of steps. The order is swapped every round. Only ratios mean
something: synchronized to local step of the same program, and libtrain to DDP within the same round.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, launch, range_of, require_programs, run
from peers.workload_sizes import DEFAULT_BATCH

PEER = ROOT / "bench" / "peers" / "ddp_train_step.py"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (default: 3)")
    parser.add_argument("--workload", choices=tuple(DEFAULT_BATCH), default="resnet18")
    parser.add_argument("--ranks", type=int, default=2, help="1 shows what synchronizing costs alone (default: 2)")
    parser.add_argument("--batch", type=int,
                        help="samples per rank (default: 8 images or sentences, 2 of mask_rcnn, 64 vectors)")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=30, help="timed steps of each kind in a run (default: 30)")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument(
        "--fresh-starts", type=int, default=0, help="also time the first ten steps of so many fresh starts (default: 0)"
    )
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view=True")
    parser.add_argument("--no-broadcast-buffers", action="store_true", help="DDP with broadcast_buffers=False")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_train_step", help="the libtrain program")
    parser.add_argument("--mpirun", default=ROOT / ".deps/bin/mpirun")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append every record, with its round, to this file")
    options = parser.parse_args()
    if min(options.rounds, options.ranks, options.iterations) < 1:
        parser.error("--rounds, --ranks and --iterations must be at least 1")
    options.batch = options.batch or DEFAULT_BATCH[options.workload]
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def common_arguments(options, json_file):
    return [
        f"--workload={options.workload}",
        f"--batch={options.batch}",
        f"--image-size={options.image_size}",
        f"--iterations={options.iterations}",
        f"--warmup={options.warmup}",
        f"--fresh-starts={options.fresh_starts}",
        f"--json={json_file}",
    ]


def libtrain_command(options, directory, json_file):
    return [*launch(options), options.program, *common_arguments(options, json_file), f"--output={directory}"]


def peer_command(options, _directory, json_file):
    command = [options.python, PEER, f"--ranks={options.ranks}", f"--threads={options.threads}"]
    command += ["--bucket-view"] if options.bucket_view else []
    command += ["--no-broadcast-buffers"] if options.no_broadcast_buffers else []
    return [*command, *common_arguments(options, json_file)]


def read_records(json_file):
    """The train_step records of one run: {False: local, True: synchronized}."""
    by_kind = {}
    for line in json_file.read_text(encoding="utf-8").splitlines() if json_file.exists() else []:
        record = json.loads(line)
        if record.get("event") == "train_step":
            by_kind[record["synchronized"]] = record
    if set(by_kind) != {False, True}:
        raise ProgramFailed(f"{json_file.name} holds no local and synchronized train_step record.")
    return by_kind


def require_same_network(ours, theirs):
    """Programs whose networks are not of one size would be compared for nothing."""
    counts = [records[False].get("parameters") for records in (ours, theirs)]
    if counts[0] != counts[1]:
        raise ProgramFailed(f"libtrain's network has {counts[0]} parameters, the peer's {counts[1]}.")


def run_rounds(options):
    """{implementation: [records of round 0, records of round 1, ...]}"""
    programs = [("libtrain", libtrain_command), ("pytorch_ddp", peer_command)]
    results = {name: [] for name, _ in programs}
    for number in range(options.rounds):
        for name, command_of in programs if number % 2 == 0 else reversed(programs):
            print(f"round {number + 1}/{options.rounds}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="compare_train_step_") as directory:
                json_file = pathlib.Path(directory) / f"{name}.jsonl"
                run(command_of(options, directory, json_file), options)
                results[name].append(read_records(json_file))
        require_same_network(*(rounds[-1] for rounds in results.values()))
    return results


def save(results, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for rounds in results.values():
            for number, records in enumerate(rounds):
                for kind in (False, True):
                    file.write(json.dumps({**records[kind], "round": number}) + "\n")


def ratio(records, statistic):
    return records[True][statistic] / records[False][statistic]


def first_steps(rounds):
    """How much slower the first step after a fresh start is than the tenth, for each kind; empty if not measured."""
    words = []
    for kind, name in ((False, "local"), (True, "synchronized")):
        if not all("first_step_s" in records[kind] for records in rounds):
            return ""
        quotients = [records[kind]["first_step_s"] / records[kind]["tenth_step_s"] for records in rounds]
        extra = [(records[kind]["first_step_s"] - records[kind]["tenth_step_s"]) * 1e3 for records in rounds]
        words.append(f"{name} {range_of(quotients)}, {range_of(extra, 1)} ms more")
    allocations = [1e3 * records[True].get("bucket_allocation_s", 0) for records in rounds]
    if all(allocations):
        words.append(f"allocating buckets {range_of(allocations, 1)} ms")
    return "; ".join(words)


def print_table(results, options):
    print(
        f"{options.workload}, batch {options.batch} per rank, {options.ranks} ranks of {options.threads} threads, "
        f"{options.rounds} rounds of {options.iterations} iterations; median (least-greatest) over rounds"
    )
    print(f"{'':<14}{'local ms':>24}{'synchronized ms':>24}{'ratio of minima':>22}{'ratio of medians':>22}")
    for name, rounds in results.items():
        local = [records[False]["median_s"] * 1e3 for records in rounds]
        synchronized = [records[True]["median_s"] * 1e3 for records in rounds]
        minima = [ratio(records, "min_s") for records in rounds]
        medians = [ratio(records, "median_s") for records in rounds]
        print(
            f"{name:<14}{range_of(local, 1):>24}{range_of(synchronized, 1):>24}"
            f"{range_of(minima):>22}{range_of(medians):>22}"
        )
    pairs = list(zip(results["libtrain"], results["pytorch_ddp"]))
    for title, kind in (("synchronized step", True), ("local step", False)):
        quotients = [ours[kind]["median_s"] / theirs[kind]["median_s"] for ours, theirs in pairs]
        print(f"libtrain/DDP, {title}: {range_of(quotients)}")
    for name, rounds in results.items():
        if first_steps(rounds):
            print(f"{name}, first step / tenth step: {first_steps(rounds)}")


def main():
    options = parse_arguments()
    require_programs(options, "bench_train_step")
    try:
        results = run_rounds(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(results, options.json)
    print_table(results, options)


if __name__ == "__main__":
    main()
