"""libtrain against pycocotools in evaluating detections: bench_coco_evaluation and its peer in turns.

Each is a process of its own in each round, with one evaluation of boxes and one of masks; the order is swapped every
round. Only ratios within a round mean something.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, in_turns, range_of, require_program, run

PEER = ROOT / "bench" / "peers" / "coco_evaluation.py"
MAKE = ROOT / "bench" / "make_coco_detections.py"
FEWEST_TO_TRUST = 15
TOLERANCE = 1e-12
MEASURES = {"bbox s": ("bbox", "median_s"), "segm s": ("segm", "median_s"), "reading s": ("bbox", "read_s"),
            "peak MB": ("segm", "peak_rss_bytes")}
GOAL = 15.0  # of the evaluations, for the sizes and threads that are the defaults


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="how often each program runs (default: 15)")
    parser.add_argument("--images", type=int, default=5000, help="(default: 5000)")
    parser.add_argument("--detections", type=int, default=36, help="of each image (default: 36)")
    parser.add_argument("--threads", type=int, default=2, help="of libtrain; pycocotools has one (default: 2)")
    parser.add_argument("--data", type=pathlib.Path,
                        help="folder with what make_coco_detections.py writes (default: it is called)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_coco_evaluation",
                        help="the libtrain program")
    parser.add_argument("--python", default=ROOT / ".deps/bin/python", help="a Python with pycocotools")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    for name in ("rounds", "images", "detections", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    options.is_default_size = (options.images, options.detections, options.threads, options.data) == (5000, 36, 2, None)
    return options


def records_of(command, options):
    """What a program wrote with --json, by type."""
    with tempfile.TemporaryDirectory(prefix="compare_coco_evaluation_") as folder:
        path = pathlib.Path(folder) / "records"
        run([*command, "--data", options.data, "--iterations", 1, "--json", path], options)
        return {record["type"]: record for record in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


def require_equal(ours, theirs):
    for kind, record in theirs.items():
        pairs = list(zip(ours[kind]["stats"], record["stats"], strict=True))
        if not all(abs(a - b) <= TOLERANCE for a, b in pairs):
            raise ProgramFailed(f"The numbers of {kind} differ, so the times mean nothing: {pairs}")


def run_rounds(options):
    """{implementation: [records of round 1, ...]}"""
    commands = {"libtrain": [options.program, "--threads", options.threads], "pycocotools": [options.python, PEER]}
    results = {name: [] for name in commands}
    for name in in_turns(commands, options.rounds):
        results[name].append(records_of(commands[name], options))
        if len(results["libtrain"]) == len(results["pycocotools"]):
            require_equal(results["libtrain"][-1], results["pycocotools"][-1])
    return results


def values_of(rounds, measure):
    kind, field = MEASURES[measure]
    scale = 1e-6 if field == "peak_rss_bytes" else 1
    return [records[kind][field] * scale for records in rounds]


def ratios_of(results, measure):
    return [theirs / ours for ours, theirs in zip(*(values_of(rounds, measure) for rounds in results.values()))]


def goal_of(results, measure, goal):
    if goal is None or MEASURES[measure][1] != "median_s":
        return "-"
    return f">= {goal:.0f} {'met' if statistics.median(ratios_of(results, measure)) >= goal else 'missed'}"


def table(results, goal=None):
    """Medians (least-greatest) of each implementation, and pycocotools' as a multiple of libtrain's."""
    lines = [f"{'':<22}" + "".join(f"{measure:>28}" for measure in MEASURES)]
    for name, rounds in results.items():
        cells = [range_of(values_of(rounds, measure)) for measure in MEASURES]
        lines.append(f"{name:<22}" + "".join(f"{cell:>28}" for cell in cells))
    cells = [range_of(ratios_of(results, measure), 1) for measure in MEASURES]
    lines.append(f"{'pycocotools/libtrain':<22}" + "".join(f"{cell:>28}" for cell in cells))
    if goal is not None:
        lines.append(f"{'goal':<22}" + "".join(f"{goal_of(results, measure, goal):>28}" for measure in MEASURES))
    return "\n".join(lines)


def save(results, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for rounds in results.values():
            for number, records in enumerate(rounds):
                file.write("".join(json.dumps(record | {"round": number}) + "\n" for record in records.values()))


def measure(options):
    if options.data:
        return run_rounds(options)
    with tempfile.TemporaryDirectory(prefix="compare_coco_evaluation_") as folder:
        options.data = folder
        run([options.python, MAKE, folder, "--images", options.images, "--detections", options.detections], options)
        return run_rounds(options)


def main():
    options = parse_arguments()
    require_program(options)
    try:
        results = measure(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(results, options.json)
    if options.rounds < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} rounds: not a measurement.", file=sys.stderr)
    first = results["libtrain"][0]["bbox"]
    print(f"{first['images']} images, {first['annotations']} annotations, {first['detections']} detections; libtrain "
          f"on {options.threads} threads, pycocotools on one; {options.rounds} rounds; median (least-greatest)")
    print(table(results, GOAL if options.is_default_size else None))


if __name__ == "__main__":
    main()
