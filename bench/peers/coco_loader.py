"""Images and masks of a COCO folder with torchvision, pycocotools and PyTorch's DataLoader: the peer of
bench_coco_loader.

The steps of torchvision's reference training of detectors: polygons to masks, flip, float, and what the model does
first, GeneralizedRCNNTransform, which normalises, resizes and pads; here before the batch leaves the loader. One thread
is num_workers=0; more are as many worker processes, whose CPU time counts. An untimed epoch comes first.
"""

import argparse
import contextlib
import io
import json
import pathlib
import random
import resource
import statistics
import sys
import time

import torch
import torchvision
from pycocotools import mask as coco_mask
from torch.utils.data import DataLoader
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.transforms import functional

IMAGES_OF_BATCH = 2
FLIP_PROBABILITY = 0.5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FEWEST_ROUNDS_TO_TRUST = 15


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with what make_coco_images.py writes")
    parser.add_argument("--min-size", type=int, default=800, help="pixels of the shorter side (default: 800)")
    parser.add_argument("--max-size", type=int, default=1333, help="of the longer side, at most (default: 1333)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--rounds", type=int, default=15, help="timed epochs (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="append the record to this file")
    options = parser.parse_args()
    if min(options.min_size, options.max_size, options.threads, options.rounds) < 1:
        parser.error("--min-size, --max-size, --threads and --rounds must be at least 1")
    return options


def mask_of(segmentation, height, width):
    """uint8 [height, width] of an object's polygons."""
    parts = torch.from_numpy(coco_mask.decode(coco_mask.frPyObjects(segmentation, height, width)))
    return parts.any(dim=2)


def target_of(annotations, width, height):
    """The objects of an image, without crowds and without those that have no area."""
    objects = [each for each in annotations if not each["iscrowd"]]
    boxes = torch.tensor([each["bbox"] for each in objects], dtype=torch.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    boxes[:, 0::2].clamp_(min=0, max=width)
    boxes[:, 1::2].clamp_(min=0, max=height)
    masks = [mask_of(each["segmentation"], height, width) for each in objects]
    keep = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 2] > boxes[:, 0])
    return {
        "boxes": boxes[keep],
        "labels": torch.tensor([each["category_id"] for each in objects], dtype=torch.int64)[keep],
        "masks": torch.stack(masks)[keep] if masks else torch.zeros(0, height, width, dtype=torch.uint8),
        "area": torch.tensor([each["area"] for each in objects])[keep],
        "iscrowd": torch.tensor([each["iscrowd"] for each in objects])[keep],
    }


def transform(image, annotations):
    width, height = image.size
    target = target_of(annotations, width, height)
    if random.random() < FLIP_PROBABILITY:
        image = functional.hflip(image)
        target["boxes"][:, [0, 2]] = width - target["boxes"][:, [2, 0]]
        target["masks"] = target["masks"].flip(-1)
    return functional.convert_image_dtype(functional.pil_to_tensor(image), torch.float), target


class Collate:
    def __init__(self, min_size, max_size):
        self.resize = GeneralizedRCNNTransform(min_size, max_size, MEAN, STD)

    def __call__(self, samples):
        images, targets = zip(*samples)
        images, targets = self.resize(list(images), list(targets))
        return images.tensors, images.image_sizes, targets


def cpu_seconds():
    """Of this process and of the workers that have ended, as they all have after an epoch."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def make_loader(options):
    with contextlib.redirect_stdout(io.StringIO()):
        images = torchvision.datasets.CocoDetection(options.data / "images", options.data / "instances.json",
                                                    transforms=transform)
    return DataLoader(images, batch_size=IMAGES_OF_BATCH, shuffle=True,
                      collate_fn=Collate(options.min_size, options.max_size),
                      num_workers=0 if options.threads == 1 else options.threads)


def warm_up(loader):
    """What an epoch gives."""
    total, pixels, objects, object_pixels = 0.0, 0, 0, 0
    for images, sizes, targets in loader:
        total += images.sum(dtype=torch.double).item()
        pixels += sum(height * width for height, width in sizes)
        objects += sum(len(target["labels"]) for target in targets)
        object_pixels += sum(int(target["masks"].sum()) for target in targets)
    return {"batch": IMAGES_OF_BATCH, "pixels": pixels, "objects": objects, "mean": total / (3 * pixels),
            "object_pixels": object_pixels}


def run_round(loader):
    """Seconds, CPU seconds and images of an epoch."""
    samples = 0
    cpu_start, start = cpu_seconds(), time.perf_counter()
    for _, _, targets in loader:
        samples += len(targets)
    return time.perf_counter() - start, cpu_seconds() - cpu_start, samples


def measure(options):
    loader = make_loader(options)
    head = warm_up(loader)
    seconds, core_seconds, samples = zip(*(run_round(loader) for _ in range(options.rounds)))
    median, median_core = statistics.median(seconds), statistics.median(core_seconds)
    return {"event": "loader", "time": time.time(), "implementation": "torchvision", "workload": "coco_images",
            "threads": options.threads} | head | {
        "iterations": options.rounds,
        "samples": samples[0],
        "bytes": sum(file.stat().st_size for file in (options.data / "images").iterdir()),
        "median_s": median,
        "min_s": min(seconds),
        "median_core_s": median_core,
        "min_core_s": min(core_seconds),
        "samples_per_s": samples[0] / median,
        "samples_per_core_s": samples[0] / median_core,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    if options.rounds < FEWEST_ROUNDS_TO_TRUST:
        print(f"Fewer than {FEWEST_ROUNDS_TO_TRUST} rounds: not a measurement.", file=sys.stderr)
    record = measure(options)
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    print(f"{record['samples']} images, {options.threads} threads, {options.rounds} rounds")
    print(f"{'images/s':>12}{'fastest':>12}{'per core s':>12}{'fastest':>12}")
    print(f"{record['samples_per_s']:>12.1f}{record['samples'] / record['min_s']:>12.1f}"
          f"{record['samples_per_core_s']:>12.1f}{record['samples'] / record['min_core_s']:>12.1f}")


if __name__ == "__main__":
    main()
