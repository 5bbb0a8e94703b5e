"""libtrain's Mask R-CNN against torchvision's: bench_mask_rcnn and its peer in turns.

Each is a process of its own in each round, with the same weights, images and threads; the order is swapped every round.
"Same settings" is libtrain in float32 with contiguous images, as torchvision; "default" what train_mask_rcnn and segment
choose: bfloat16 and channels_last if the processor has instructions for the former; for operators channels_last. Only
ratios within a round mean something.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, fastest_precision, in_turns, range_of, require_program, run

PEER = ROOT / "bench" / "peers" / "mask_rcnn.py"
FEWEST_TO_TRUST = 15  # timed runs of each program in all rounds
# How many times as fast as torchvision, with the same settings and by default.
GOALS = {"step": (1.2, 1.8), "inference": (1.2, 1.8), "nms_2000": (1.0, None), "nms_20000": (2.0, None),
         "roi_align": (1.5, 1.5)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=GOALS, default="step", help="(default: step)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (default: 5)")
    parser.add_argument("--iterations", type=int, default=3, help="timed runs of each in a round (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="of each program (default: 2)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_mask_rcnn", help="the libtrain program")
    parser.add_argument("--python", default=ROOT / ".deps/bin/python", help="a Python with torchvision")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    for name in ("rounds", "iterations", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def record_of(command, options, folder):
    path = pathlib.Path(folder) / "record"
    path.unlink(missing_ok=True)
    run([*command, "--data", folder, "--workload", options.workload, "--iterations", options.iterations, "--json", path],
        options)
    return json.loads(path.read_text(encoding="utf-8"))


def run_rounds(options, folder):
    """{contender: [record of round 1, ...]}"""
    commands = {"same settings": [options.program], "torchvision": [options.python, PEER]}
    if options.workload == "roi_align":
        commands["default"] = [options.program, "--channels-last"]
    elif GOALS[options.workload][1] is not None:
        in_bf16 = ["--channels-last", "--precision", "bf16"] if fastest_precision() == "bf16" else []
        commands["default"] = [options.program, *in_bf16]
    results = {name: [] for name in commands}
    for name in in_turns(commands, options.rounds):
        results[name].append(record_of(commands[name], options, folder))
    return results


def table(results, goals):
    """Medians (least-greatest) of the rounds' medians, and how many times as fast as torchvision each is."""
    peers = [record["median_s"] for record in results["torchvision"]]
    lines = [f"{'':<24}{'median s':>28}{'times as fast':>28}{'goal':>16}{'peak MB':>10}"]
    goal_of = {"same settings": goals[0], "default": goals[1], "torchvision": None}
    for name, records in results.items():
        goal = goal_of[name]
        seconds = [record["median_s"] for record in records]
        ratios = [theirs / ours for ours, theirs in zip(seconds, peers, strict=True)]
        verdict = "-" if goal is None else f">= {goal} {'met' if statistics.median(ratios) >= goal else 'missed'}"
        peak = max(record["peak_rss_bytes"] for record in records) / 1e6
        lines.append(f"{name:<24}{range_of(seconds, 4):>28}{range_of(ratios, 2):>28}{verdict:>16}{peak:>10.0f}")
    return "\n".join(lines)


def main():
    options = parse_arguments()
    require_program(options)
    try:
        with tempfile.TemporaryDirectory(prefix="compare_mask_rcnn_") as folder:
            run([options.python, PEER, "--make", folder], options)
            results = run_rounds(options, folder)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for records in results.values():
                file.write("".join(json.dumps(record | {"round": number}) + "\n" for number, record in enumerate(records)))
    if options.rounds * options.iterations < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} timed runs: not a measurement.", file=sys.stderr)
    print(f"{options.workload}, {options.threads} threads, {options.rounds} rounds of {options.iterations}; median "
          "(least-greatest)")
    print(table(results, GOALS[options.workload]))


if __name__ == "__main__":
    main()
