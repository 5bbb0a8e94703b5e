"""Photographs to batches with torchvision, Pillow and PyTorch's DataLoader: the peer of bench_data_loader.

Random resized crop to 224 x 224, flip, normalise, float16, channels last, in batches of 64. One thread is
num_workers=0; more are as many worker processes, whose CPU time counts. An untimed epoch comes before the first round.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import time

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

WORKLOAD = "random_resized_crop"
BATCH = 64
SIDE = 224
FEWEST_ROUNDS_TO_TRUST = 15


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder with photographs/ in it")
    parser.add_argument("--workload", choices=(WORKLOAD,), default=WORKLOAD)
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--rounds", type=int, default=15, help="timed epochs (default: 15)")
    parser.add_argument("--serve", action="store_true",
                        help='run a round for each line "WORKLOAD THREADS" of the input, and answer with its record')
    parser.add_argument("--json", metavar="FILE", help="append the record to this file")
    options = parser.parse_args()
    if min(options.threads, options.rounds) < 1:
        parser.error("--threads and --rounds must be at least 1")
    return options


def collate(samples):
    """The samples lie in memory channels last, as pil_to_tensor leaves them: stacked so, each is copied once."""
    images, labels = zip(*samples)
    batch = torch.stack([image.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)
    return batch, torch.tensor(labels)


def to_half(image):
    return image.half()


def make_loader(folder, threads):
    transform = transforms.Compose([
        transforms.RandomResizedCrop(SIDE),
        transforms.RandomHorizontalFlip(),
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        to_half,
    ])
    return DataLoader(ImageFolder(folder, transform), batch_size=BATCH, shuffle=True, collate_fn=collate,
                      num_workers=0 if threads == 1 else threads)


def cpu_seconds():
    """Of this process and of the workers that have ended, as they all have after an epoch."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class TimedLoader:
    """A loader with so many threads; it has warmed up once it is made."""

    def __init__(self, folder, threads):
        self.loader = make_loader(folder, threads)
        self.bytes = sum(pathlib.Path(path).stat().st_size for path, _ in self.loader.dataset.samples)
        self.head = {"workload": WORKLOAD, "threads": threads, "batch": BATCH} | self.warm_up()

    def warm_up(self):
        """What an epoch gives."""
        shape, total, elements = None, 0.0, 0
        for images, _ in self.loader:
            if shape is None:
                shape = {"shape": list(images.shape), "dtype": str(images.dtype).removeprefix("torch."),
                         "channels_last": images.is_contiguous(memory_format=torch.channels_last)}
            total += images.sum(dtype=torch.double).item()
            elements += images.numel()
        return shape | {"mean": total / elements}

    def round(self):
        """Seconds, CPU seconds and samples of an epoch."""
        samples = 0
        cpu_start, start = cpu_seconds(), time.perf_counter()
        for _, labels in self.loader:
            samples += len(labels)
        return time.perf_counter() - start, cpu_seconds() - cpu_start, samples

    def record(self, rounds):
        seconds, core_seconds, samples = zip(*rounds)
        median, median_core = statistics.median(seconds), statistics.median(core_seconds)
        return {"event": "loader", "time": time.time(), "implementation": "pytorch"} | self.head | {
            "iterations": len(rounds),
            "samples": samples[0],
            "bytes": self.bytes,
            "median_s": median,
            "min_s": min(seconds),
            "median_core_s": median_core,
            "min_core_s": min(core_seconds),
            "samples_per_s": samples[0] / median,
            "samples_per_core_s": samples[0] / median_core,
            "bytes_per_s": self.bytes / median,
            "bytes_per_core_s": self.bytes / median_core,
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
        }


def serve(folder):
    loaders = {}
    for line in sys.stdin:
        workload, threads = line.split()
        if workload != WORKLOAD:
            sys.exit(f"This program has no workload {workload}; it has {WORKLOAD}.")
        if threads not in loaders:
            loaders[threads] = TimedLoader(folder, int(threads))
        print(json.dumps(loaders[threads].record([loaders[threads].round()])), flush=True)


def measure(options, folder):
    if options.rounds < FEWEST_ROUNDS_TO_TRUST:
        print(f"Fewer than {FEWEST_ROUNDS_TO_TRUST} rounds: not a measurement.", file=sys.stderr)
    loader = TimedLoader(folder, options.threads)
    record = loader.record([loader.round() for _ in range(options.rounds)])
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    print(f"{'':<24}{'samples/s':>12}{'fastest':>12}{'per core s':>12}{'fastest':>12}")
    print(f"{WORKLOAD:<24}{record['samples_per_s']:>12.0f}{record['samples'] / record['min_s']:>12.0f}"
          f"{record['samples_per_core_s']:>12.0f}{record['samples'] / record['min_core_s']:>12.0f}")


def main():
    options = parse_arguments()
    torch.set_num_threads(1)
    folder = options.data / "photographs"
    if options.serve:
        serve(folder)
    else:
        measure(options, folder)


if __name__ == "__main__":
    main()
