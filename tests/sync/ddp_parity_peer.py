"""PyTorch DDP's side of ddp_parity_test.py: makes weights and data, trains on two processes, and leaves what it did.

usage: python ddp_parity_peer.py FOLDER CASES [cuda]    (CASES: JSON of {name: {optimizer, micro_steps, unused, wire}})

All files hold raw float32: `weights`, `inputs` and `targets` as ddp_parity_program.cpp reads them, and for each case
`NAME.ddp` and `NAME.ddp_gradients`, the weights after every step and its gradients. With `cuda`, over NCCL, both
processes on one GPU.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

# The same as in ddp_parity_program.cpp.
STEPS = 20
MOST_MICRO_STEPS = 3
RANKS = 2
BATCH = 4
FEATURES = 6
OUTPUTS = 3


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(FEATURES, 16)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, OUTPUTS)
        self.side = nn.Linear(FEATURES, OUTPUTS)

    def forward(self, inputs, with_side):
        outputs = self.head(torch.tanh(self.second(torch.tanh(self.first(inputs)))))
        return outputs + self.side(inputs) if with_side else outputs


def make_data():
    """Weights, inputs and targets, the same in every process."""
    torch.manual_seed(7)
    shape = (STEPS, MOST_MICRO_STEPS, RANKS, BATCH)
    return weights_of(Network()), torch.randn(*shape, FEATURES), torch.randn(*shape, OUTPUTS)


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def gradients_of(module):
    """Zeros for parameters that no rank used."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in module.parameters()])


def load_weights(module, weights):
    with torch.no_grad():
        for parameter, part in zip(module.parameters(), weights.split([p.numel() for p in module.parameters()])):
            parameter.copy_(part.view_as(parameter))


def save(tensor, path):
    path.write_bytes(tensor.cpu().contiguous().numpy().tobytes())


def takes_side(step, rank):
    """Rank 0 alone, rank 1 alone, both, none."""
    return step % 4 in (rank, 2)


def make_optimizer(name, module):
    if name == "adamw":
        return torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.01)
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


def compress(state, bucket):
    """bf16_compress_hook, which DDP refuses by its name where there is no NCCL, though gloo serves as well."""
    return bf16_compress_hook(state, bucket)


def train(case, rank, device):
    """The weights after every step, and its gradients."""
    weights, inputs, targets = (tensor.to(device) for tensor in make_data())
    module = Network().to(device)
    load_weights(module, weights)
    may_be_unused = case["unused"] == "allowed"
    replica = DistributedDataParallel(module, find_unused_parameters=may_be_unused)
    if case["wire"] == "bfloat16":
        replica.register_comm_hook(None, compress)
    optimizer = make_optimizer(case["optimizer"], module)
    trajectory, gradients = [], []
    for step in range(STEPS):
        for micro_step in range(case["micro_steps"]):
            is_last = micro_step + 1 == case["micro_steps"]
            with contextlib.nullcontext() if is_last else replica.no_sync():
                with_side = not may_be_unused or takes_side(step, rank)
                outputs = replica(inputs[step, micro_step, rank], with_side)
                loss = nn.functional.mse_loss(outputs, targets[step, micro_step, rank]) / case["micro_steps"]
                loss.backward()
        gradients.append(gradients_of(module))
        optimizer.step()
        optimizer.zero_grad()
        trajectory.append(weights_of(module))
    return torch.stack(trajectory), torch.stack(gradients)


def run_rank(rank, folder, cases, device):
    torch.set_num_threads(1)
    if device == "cuda":
        # NCCL refuses two ranks of one host on one GPU.
        os.environ["NCCL_HOSTID"] = f"r{rank}"
        torch.cuda.set_device(0)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    for name, case in cases.items():
        trajectory, gradients = train(case, rank, device)
        if rank == 0:
            save(trajectory, folder / f"{name}.ddp")
            save(gradients, folder / f"{name}.ddp_gradients")
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may still run when the interpreter goes, which aborts the process


def main():
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for tensor, name in zip(make_data(), ("weights", "inputs", "targets")):
        save(tensor, folder / name)
    torch.multiprocessing.spawn(run_rank, args=(folder, cases, device), nprocs=RANKS, join=True)


if __name__ == "__main__":
    main()
