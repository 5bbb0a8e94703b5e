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
from torch.nn.parallel import DistributedDataParallel

from workload_sizes import DEFAULT_BATCH, IMAGE_WORKLOADS
from workloads import learning_rate, loss_of, make_batch, make_model

FEWEST_ITERATIONS_TO_TRUST = 15
FIRST_STEPS = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(DEFAULT_BATCH), default="resnet18")
    parser.add_argument("--ranks", type=positive, default=2, help="processes to start (default: 2)")
    parser.add_argument("--batch", type=positive,
                        help="samples per rank (default: 8 images or sentences, 2 of mask_rcnn, 64 vectors)")
    parser.add_argument("--image-size", type=positive, default=64, help="height and width of images (default: 64)")
    parser.add_argument("--iterations", type=positive, default=30, help="timed steps of each kind (default: 30)")
    parser.add_argument("--warmup", type=int, default=5, help="untimed steps of each kind before (default: 5)")
    parser.add_argument(
        "--fresh-starts",
        type=int,
        default=0,
        help=f"how often to start anew and time the first {FIRST_STEPS} steps (default: 0)",
    )
    parser.add_argument("--threads", type=positive, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view=True")
    parser.add_argument(
        "--no-broadcast-buffers",
        action="store_true",
        help="DDP with broadcast_buffers=False: no exchange of batch-norm statistics before each forward",
    )
    parser.add_argument("--json", metavar="FILE", help="append the records to this file, one JSON object a line")
    options = parser.parse_args()
    if options.workload == "mask_rcnn" and options.image_size % 32 != 0:
        parser.error(f"--image-size is {options.image_size}: mask_rcnn takes multiples of 32")
    options.batch = options.batch or DEFAULT_BATCH[options.workload]
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


class Step:
    """A model with its optimizer and its one batch; calling it trains one step."""

    def __init__(self, workload, model, batch):
        self.workload = workload
        self.model = model
        self.batch = batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate(workload), momentum=0.9)

    def __call__(self):
        self.optimizer.zero_grad()
        loss_of(self.workload, self.model, self.batch).backward()
        self.optimizer.step()


def make_steps(options, rank):
    """A local step and a DDP step, each with a network of its own."""
    batch = make_batch(options.workload, options.batch, options.image_size, seed=1000 + rank)
    torch.manual_seed(0)
    local = Step(options.workload, make_model(options.workload, options.image_size), batch)
    torch.manual_seed(0)
    replica = DistributedDataParallel(
        make_model(options.workload, options.image_size),
        gradient_as_bucket_view=options.bucket_view,
        broadcast_buffers=not options.no_broadcast_buffers,
    )
    return local, Step(options.workload, replica, batch)


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


def time_steps(local, synchronized, count, first=0):
    """Lists of seconds, one entry an iteration: local steps and DDP steps. The order is swapped every iteration."""
    seconds = {local: [], synchronized: []}
    for iteration in range(first, first + count):
        pair = (local, synchronized) if iteration % 2 == 0 else (synchronized, local)
        for step in pair:
            seconds[step].append(seconds_between_barriers(step))
    return slowest_rank(seconds[local]), slowest_rank(seconds[synchronized])


def require_equal_replicas(model):
    """Ranks train on different data, so equal weights show that the timed DDP steps did synchronize."""
    checksum = sum(parameter.detach().double().abs().sum() for parameter in model.parameters())
    bounds = torch.stack([checksum, -checksum])
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
    if bounds[0] != -bounds[1]:
        raise RuntimeError("The replicas differ after the last DDP step; the times would mean nothing.")


def measure(options, rank):
    """Seconds of local steps and of DDP steps, and the number of the network's parameters."""
    local, synchronized = make_steps(options, rank)
    for _ in range(options.warmup):
        local()
        synchronized()
    times = time_steps(local, synchronized, options.iterations)
    require_equal_replicas(synchronized.model)
    return times, sum(parameter.numel() for parameter in local.model.parameters())


def time_fresh_starts(options, rank):
    """The first steps of networks, optimizers and replicas made anew: of each step the median over the starts."""
    starts = []
    for number in range(options.fresh_starts):
        local, synchronized = make_steps(options, rank)
        starts.append(time_steps(local, synchronized, FIRST_STEPS, first=number + 1))
    return [[statistics.median(step) for step in zip(*kind)] for kind in zip(*starts)]


def run_rank(rank, options, store):
    torch.set_num_threads(options.threads)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=300),
    )
    times, parameters = measure(options, rank)
    peak_rss_bytes = int(slowest_rank([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0])[0])
    first_steps = time_fresh_starts(options, rank) if options.fresh_starts > 0 else (None, None)
    if rank == 0:
        records = [
            record(options, is_synchronized, times[is_synchronized], first_steps[is_synchronized])
            | {"peak_rss_bytes": peak_rss_bytes, "parameters": parameters}
            for is_synchronized in (False, True)
        ]
        save(options, records)
        report(options, *times)
        report_first_steps(records)
    dist.destroy_process_group()


def record(options, is_synchronized, seconds, first_steps):
    values = {
        "event": "train_step",
        "implementation": "pytorch_ddp",
        "workload": options.workload,
        "ranks": options.ranks,
        "synchronized": is_synchronized,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "batch": options.batch,
        "image_size": options.image_size if options.workload in IMAGE_WORKLOADS else None,
        "threads": options.threads,
        "iterations": options.iterations,
        "bucket_view": options.bucket_view,
        "broadcast_buffers": not options.no_broadcast_buffers,
        "torch": torch.__version__,
        "time": time.time(),
    }
    if first_steps:
        first, second, *_, tenth = first_steps
        values |= {"first_step_s": first, "second_step_s": second, "tenth_step_s": tenth}
    return values


def save(options, records):
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(each) + "\n" for each in records))


def report(options, local, synchronized):
    size = f", {options.image_size}x{options.image_size}" if options.workload in IMAGE_WORKLOADS else ""
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


def report_first_steps(records):
    if "first_step_s" not in records[0]:
        return
    print(f"{'started anew':<22}{'first ms':>10}{'second ms':>12}{'tenth ms':>12}{'first/tenth':>14}")
    for name, values in zip(("local", "DDP"), records):
        first, second, tenth = (values[f"{step}_step_s"] for step in ("first", "second", "tenth"))
        print(f"{name:<22}{first * 1e3:>10.2f}{second * 1e3:>12.2f}{tenth * 1e3:>12.2f}{first / tenth:>14.3f}")


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
