"""One training step with and without PyTorch DistributedDataParallel (gloo, CPU): the peer of bench_train_step.

Starts its ranks itself. Each iteration times one local step (all ranks at once, each on its own) and one DDP step, in
alternating order, between barriers; a step's time is that of its slowest rank.
"""

import argparse
import datetime
import json
import os
import resource
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 1000
MLP_FEATURES = 1024
DEFAULT_BATCH = {"resnet18": 8, "resnet50": 8, "mlp": 64}
FEWEST_ITERATIONS_TO_TRUST = 15


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(DEFAULT_BATCH), default="resnet18")
    parser.add_argument("--ranks", type=positive, default=2, help="processes to start (default: 2)")
    parser.add_argument("--batch", type=positive, help="samples per rank (default: 8 images, 64 for mlp)")
    parser.add_argument("--image-size", type=positive, default=64, help="height and width of images (default: 64)")
    parser.add_argument("--iterations", type=positive, default=30, help="timed steps of each kind (default: 30)")
    parser.add_argument("--warmup", type=int, default=5, help="untimed steps of each kind before (default: 5)")
    parser.add_argument("--threads", type=positive, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view=True")
    parser.add_argument(
        "--no-broadcast-buffers",
        action="store_true",
        help="DDP with broadcast_buffers=False: no exchange of batch-norm statistics before each forward",
    )
    parser.add_argument("--json", metavar="FILE", help="append the records to this file, one JSON object a line")
    options = parser.parse_args()
    options.batch = options.batch or DEFAULT_BATCH[options.workload]
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def make_model(workload):
    if workload == "mlp":
        return nn.Sequential(
            nn.Linear(MLP_FEATURES, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, CLASSES)
        )
    return getattr(torchvision.models, workload)(weights=None, num_classes=CLASSES)


def make_batch(options, rank):
    generator = torch.Generator().manual_seed(1000 + rank)
    shape = (MLP_FEATURES,) if options.workload == "mlp" else (3, options.image_size, options.image_size)
    inputs = torch.randn(options.batch, *shape, generator=generator)
    labels = torch.randint(CLASSES, (options.batch,), generator=generator)
    return inputs, labels


class Step:
    """A model with its optimizer and its one batch; calling it trains one step."""

    def __init__(self, model, batch):
        self.model = model
        self.inputs, self.labels = batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def __call__(self):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.inputs), self.labels).backward()
        self.optimizer.step()


def seconds_between_barriers(step):
    dist.barrier()
    start = time.perf_counter()
    step()
    elapsed = time.perf_counter() - start
    dist.barrier()
    return elapsed


def slowest_rank(seconds):
    """The elementwise maximum over ranks: for each step the time of its slowest rank."""
    tensor = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def require_equal_replicas(model):
    """Ranks train on different data, so equal weights show that the timed DDP steps did synchronize."""
    checksum = sum(parameter.detach().double().abs().sum() for parameter in model.parameters())
    bounds = torch.stack([checksum, -checksum])
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
    if bounds[0] != -bounds[1]:
        raise RuntimeError("The replicas differ after the last DDP step; the times would mean nothing.")


def measure(options, rank):
    """Lists of seconds, one entry an iteration: local steps and DDP steps."""
    batch = make_batch(options, rank)
    torch.manual_seed(0)
    local = Step(make_model(options.workload), batch)
    torch.manual_seed(0)
    replica = DistributedDataParallel(
        make_model(options.workload),
        gradient_as_bucket_view=options.bucket_view,
        broadcast_buffers=not options.no_broadcast_buffers,
    )
    synchronized = Step(replica, batch)
    for _ in range(options.warmup):
        local()
        synchronized()

    seconds = {local: [], synchronized: []}
    for iteration in range(options.iterations):
        pair = (local, synchronized) if iteration % 2 == 0 else (synchronized, local)
        for step in pair:
            seconds[step].append(seconds_between_barriers(step))
    require_equal_replicas(replica)
    return slowest_rank(seconds[local]), slowest_rank(seconds[synchronized])


def run_rank(rank, options, store):
    torch.set_num_threads(options.threads)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=300),
    )
    local, synchronized = measure(options, rank)
    peak_rss_bytes = int(slowest_rank([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0])[0])
    if rank == 0:
        report(options, local, synchronized, peak_rss_bytes)
    dist.destroy_process_group()


def record(options, is_synchronized, seconds, peak_rss_bytes):
    return {
        "event": "train_step",
        "implementation": "pytorch_ddp",
        "workload": options.workload,
        "ranks": options.ranks,
        "synchronized": is_synchronized,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_rss_bytes": peak_rss_bytes,
        "batch": options.batch,
        "image_size": None if options.workload == "mlp" else options.image_size,
        "threads": options.threads,
        "iterations": options.iterations,
        "bucket_view": options.bucket_view,
        "broadcast_buffers": not options.no_broadcast_buffers,
        "torch": torch.__version__,
        "time": time.time(),
    }


def report(options, local, synchronized, peak_rss_bytes):
    if options.json:
        records = [record(options, False, local, peak_rss_bytes), record(options, True, synchronized, peak_rss_bytes)]
        with open(options.json, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(each) + "\n" for each in records))
    size = "" if options.workload == "mlp" else f", {options.image_size}x{options.image_size}"
    print(
        f"{options.workload}, batch {options.batch} per rank{size}, {options.ranks} ranks of {options.threads} threads, "
        f"{options.iterations} iterations, PyTorch {torch.__version__}"
    )
    paired = statistics.median(s / l for s, l in zip(synchronized, local))
    print(f"{'':<22}{'min ms':>10}{'median ms':>12}{'paired':>9}")
    for name, seconds in (("local", local), ("DDP", synchronized)):
        print(f"{name:<22}{min(seconds) * 1e3:>10.2f}{statistics.median(seconds) * 1e3:>12.2f}")
    median_ratio = statistics.median(synchronized) / statistics.median(local)
    print(f"{'synchronized/local':<22}{min(synchronized) / min(local):>10.3f}{median_ratio:>12.3f}{paired:>9.3f}")


def main():
    options = parse_arguments()
    if options.iterations < FEWEST_ITERATIONS_TO_TRUST:
        print(f"Fewer than {FEWEST_ITERATIONS_TO_TRUST} iterations: not a measurement.", file=sys.stderr)
    # Read by every rank when it loads torch; all ranks are on this machine.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="ddp_train_step_") as directory:
        store = os.path.join(directory, "store")
        torch.multiprocessing.spawn(run_rank, args=(options, store), nprocs=options.ranks, join=True)


if __name__ == "__main__":
    main()
