"""COCO annotations to memory with Python's json and pycocotools: the peer of bench_coco_annotations.

One untimed run comes first, so that the file is in memory. `--program` takes turns with bench_coco_annotations, one
process a run on both sides, and compares the two.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", required=True, help="the annotations, such as make_coco_file.py writes")
    parser.add_argument("--iterations", type=int, default=5, help="timed runs (default: 5)")
    parser.add_argument("--program", nargs="?", const=ROOT / "build/release/bin/bench_coco_annotations",
                        help="take turns with this program (default: that of the release build)")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")
    return options


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(options):
    """Seconds of each run, the number of annotations, and the most memory this process had."""
    from pycocotools.coco import COCO

    seconds = []
    annotations = 0
    for iteration in range(options.iterations + 1):
        with contextlib.redirect_stdout(io.StringIO()):
            start = time.perf_counter()
            coco = COCO(options.file)
            elapsed = time.perf_counter() - start
        annotations = len(coco.anns)
        del coco
        if iteration > 0:
            seconds.append(elapsed)
    return seconds, annotations, peak_rss_bytes()


def record(options, implementation, seconds, annotations, peak):
    median = statistics.median(seconds)
    return {
        "event": "loader",
        "time": time.time(),
        "implementation": implementation,
        "workload": "coco_annotations",
        "threads": 1,
        "bytes": os.path.getsize(options.file),
        "annotations": annotations,
        "iterations": len(seconds),
        "median_s": median,
        "min_s": min(seconds),
        "samples_per_s": annotations / median,
        "samples_per_core_s": annotations / median,
        "peak_rss_bytes": peak,
    }


def records_of(command):
    """What one process, ours or this one, wrote with --json."""
    with tempfile.TemporaryDirectory(prefix="coco_annotations_") as folder:
        path = os.path.join(folder, "records")
        words = [str(word) for word in [*command, "--iterations", 1, "--json", path]]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
        with open(path, encoding="utf-8") as file:
            return json.loads(file.readlines()[-1])


def take_turns(options):
    """A record of each implementation: its runs together, each in a process of its own."""
    commands = {
        "libtrain": [options.program, "--file", options.file],
        "pycocotools": [sys.executable, __file__, "--file", options.file],
    }
    runs = {name: [] for name in commands}
    for number in range(options.iterations):
        for name in commands if number % 2 == 0 else reversed(commands):
            print(f"run {number + 1}/{options.iterations}: {name}", file=sys.stderr)
            runs[name].append(records_of(commands[name]))
    if len({run["annotations"] for each in runs.values() for run in each}) != 1:
        sys.exit("the two do not find as many annotations: the times mean nothing.")
    return [record(options, name, [run["median_s"] for run in each], each[0]["annotations"],
                   max(run["peak_rss_bytes"] for run in each)) for name, each in runs.items()]


def print_row(each):
    print(f"{each['implementation']:<14}{each['min_s'] * 1e3:>12.1f}{each['median_s'] * 1e3:>12.1f}"
          f"{each['bytes'] / each['median_s'] / 1e6:>10.0f}{each['peak_rss_bytes'] / 1e6:>10.0f}")


def main():
    options = parse_arguments()
    if options.program:
        records = take_turns(options)
    else:
        records = [record(options, "pycocotools", *measure(options))]
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(each) + "\n" for each in records))
    print(f"{options.file}: {records[0]['bytes']} bytes, {records[0]['annotations']} annotations")
    print(f"{'':<14}{'minimum ms':>12}{'median ms':>12}{'MB/s':>10}{'peak MB':>10}")
    for each in records:
        print_row(each)
    if len(records) == 2:
        ours, theirs = records
        print(f"pycocotools/libtrain: {theirs['median_s'] / ours['median_s']:.1f} times the time, "
              f"{theirs['peak_rss_bytes'] / ours['peak_rss_bytes']:.1f} times the memory")


if __name__ == "__main__":
    main()
