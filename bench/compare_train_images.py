"""libtrain against PyTorch in training and evaluating ResNets: train_resnet and bench/peers/train_images.py in turns.

Workloads: `step`, training on noise; `start`, one such step, from the launch on; `pipeline`, training on JPEGs with the
reference augmentation; `evaluation`, of JPEGs after a short training. Each program has its own defaults, or both have
the same precision and layout with --same-settings. The order is swapped every round. Only ratios within a round mean
something.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from comparison import (
    ROOT,
    ProgramFailed,
    first_step_times,
    launch,
    make_photographs,
    range_of,
    read_records,
    require_programs,
    run,
    torchrun,
)

PEER = ROOT / "bench" / "peers" / "train_images.py"
FEWEST_TO_TRUST = 15
SETTINGS = {
    "float32": ["--precision=float32", "--channels-last=false"],
    "bfloat16": ["--precision=bfloat16", "--channels-last=true"],
}


class Measure(NamedTuple):
    title: str
    field: str  # of the record
    scale: float = 1
    decimals: int = 1
    more_is_better: bool = True


IMAGES = Measure("images/s", "images_per_s")
EVALUATION = Measure("images/s of evaluation", "evaluation_images_per_s")
MEMORY = Measure("peak MB of a rank", "peak_rss_bytes", 1e-6, 0, more_is_better=False)
START = Measure("s to the first step", "first_step_begin_s", 1, 2, more_is_better=False)
FIRST_STEP = Measure("s to its end", "first_step_end_s", 1, 2, more_is_better=False)


class Workload(NamedTuple):
    measures: tuple
    model: str
    ranks: int
    batch_size: int
    images: int = 0  # 0: noise
    val_images: int = 0
    epochs: int = 1


WORKLOADS = {
    "step": Workload((IMAGES, MEMORY), "resnet50", ranks=1, batch_size=8),
    "start": Workload((START, FIRST_STEP), "resnet50", ranks=2, batch_size=8),
    "pipeline": Workload((IMAGES, MEMORY), "resnet18", ranks=2, batch_size=8, images=1024, val_images=64),
    "evaluation": Workload((EVALUATION, MEMORY), "resnet18", ranks=2, batch_size=16, images=64, val_images=1024,
                           epochs=3),
}
IMAGE_SIZE = 224
GOALS = {  # by workload and --same-settings
    ("step", None): {IMAGES: 2.0},
    ("step", "float32"): {IMAGES: 1.03, MEMORY: 0.70},
    ("step", "bfloat16"): {IMAGES: 1.10, MEMORY: 0.70},
    ("start", None): {START: 0.20},
    ("pipeline", None): {IMAGES: 1.7},
    ("evaluation", None): {EVALUATION: 1.7},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each program runs (default: 3)")
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default="step")
    parser.add_argument("--same-settings", choices=tuple(SETTINGS), metavar="PRECISION",
                        help="float32 (contiguous) or bfloat16 (channels_last) on both sides (default: what each has)")
    parser.add_argument("--model", help="default: resnet50 for step and start, resnet18 otherwise")
    parser.add_argument("--ranks", type=int, help="default: 1 for step, 2 otherwise")
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--workers", type=int, default=1, help="that read and decode, per rank (default: 1)")
    parser.add_argument("--batch-size", type=int, help="images per rank and step (default: 8; for evaluation 16)")
    parser.add_argument("--image-size", type=int, default=IMAGE_SIZE)
    parser.add_argument("--warmup", type=int, default=4, help="untimed steps (default: 4)")
    parser.add_argument("--steps", type=int, default=4, help="steps of each measurement (default: 4)")
    parser.add_argument("--iterations", type=int, default=15,
                        help="measurements of step (default: 15); the others have what the images allow")
    parser.add_argument("--data", type=pathlib.Path,
                        help="folder with train/ and val/, each of class folders (default: photographs are made)")
    parser.add_argument("--images", type=int, help="photographs to train on (default: 1024; for evaluation 64)")
    parser.add_argument("--val-images", type=int, help="and to evaluate (default: 1024; for pipeline 64)")
    parser.add_argument("--epochs", type=int, help="each with an evaluation (default: 1; for evaluation 3)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/train_resnet", help="the libtrain program")
    parser.add_argument("--mpirun", default=ROOT / ".deps/bin/mpirun")
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch (default: this one)")
    parser.add_argument("--json", metavar="FILE", help="append every record, with its round, to this file")
    options = parser.parse_args()
    for name, value in WORKLOADS[options.workload]._asdict().items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    if options.data and options.images == 0:
        parser.error(f"--data is for the workloads pipeline and evaluation: {options.workload} trains on noise")
    if options.data and not all((options.data / split).is_dir() for split in ("train", "val")):
        parser.error(f"there are no folders train and val in {options.data}")
    counts = ("rounds", "ranks", "batch_size", "image_size", "warmup", "steps", "iterations", "epochs")
    for name in counts:
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.workload == "start":
        options.warmup, options.steps, options.iterations = 0, 1, 1
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def common_arguments(options):
    words = [
        f"--model={options.model}",
        f"--batch-size={options.batch_size}",
        f"--train-size={options.image_size}",
        f"--val-size={options.image_size}",
        f"--resize={round(options.image_size * 256 / 224)}",
        f"--num-warmup-batches={options.warmup}",
        f"--num-batches-per-iter={options.steps}",
        f"--num-iters={options.iterations}",
        *SETTINGS.get(options.same_settings, []),
    ]
    if options.data:
        words += [f"--data={options.data}", f"--workers={options.workers}", f"--epochs={options.epochs}"]
    return words


def evaluation_seconds(records):
    """Of each evaluation: from the last record of a step, for which the ranks wait for each other, to its own. In
    between is nothing but the evaluation."""
    seconds, last_step = [], 0
    for record in records:
        if record["event"] == "step":
            last_step = record["time"]
        elif record["event"] == "evaluation":
            seconds.append(record["time"] - last_step)
    return seconds


def libtrain_record(records, options, val_images):
    """The records of metrics.jsonl as the one that the peer writes."""
    summary = next((record for record in records if record["event"] == "summary"), None)
    if summary is None:
        raise ProgramFailed("train_resnet has left no summary.")
    found = {
        "event": "train_images",
        "implementation": "libtrain",
        "time": summary["time"],
        "model": options.model,
        "ranks": options.ranks,
        "threads": options.threads,
        "batch": options.batch_size,
        "image_size": options.image_size,
        "workers": options.workers if options.data else None,
        "precision": summary["precision"],
        "channels_last": summary["channels_last"],
        "peak_rss_bytes": summary["peak_rss_bytes"],
    }
    found |= {name: summary[name] for name in ("images_per_s", "images_per_s_interval", "accuracy", "top5_accuracy")
              if name in summary}
    found |= first_step_times(records, options.batch_size * options.ranks)
    seconds = evaluation_seconds(records)
    if seconds:
        # The first one also warms up; the peer leaves it out, too.
        found |= {"evaluation_images": val_images,
                  "evaluation_images_per_s": val_images / statistics.median(seconds[1:] or seconds)}
    return found


def run_libtrain(options, directory):
    command = [*launch(options), options.program, *common_arguments(options), f"--output={directory}"]
    run(command, options)
    val_images = len(list((options.data / "val").glob("*/*"))) if options.data else 0
    return libtrain_record(read_records(directory / "metrics.jsonl"), options, val_images)


def run_peer(options, directory):
    file = directory / "records.jsonl"
    run([*torchrun(options), PEER, *common_arguments(options), f"--threads={options.threads}", f"--json={file}"], options)
    records = read_records(file)
    if not records:
        raise ProgramFailed(f"{PEER.name} has left no record.")
    return records[-1]


def require_measures(record, options):
    for measure in options.measures:
        if measure.field not in record:
            raise ProgramFailed(f"{record['implementation']} has measured no {measure.title}: the images are too few "
                                "after the warm-up. Give more, or a smaller --batch-size or --steps.")


def require_same_work(ours, theirs, options):
    """Programs that do different work would be compared for nothing."""
    names = ["evaluation_images"] + (["precision", "channels_last"] if options.same_settings else [])
    for name in names:
        if ours.get(name) != theirs.get(name):
            raise ProgramFailed(f"libtrain's {name} is {ours.get(name)}, PyTorch's {theirs.get(name)}.")


def since_launch(record, launched):
    """The record with seconds from the launch instead of times of the first step, where it has those."""
    record = dict(record)
    for moment, name in (("first_step_began", "first_step_begin_s"), ("first_step_ended", "first_step_end_s")):
        if moment in record:
            record[name] = record.pop(moment) - launched
    return record


def run_rounds(options):
    """{implementation: [record of round 1, record of round 2, ...]}. For `start`, a round 0 is not counted, in which
    files come to memory and Python compiles its modules."""
    programs = [("libtrain", run_libtrain), ("pytorch", run_peer)]
    results = {name: [] for name, _ in programs}
    for number in range(0 if options.workload == "start" else 1, options.rounds + 1):
        found = {}
        for name, run_program in programs if number % 2 == 1 else reversed(programs):
            print(f"round {number}/{options.rounds}: {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="compare_train_images_") as directory:
                launched = time.time()
                found[name] = since_launch(run_program(options, pathlib.Path(directory)), launched)
            require_measures(found[name], options)
        require_same_work(found["libtrain"], found["pytorch"], options)
        for name in found if number > 0 else ():
            results[name].append(found[name])
    return results


@contextlib.contextmanager
def data_of(options):
    """The folder of the images, made for as long as it is used unless it was given; None for noise."""
    if options.data or options.images == 0:
        yield options.data
        return
    with tempfile.TemporaryDirectory(prefix="compare_train_images_") as directory:
        folder = pathlib.Path(directory)
        print(f"making {options.images + options.val_images} photographs", file=sys.stderr)
        make_photographs(options, folder / "train", options.images)
        make_photographs(options, folder / "val", options.val_images, seed=1)
        yield folder


def save(results, file_name):
    with open(file_name, "a", encoding="utf-8") as file:
        for records in results.values():
            for number, record in enumerate(records):
                file.write(json.dumps({**record, "round": number}) + "\n")


def settings_of(record):
    return record["precision"] + (", channels_last" if record["channels_last"] else "")


def goal_of(measure, ratios, goals):
    if measure not in goals:
        return "-"
    goal, median = goals[measure], statistics.median(ratios)
    met = median >= goal if measure.more_is_better else median <= goal
    return f"{'>=' if measure.more_is_better else '<='} {goal:.2f} {'met' if met else 'missed'}"


def goals_of(options):
    """None for other sizes than those that they are for."""
    workload = WORKLOADS[options.workload]
    sizes = (options.model, options.ranks, options.batch_size, options.image_size)
    if sizes != (workload.model, workload.ranks, workload.batch_size, IMAGE_SIZE):
        return {}
    return GOALS.get((options.workload, options.same_settings), {})


def table(results, measures, goals):
    """One column a measure: its values, and libtrain's as a multiple of PyTorch's."""
    ours, theirs = results["libtrain"], results["pytorch"]
    lines = [f"{'':<18}" + "".join(f"{each.title:>26}" for each in measures)]
    for name, records in results.items():
        cells = [range_of([record[each.field] * each.scale for record in records], each.decimals) for each in measures]
        lines.append(f"{name:<18}" + "".join(f"{cell:>26}" for cell in cells) + f"   {settings_of(records[0])}")
    ratios = {each: [our[each.field] / their[each.field] for our, their in zip(ours, theirs)] for each in measures}
    lines.append(f"{'libtrain/pytorch':<18}" + "".join(f"{range_of(ratios[each], 2):>26}" for each in measures))
    if goals:
        lines.append(f"{'goal':<18}" + "".join(f"{goal_of(each, ratios[each], goals):>26}" for each in measures))
    return "\n".join(lines)


def main():
    options = parse_arguments()
    require_programs(options, "train_resnet")
    try:
        with data_of(options) as options.data:
            results = run_rounds(options)
    except ProgramFailed as failure:
        sys.exit(str(failure))
    if options.json:
        save(results, options.json)
    if IMAGES in options.measures and results["pytorch"][0]["measurements"] < FEWEST_TO_TRUST:
        print(f"Fewer than {FEWEST_TO_TRUST} measurements in a run: not a measurement.", file=sys.stderr)
    print(
        f"{options.workload}: {options.model}, {options.image_size}x{options.image_size}, batch {options.batch_size} "
        f"per rank, {options.ranks} ranks of {options.threads} threads, {options.rounds} rounds; median "
        "(least-greatest) over rounds"
    )
    print(table(results, options.measures, goals_of(options)))


if __name__ == "__main__":
    main()
