"""The evaluation of detections with pycocotools: the peer of bench_coco_evaluation.

Each iteration reads the files, which is timed apart, and evaluates boxes and masks: COCOeval's evaluate, accumulate and
summarize.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import statistics
import time

KINDS = ("bbox", "segm")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with what make_coco_detections.py writes")
    parser.add_argument("--iterations", type=int, default=1, help="timed runs (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")
    return options


def evaluate(truth, found, kind):
    """Seconds, and the 12 numbers."""
    from pycocotools.cocoeval import COCOeval

    start = time.perf_counter()
    evaluation = COCOeval(truth, found, kind)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return time.perf_counter() - start, evaluation.stats.tolist()


def measure(options):
    """A record of each kind."""
    from pycocotools.coco import COCO

    read_seconds = []
    seconds = {kind: [] for kind in KINDS}
    stats = {}
    for _ in range(options.iterations):
        with contextlib.redirect_stdout(io.StringIO()):
            start = time.perf_counter()
            truth = COCO(os.path.join(options.data, "instances.json"))
            found = truth.loadRes(os.path.join(options.data, "results.json"))
            read_seconds.append(time.perf_counter() - start)
            # Masks last: they replace the polygons, which the next evaluation would not have to convert.
            for kind in KINDS:
                elapsed, stats[kind] = evaluate(truth, found, kind)
                seconds[kind].append(elapsed)
    return [{
        "event": "coco_evaluation",
        "time": time.time(),
        "implementation": "pycocotools",
        "type": kind,
        "threads": 1,
        "images": len(truth.imgs),
        "annotations": len(truth.anns),
        "detections": len(found.anns),
        "iterations": options.iterations,
        "median_s": statistics.median(seconds[kind]),
        "min_s": min(seconds[kind]),
        "read_s": statistics.median(read_seconds),
        "stats": stats[kind],
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    } for kind in KINDS]


def main():
    options = parse_arguments()
    records = measure(options)
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))
    first = records[0]
    print(f"{first['images']} images, {first['annotations']} annotations, {first['detections']} detections")
    print(f"{'':<10}{'minimum ms':>12}{'median ms':>12}{'AP':>10}")
    for record in records:
        print(f"{record['type']:<10}{record['min_s'] * 1e3:>12.1f}{record['median_s'] * 1e3:>12.1f}"
              f"{record['stats'][0]:>10.4f}")


if __name__ == "__main__":
    main()
