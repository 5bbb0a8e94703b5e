"""Trains torchvision's ResNets on the CPU as torchvision's reference training does: the peer of train_resnet.

Its ranks are started by torchrun, and train with DDP over gloo where they are several. Options mean the same as
train_resnet's; what is not given is as PyTorch has it: float32, contiguous. Without --data the images are one batch of
noise. With it each epoch ends with an evaluation.

torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 bench/peers/train_images.py --batch-size 8
"""

import argparse
import datetime
import os
import pathlib
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

from ddp_train_step import positive, save, slowest_rank

IMAGENET_CLASSES = 1000
MODELS = torchvision.models.list_models(torchvision.models, include=["resnet*", "resnext*", "wide_resnet*"])
TIMEOUT = datetime.timedelta(seconds=300)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder with train/ and val/, each of class folders")
    parser.add_argument("--model", choices=MODELS, default="resnet50", metavar="NAME", help="default: resnet50")
    parser.add_argument("--threads", type=positive, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--batch-size", type=positive, default=32, help="images per rank and step (default: 32)")
    parser.add_argument("--workers", type=int, default=1, help="processes that read and decode, per rank (default: 1)")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="bfloat16: autocast")
    parser.add_argument("--channels-last", choices=("true", "false"), default="false")
    parser.add_argument("--train-size", type=positive, default=224, help="height and width (default: 224)")
    parser.add_argument("--val-size", type=positive, default=224, help="the same in evaluations (default: 224)")
    parser.add_argument("--resize", type=positive, default=256, help="shorter side before that crop (default: 256)")
    parser.add_argument("--epochs", type=positive, default=1, help="with --data (default: 1)")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before images/s are measured")
    parser.add_argument("--num-batches-per-iter", type=positive, default=10, help="steps of each measurement")
    parser.add_argument("--num-iters", type=positive, default=10, help="measurements without --data (default: 10)")
    parser.add_argument("--json", metavar="FILE", help="append the record to this file")
    options = parser.parse_args()
    if "WORLD_SIZE" not in os.environ:
        parser.error("this program is one rank; start it with torchrun, as the first lines of its source show")
    options.ranks = int(os.environ["WORLD_SIZE"])
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


class Throughput:
    """Images per second of all ranks, one number for each iteration of some steps; those of the warm-up do not count,
    and neither do those in which an epoch ends. The same as in examples/train_resnet/throughput.hpp."""

    def __init__(self, options):
        self.steps_of_iteration = options.num_batches_per_iter
        self.images_of_iteration = options.num_batches_per_iter * options.batch_size * options.ranks
        self.steps_left = options.num_warmup_batches
        self.counts = False
        self.start = None
        self.rates = []

    def after_step(self):
        self.steps_left -= 1
        if self.steps_left > 0:
            return
        now = time.perf_counter()
        if self.counts:
            self.rates.append(self.images_of_iteration / (now - self.start))
        self.start, self.steps_left, self.counts = now, self.steps_of_iteration, True

    def after_epoch(self):
        self.counts = False

    def fields(self):
        """Of the record; none if no iteration counted."""
        if not self.rates:
            return {}
        return {
            "images_per_s": statistics.mean(self.rates),
            "images_per_s_interval": 1.96 * statistics.pstdev(self.rates),
            "median_images_per_s": statistics.median(self.rates),
            "best_images_per_s": max(self.rates),
            "measurements": len(self.rates),
        }


def to_pixels():
    return [
        transforms.PILToTensor(),
        transforms.ConvertImageDtype(torch.float),
        transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ]


def make_loader(options, split, transform):
    trains = split == "train"
    dataset = ImageFolder(options.data / split, transforms.Compose([*transform, *to_pixels()]))
    sampler = DistributedSampler(dataset, shuffle=trains, drop_last=trains)
    return DataLoader(dataset, options.batch_size, sampler=sampler, num_workers=options.workers, drop_last=trains)


def training_loader(options):
    crop = transforms.RandomResizedCrop(options.train_size)
    return make_loader(options, "train", [crop, transforms.RandomHorizontalFlip()])


def evaluation_loader(options):
    return make_loader(options, "val", [transforms.Resize(options.resize), transforms.CenterCrop(options.val_size)])


