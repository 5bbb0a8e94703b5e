#!/usr/bin/env python3
"""Writes the golden files of resnet_test.cpp from torchvision's ResNets into tests/models/data.

    python tests/models/make_golden.py

NAME.txt lists parameters and buffers with their shapes, in torchvision's order. resnet18_outputs.txt holds numbers that
a ResNet-18 with 10 classes computes in one thread: after a fill by formula (`fill` here and in the test, exact in float
on both sides), and the sums of the absolute values of a few parameters after initialisation with seed 0.
"""

import math
import pathlib

import torch
import torchvision

DATA = pathlib.Path(__file__).parent / "data"
MASK = (1 << 64) - 1


def unit(tensor_index, count):
    """`count` numbers in [0, 1), multiples of 2^-24, from a multiplicative hash of tensor and element index."""
    values = []
    for i in range(count):
        x = ((tensor_index * 1_000_003 + i + 1) * 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 32)) * 0xD6E8FEB86659FD93) & MASK
        values.append((x >> 40) / (1 << 24))
    return torch.tensor(values, dtype=torch.float32)


def fill(tensor, name, index):
    """Weights in +-2^k with k about log2(sqrt(6 / fan_in)), scales and variances in [0.5, 1.5), the rest in +-0.5."""
    if name.endswith("num_batches_tracked"):
        return
    u = unit(index, tensor.numel())
    if tensor.dim() > 1:
        fan_in = tensor.numel() // tensor.size(0)
        u = (u - 0.5) * 2.0 ** (2 - (int(math.log2(fan_in)) // 2))
    elif name.endswith("running_var") or (name.endswith("weight") and "fc" not in name):
        u = u + 0.5
    else:
        u = u - 0.5
    tensor.copy_(u.view_as(tensor))


def write_names(name, model):
    lines = [f"parameter {key} {'x'.join(map(str, value.shape))}" for key, value in model.named_parameters()]
    lines += [f"buffer {key} {'x'.join(map(str, value.shape)) or 'scalar'}" for key, value in model.named_buffers()]
    (DATA / f"{name}.txt").write_text("\n".join(lines) + "\n")


def write_outputs():
    lines = []

    def record(key, tensor):
        lines.append(f"{key} " + " ".join(f"{float(value):.9g}" for value in tensor.flatten()))

    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=10)
    for key in ("conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.conv2.weight", "fc.weight", "fc.bias"):
        record(f"initial_{key}", model.get_parameter(key).detach().double().abs().sum())
    with torch.no_grad():
        tensors = list(model.named_parameters()) + list(model.named_buffers())
        for index, (key, tensor) in enumerate(tensors):
            fill(tensor, key, index)
        images = unit(len(tensors), 4 * 3 * 64 * 64).view(4, 3, 64, 64) * 2 - 1
        record("eval_logits", model.eval()(images))
        record("train_logits", model.train()(images))
        record("bn1.running_mean", model.bn1.running_mean)
        record("layer4.1.bn2.running_var", model.layer4[1].bn2.running_var[:64])
    (DATA / "resnet18_outputs.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    write_names("resnet18", torchvision.models.resnet18())
    write_names("resnet50", torchvision.models.resnet50())
    write_outputs()
