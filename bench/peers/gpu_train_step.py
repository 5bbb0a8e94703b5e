"""One training step of PyTorch on a GPU, alone and with DistributedDataParallel over NCCL: the peer of
bench_train_step there. On the CPU, over gloo, only to try it out.

Starts its ranks itself, one a GPU; a single one is this process. A time is the mean over --steps-at-once steps, after which the host waits for the
device, once; it is that of the slowest rank. Local and DDP steps are timed in turns, in alternating order. With
--profile, PyTorch's profile of ten more DDP steps, in which each is a span "train_step".
"""

import argparse
import contextlib
import datetime
import os
import resource
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_train_step import positive, require_equal_replicas, save, slowest_rank
from workload_sizes import DEFAULT_BATCH, IMAGE_WORKLOADS
from workloads import make_batch, make_model

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STEPS_BEFORE_RECORDING = 11  # as the documentation of CUDA graphs asks for where DDP is recorded
PROFILED_STEPS = 10
TIMEOUT = datetime.timedelta(seconds=300)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(set(DEFAULT_BATCH) - {"mask_rcnn"}), default="resnet18",
                        help="(default: resnet18; for Mask R-CNN see mask_rcnn.py)")
    parser.add_argument("--ranks", type=positive, default=1, help="processes to start (default: 1)")
    parser.add_argument("--batch", type=positive, help="samples per rank (default: 8 images or sentences, 64 vectors)")
    parser.add_argument("--image-size", type=positive, default=64, help="height and width of images (default: 64)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU if there is one")
    parser.add_argument("--precision", choices=tuple(PRECISIONS), default="float32", help="autocast's, of forward")
    parser.add_argument("--channels-last", choices=("yes", "no"), default="no")
    parser.add_argument("--sgd", choices=("torch", "fused"), default="torch", help="torch: the device's default")
    parser.add_argument("--cuda-graph", choices=("yes", "no"), default="no", help="record a step once, then replay it")
    parser.add_argument("--iterations", type=positive, default=30, help="times of each kind (default: 30)")
    parser.add_argument("--steps-at-once", type=positive, help="steps of a time (default: 1 on the CPU, 10 on a GPU)")
    parser.add_argument("--warmup", type=int, default=5, help="untimed steps of each kind before (default: 5)")
    parser.add_argument("--threads", type=positive, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--profile", metavar="FILE", help="file for rank 0's profile of ten DDP steps")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file, one JSON object a line")
    options = parser.parse_args()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda, but PyTorch finds no GPU.")
    if options.cuda_graph == "yes" and (options.device == "cpu" or options.precision == "fp16"):
        parser.error("--cuda-graph needs a GPU and --precision float32 or bf16.")
    options.batch = options.batch or DEFAULT_BATCH[options.workload]
    options.steps_at_once = options.steps_at_once or (1 if options.device == "cpu" else 10)
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


class Step:
    """A model with its optimizer and its one batch; calling it trains one step, on a GPU without waiting for it."""

    def __init__(self, model, batch, options):
        self.model = model
        self.inputs, self.labels = batch
        fused = True if options.sgd == "fused" else None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=fused)
        self.scaler = torch.amp.GradScaler(options.device) if options.precision == "fp16" else None
        self.autocast = contextlib.nullcontext()
        if options.precision != "float32":
            # Casts that are kept from one replay of a graph to the next would be those of old weights.
            self.autocast = torch.autocast(
                options.device, PRECISIONS[options.precision], cache_enabled=options.cuda_graph == "no"
            )

    def __call__(self):
        self.optimizer.zero_grad()
        with self.autocast:
            loss = nn.functional.cross_entropy(self.model(self.inputs), self.labels)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


class RecordedStep:
    """A step as a CUDA graph."""

    def __init__(self, step):
        self.model = step.model
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(STEPS_BEFORE_RECORDING):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog may query events on its own thread meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            step()

    def __call__(self):
        self.graph.replay()


def make_steps(options, rank, device):
    """A local step and a DDP step, each with a network of its own."""
    layout = torch.channels_last if options.channels_last == "yes" else torch.contiguous_format

    def network():
        torch.manual_seed(0)
        return make_model(options.workload, options.image_size).to(device, memory_format=layout)

    inputs, labels = make_batch(options.workload, options.batch, options.image_size, seed=1000 + rank)
    inputs = inputs.to(device, memory_format=layout if inputs.dim() == 4 else torch.preserve_format)
    batch = inputs, labels.to(device)
    recording = torch.cuda.stream(torch.cuda.Stream()) if options.cuda_graph == "yes" else contextlib.nullcontext()
    with recording:  # DDP remembers the stream on which it was made
        replica = DistributedDataParallel(
            network(),
            device_ids=None if options.device == "cpu" else [device],
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )
    steps = Step(network(), batch, options), Step(replica, batch, options)
    return tuple(map(RecordedStep, steps)) if options.cuda_graph == "yes" else steps