class Training:
    """A model with its optimizer, in the precision and the layout of the options."""

    def __init__(self, options, classes):
        self.precision = options.precision
        self.layout = torch.channels_last if options.channels_last == "true" else torch.contiguous_format
        torch.manual_seed(0)
        model = torchvision.models.get_model(options.model, weights=None, num_classes=classes)
        model = model.to(memory_format=self.layout)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.model = DistributedDataParallel(model) if options.ranks > 1 else model
        rate = 0.1 * options.batch_size * options.ranks / 256
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        self.first_step = None  # when it began and ended

    def autocast(self):
        return torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bfloat16")

    def step(self, images, labels):
        begin = time.time()
        self.optimizer.zero_grad()
        images = images.to(memory_format=self.layout)
        with self.autocast():
            loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.first_step = self.first_step or (begin, time.time())

    def fields(self):
        """Of the record."""
        began, ended = self.first_step
        return {"parameters": self.parameters, "first_step_began": began, "first_step_ended": ended}

    def evaluate(self, loader):
        """Seconds from the slowest rank's last step, and the shares of correct answers, first and among five."""
        dist.barrier()
        start = time.perf_counter()
        self.model.eval()
        counts = torch.zeros(3)
        with torch.inference_mode():
            for images, labels in loader:
                with self.autocast():
                    logits = self.model(images.to(memory_format=self.layout))
                hits = logits.topk(min(5, logits.size(1))).indices == labels.unsqueeze(1)
                counts += torch.tensor([hits[:, 0].sum(), hits.sum(), len(labels)])
        dist.all_reduce(counts)
        self.model.train()
        first, among_five, samples = counts.tolist()
        return time.perf_counter() - start, first / samples, among_five / samples


def train_on_noise(options, throughput):
    training = Training(options, IMAGENET_CLASSES)
    generator = torch.Generator().manual_seed(1000 + dist.get_rank())
    images = torch.randn(options.batch_size, 3, options.train_size, options.train_size, generator=generator)
    labels = torch.randint(IMAGENET_CLASSES, (options.batch_size,), generator=generator)
    images = images.to(memory_format=training.layout)
    for _ in range(options.num_warmup_batches + options.num_iters * options.num_batches_per_iter):
        training.step(images, labels)
        throughput.after_step()
    return training.fields()


def train_on_folder(options, throughput):
    loader, held_out = training_loader(options), evaluation_loader(options)
    training = Training(options, len(loader.dataset.classes))
    seconds = []
    for epoch in range(options.epochs):
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            training.step(images, labels)
            throughput.after_step()
        elapsed, accuracy, top5_accuracy = training.evaluate(held_out)
        seconds.append(elapsed)
        throughput.after_epoch()
    images = len(held_out.dataset)
    return training.fields() | {
        "accuracy": accuracy,
        "top5_accuracy": top5_accuracy,
        "evaluation_images": images,
        # The first one also warms up.
        "evaluation_images_per_s": images / statistics.median(seconds[1:] or seconds),
    }


def record(options):
    return {
        "event": "train_images",
        "implementation": "pytorch",
        "time": time.time(),
        "model": options.model,
        "ranks": options.ranks,
        "threads": options.threads,
        "batch": options.batch_size,
        "image_size": options.train_size,
        "workers": options.workers if options.data else None,
        "precision": options.precision,
        "channels_last": options.channels_last == "true",
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


def report(each):
    layout = ", channels_last" if each["channels_last"] else ""
    print(
        f"{each['model']}, batch {each['batch']} per rank, {each['ranks']} ranks of {each['threads']} threads, "
        f"{each['precision']}{layout}, PyTorch {each['torch']}"
    )
    if "images_per_s" in each:
        print(f"images/s: {each['images_per_s']:.1f} +-{each['images_per_s_interval']:.1f}")
    if "evaluation_images" in each:
        print(
            f"evaluation: {each['evaluation_images_per_s']:.1f} images/s, accuracy {each['accuracy']:.3f}, "
            f"{each['top5_accuracy']:.3f} among five"
        )
    print(f"peak memory of a rank: {each['peak_rss_bytes'] / 1e6:.0f} MB")


def main():
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", timeout=TIMEOUT)
    throughput = Throughput(options)
    found = train_on_folder(options, throughput) if options.data else train_on_noise(options, throughput)
    # Without that of the workers, which share some of it.
    peak = int(slowest_rank([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0])[0])
    if dist.get_rank() == 0:
        each = record(options) | found | throughput.fields() | {"peak_rss_bytes": peak}
        save(options, [each])
        report(each)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
