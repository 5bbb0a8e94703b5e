"""All-reduces with torch.distributed's gloo backend on CPU tensors, in place: the peer of bench_all_reduce.

Starts its ranks itself, or is one of them under torchrun. A call is timed between barriers and counts with the time of
its slowest rank. Results are checked on values whose combination is exact, before and after the timed calls.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
OPS = {
    "sum": (dist.ReduceOp.SUM, torch.add),
    "minimum": (dist.ReduceOp.MIN, torch.minimum),
    "maximum": (dist.ReduceOp.MAX, torch.maximum),
    "product": (dist.ReduceOp.PRODUCT, torch.mul),
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8")
FEWEST_ITERATIONS = 15
PERIOD = 251  # a prime: values at the wrong place are wrong also where the distance is a power of two


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=sizes, default="4KiB,1MiB,16MiB,64MiB,256MiB", help="bytes of a rank's buffer")
    parser.add_argument("--ranks", type=int, default=2, help="processes to start (default: 2)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--op", choices=sorted(OPS), default="sum")
    parser.add_argument("--iterations", type=int, default=100, help="timed calls of each size (default: 100)")
    parser.add_argument("--warmup", type=int, default=5, help="untimed calls of each size before (default: 5)")
    parser.add_argument(
        "--budget",
        type=float,
        default=5,
        help=f"seconds of a size after which it does with fewer calls, but {FEWEST_ITERATIONS} (default: 5)",
    )
    parser.add_argument("--threads", type=int, help="intra-op threads of a rank (default: cores / ranks)")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file, one JSON object a line")
    options = parser.parse_args()
    if min(options.ranks, options.iterations) < 1:
        parser.error("--ranks and --iterations must be at least 1")
    size = torch.empty(0, dtype=getattr(torch, options.dtype)).element_size()
    odd = [bytes for bytes in options.sizes if bytes % size]
    if odd:
        parser.error(f"{odd[0]} bytes are not a whole number of {options.dtype}")
    options.threads = options.threads or max(1, len(os.sched_getaffinity(0)) // options.ranks)
    return options


def sizes(text):
    return [size(word) for word in text.split(",")]


def size(text):
    digits, unit = (text[:-3], UNITS[text[-3:]]) if text[-3:] in UNITS else (text, 1)
    if not digits.isdecimal() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 4096, 4KiB, 16MiB or 1GiB")
    return int(digits) * unit


def values_of(rank, op):
    """One period of small whole numbers that differ between ranks."""
    index = torch.arange(PERIOD)
    return 1 + ((index + rank) % 4 == 0).long() if op == "product" else (index + 3 * rank) % 8


def spread(period, tensor):
    return period.to(tensor.dtype).repeat(tensor.numel() // PERIOD + 1)[: tensor.numel()]


def count_wrong(tensor, op):
    """The wrong elements over all ranks of one all-reduce."""
    reduce_op, combine = OPS[op]
    expected = values_of(0, op)
    for rank in range(1, dist.get_world_size()):
        expected = combine(expected, values_of(rank, op))
    tensor.copy_(spread(values_of(dist.get_rank(), op), tensor))
    dist.all_reduce(tensor, reduce_op)
    wrong = tensor.ne(spread(expected, tensor)).sum()
    dist.all_reduce(wrong)
    return int(wrong)


def timed_calls(tensor, op, calls):
    """For each of `calls` all-reduces the seconds of its slowest rank."""
    tensor.fill_(1 if op == "product" else 0)  # values that any number of calls leaves as they are
    seconds = torch.zeros(calls, dtype=torch.float64)
    for call in range(calls):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor, OPS[op][0])
        seconds[call] = time.perf_counter() - start
        dist.barrier()
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.tolist()


def measure(options, byte_count):
    """Seconds of the timed calls, and the number of wrong elements."""
    dtype = getattr(torch, options.dtype)
    tensor = torch.zeros(byte_count // torch.empty(0, dtype=dtype).element_size(), dtype=dtype)
    wrong = count_wrong(tensor, options.op)
    fastest = min(timed_calls(tensor, options.op, options.warmup + 1))
    affordable = max(FEWEST_ITERATIONS, int(options.budget / fastest))
    seconds = timed_calls(tensor, options.op, min(options.iterations, affordable))
    return seconds, wrong + count_wrong(tensor, options.op)


def record(options, byte_count, seconds, wrong):
    ranks = dist.get_world_size()
    median = statistics.median(seconds)
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else median
    algbw = byte_count / median / 1e9
    return {
        "event": "all_reduce",
        "time": time.time(),
        "implementation": "gloo",
        "bytes": byte_count,
        "count": byte_count // torch.empty(0, dtype=getattr(torch, options.dtype)).element_size(),
        "dtype": options.dtype,
        "op": options.op,
        "ranks": ranks,
        "in_place": True,
        "memory": "ordinary",
        "backend": "gloo",
        "iterations": len(seconds),
        "median_s": median,
        "min_s": min(seconds),
        "p99_s": p99,
        "algbw_gb_s": algbw,
        "busbw_gb_s": algbw * 2 * (ranks - 1) / ranks,
        "wrong": wrong,
        "torch": torch.__version__,
    }


def print_row(each):
    print(
        f"{each['bytes']:>12}{each['count']:>12}{each['dtype']:>10}{each['op']:>9}{each['min_s'] * 1e6:>13.1f}"
        f"{each['median_s'] * 1e6:>13.1f}{each['p99_s'] * 1e6:>13.1f}{each['algbw_gb_s']:>9.2f}"
        f"{each['busbw_gb_s']:>9.2f}{each['wrong']:>7}",
        flush=True,
    )


def run(options):
    """The number of wrong elements over all sizes."""
    wrong = 0
    speaks = dist.get_rank() == 0
    if speaks:
        print(f"all-reduce, {dist.get_world_size()} ranks over gloo, in place, PyTorch {torch.__version__}")
        print(
            f"{'bytes':>12}{'count':>12}{'type':>10}{'op':>9}{'minimum us':>13}{'median us':>13}{'p99 us':>13}"
            f"{'algbw':>9}{'busbw':>9}{'wrong':>7}"
        )
    for byte_count in options.sizes:
        each = record(options, byte_count, *measure(options, byte_count))
        wrong += each["wrong"]
        if speaks:
            print_row(each)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(each) + "\n")
    return wrong


def run_rank(rank, options, init_method):
    torch.set_num_threads(options.threads)
    place = {} if rank is None else {"rank": rank, "world_size": options.ranks}
    dist.init_process_group("gloo", init_method=init_method, timeout=datetime.timedelta(seconds=300), **place)
    wrong = run(options)
    dist.destroy_process_group()
    if wrong:
        sys.exit(f"{wrong} elements are wrong: the times mean nothing.")


def main():
    options = parse_arguments()
    # Read by every rank when it loads torch.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        run_rank(None, options, "env://")
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="gloo_all_reduce_") as directory:
        store = f"file://{directory}/store"
        torch.multiprocessing.spawn(run_rank, args=(options, store), nprocs=options.ranks, join=True)


if __name__ == "__main__":
    main()