def wait_for_device(options):
    if options.device == "cuda":
        torch.cuda.synchronize()


def seconds_of(step, options):
    wait_for_device(options)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(options.steps_at_once):
        step()
    wait_for_device(options)
    elapsed = time.perf_counter() - start
    dist.barrier()
    return elapsed / options.steps_at_once


def measure(options, rank, device):
    """Seconds of local steps and of DDP steps, and the number of the network's parameters."""
    local, synchronized = make_steps(options, rank, device)
    for _ in range(options.warmup):
        local()
        synchronized()
    seconds = {local: [], synchronized: []}
    for iteration in range(options.iterations):
        for step in (local, synchronized) if iteration % 2 == 0 else (synchronized, local):
            seconds[step].append(seconds_of(step, options))
    if options.profile:
        profile_steps(synchronized, options.profile if rank == 0 else None)
    require_equal_replicas(synchronized.model)
    times = [slowest_rank(seconds[step]) for step in (local, synchronized)]
    return times, sum(parameter.numel() for parameter in local.model.parameters())


def profile_steps(step, path):
    """All ranks must call it; the one with a path writes its profile."""
    profiler = torch.profiler.profile() if path else contextlib.nullcontext()
    with profiler:
        for _ in range(PROFILED_STEPS):
            with torch.profiler.record_function("train_step"):
                step()
    if path:
        profiler.export_chrome_trace(path)


def run_rank(rank, options, store):
    torch.set_num_threads(options.threads)
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
        if options.ranks > torch.cuda.device_count():
            # NCCL refuses two ranks of one host on one GPU; they are reached over the network then.
            os.environ.setdefault("NCCL_HOSTID", f"rank{rank}")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if options.device == "cuda" else "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=options.ranks,
        timeout=TIMEOUT,
    )
    times, parameters = measure(options, rank, device)
    peak_rss_bytes = int(slowest_rank([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0])[0])
    if rank == 0:
        save(options, [record(options, *kind, parameters, peak_rss_bytes) for kind in zip((False, True), times)])
        report(options, device, *times)
    dist.destroy_process_group()


def record(options, is_synchronized, seconds, parameters, peak_rss_bytes):
    median = statistics.median(seconds)
    values = {
        "event": "train_step",
        "implementation": "pytorch",
        "workload": options.workload,
        "ranks": options.ranks,
        "synchronized": is_synchronized,
        "median_s": median,
        "min_s": min(seconds),
        "peak_rss_bytes": peak_rss_bytes,
        "batch": options.batch,
        "image_size": options.image_size if options.workload in IMAGE_WORKLOADS else None,
        "parameters": parameters,
        "threads": options.threads,
        "iterations": options.iterations,
        "steps_at_once": options.steps_at_once,
        "samples_per_s": options.batch * options.ranks / median,
        "device": options.device,
        "precision": options.precision,
        "channels_last": options.channels_last == "yes",
        "sgd": options.sgd,
        "cuda_graph": options.cuda_graph == "yes",
        "torch": torch.__version__,
        "time": time.time(),
    }
    if options.device == "cuda":
        values["peak_device_bytes"] = torch.cuda.max_memory_allocated()
        values["gpu"] = torch.cuda.get_device_name()
    return values


def report(options, device, local, synchronized):
    print(
        f"{options.workload}, batch {options.batch} a rank, {options.ranks} ranks, {device}, {options.precision}, "
        f"channels_last {options.channels_last}, CUDA graph {options.cuda_graph}, PyTorch {torch.__version__}"
    )
    print(f"{'':<12}{'minimum ms':>12}{'median ms':>12}{'samples/s':>12}")
    for name, seconds in (("local", local), ("DDP", synchronized)):
        median = statistics.median(seconds)
        rate = options.batch * options.ranks / median
        print(f"{name:<12}{min(seconds) * 1e3:>12.2f}{median * 1e3:>12.2f}{rate:>12.1f}")


def main():
    options = parse_arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="gpu_train_step_") as directory:
        store = os.path.join(directory, "store")
        if options.ranks == 1:  # here, as another process takes seconds to start
            return run_rank(0, options, store)
        torch.multiprocessing.spawn(run_rank, args=(options, store), nprocs=options.ranks, join=True)


if __name__ == "__main__":
    main()
