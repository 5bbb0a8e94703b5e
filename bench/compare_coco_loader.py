"""libtrain's loader of COCO's images and masks against torchvision's: bench_coco_loader and its peer in turns.

Each is a process of its own in each round, with the same images, sizes and threads; the order is swapped every round.
What counts is images per second of CPU time, all threads and processes together, and only ratios within a round.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from comparison import ROOT, ProgramFailed, in_turns, range_of, require_program, run

PEER = ROOT / "bench" / "peers" / "coco_loader.py"
MAKE = ROOT / "bench" / "make_coco_images.py"
FEWEST_TO_TRUST = 15  # timed epochs of each program in all rounds
GOAL = 3.0  # times as fast per core, at the sizes that are the defaults
DEFAULT_SIZES = (800, 1333)
RATES = {"images/core s": "samples_per_core_s", "images/s": "samples_per_s"}
# Flips move the mean hardly; images that are not normalised are further away.
MEAN_TOLERANCE = 0.02
# Masks that are resized as pixels, and polygons that are resized before they are drawn, differ along their outlines.
MASK_TOLERANCE = 0.02


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each program runs (default: 5)")
    parser.add_argument("--iterations", type=int, default=3, help="timed epochs of each in a round (default: 3)")
    parser.add_argument("--images", type=int, default=128, help="to make (default: 128)")
    parser.add_argument("--min-size", type=int, default=DEFAULT_SIZES[0],
                        help=f"pixels of the shorter side (default: {DEFAULT_SIZES[0]})")
    parser.add_argument("--max-size", type=int, default=DEFAULT_SIZES[1],
                        help=f"of the longer side, at most (default: {DEFAULT_SIZES[1]})")
    parser.add_argument("--workers", type=int, default=1,
                        help="threads of libtrain, processes of PyTorch; 1: its own (default: 1)")
    parser.add_argument("--data", type=pathlib.Path,
                        help="folder with what make_coco_images.py writes (default: it is called)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_coco_loader", help="the libtrain program")
    parser.add_argument("--python", default=ROOT / ".deps/bin/python", help="a Python with torchvision and pycocotools")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    for name in ("rounds", "iterations", "images", "min_size", "max_size", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    options.threads = 1  # of tensor operations in each worker
    return options


def record_of(command, options):
    with tempfile.TemporaryDirectory(prefix="compare_coco_loader_") as folder:
        path = pathlib.Path(folder) / "record"
        run([*command, "--data", options.data, "--min-size", options.min_size, "--max-size", options.max_size,
             "--threads", options.workers, "--rounds", options.iterations, "--json", path], options)
        return json.loads(path.read_text(encoding="utf-8"))


def require_same_batches(ours, theirs):
    """Programs that make different images and masks would be compared for nothing."""
    for what in ("samples", "batch", "pixels", "objects"):
        if ours[what] != theirs[what]:
            raise ProgramFailed(f"libtrain's {what} are {ours[what]}, torchvision's {theirs[what]}.")
    if abs(ours["mean"] - theirs["mean"]) > MEAN_TOLERANCE:
        raise ProgramFailed(f"libtrain's images have the mean {ours['mean']:.3f}, torchvision's {theirs['mean']:.3f}.")
    if abs(ours["object_pixels"] - theirs["object_pixels"]) > MASK_TOLERANCE * theirs["object_pixels"]:
        raise ProgramFailed(f"libtrain's masks have {ours['object_pixels']} pixels, torchvision's "
                            f"{theirs['object_pixels']}.")


def run_rounds(options):
    """{implementation: [record of round 1, ...]}"""
    commands = {"libtrain": [options.program], "torchvision": [options.python, PEER]}
    results = {name: [] for name in commands}
    for name in in_turns(commands, options.rounds):
        results[name].append(record_of(commands[name], options))
        if len(results["libtrain"]) == len(results["torchvision"]):
            require_same_batches(results["libtrain"][-1], results["torchvision"][-1])
    return results


def rates(records, measure):
    return [record[RATES[measure]] for record in records]


def table(results, goal=None):
    """Medians (least-greatest) over the rounds, libtrain's as a multiple of torchvision's, and the goal per core."""
    lines = [f"{'':<22}" + "".join(f"{measure:>26}" for measure in RATES)]
    for name, records in results.items():
        lines.append(f"{name:<22}" + "".join(f"{range_of(rates(records, measure), 1):>26}" for measure in RATES))
    ratios = [[our / their for our, their in zip(rates(results["libtrain"], measure),
                                                 rates(results["torchvision"], measure), strict=True)]
              for measure in RATES]
    lines.append(f"{'times as fast':<22}" + "".join(f"{range_of(each, 2):>26}" for each in ratios))
    if goal is not None:
        verdict = "met" if statistics.median(ratios[0]) >= goal else "missed"
        lines.append(f"{'goal':<22}{f'>= {goal} {verdict}':>26}{'-':>26}")
    return "\n".join(lines)


def measure(options):
    if options.data:
        return run_rounds(options)
    with tempfile.TemporaryDirectory(prefix="compare_coco_loader_") as folder:
        options.data = pathlib.Path(folder) / "coco"
        run([options.python, MAKE, options.data, "--images", options.images], options)
        return run_rounds(options)


def main():
    options = parse_arguments()
    require_program(options)
    try:
        results = measure(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for records in results.values():
                for number, record in enumerate(records):
                    file.write(json.dumps(record | {"round": number}) + "\n")
    if options.rounds * options.iterations < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} timed epochs: not a measurement.", file=sys.stderr)
    print(f"{results['libtrain'][0]['samples']} images to {options.min_size}/{options.max_size} pixels, "
          f"{options.workers} workers, {options.rounds} rounds of {options.iterations}; median (least-greatest)")
    is_default = (options.min_size, options.max_size) == DEFAULT_SIZES
    print(table(results, GOAL if is_default else None))


if __name__ == "__main__":
    main()
