"""One step with PyTorch DDP (gloo, CPU) under torchrun: the peer of bench_start_up.

torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2 bench/peers/ddp_start_up.py
"""

import time

SINCE = time.perf_counter()  # importing torch belongs to what is measured

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 32
INPUTS = 784
CLASSES = 10


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.001, momentum=0.9)
    inputs, labels = torch.randn(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))
    nn.functional.cross_entropy(replica(inputs), labels).backward()
    optimizer.step()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"first step, {time.perf_counter() - SINCE:.3f} s after the script began", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
