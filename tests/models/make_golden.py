#!/usr/bin/env python3
"""Writes the golden files of resnet_test.cpp from torchvision's ResNets into tests/models/data.

    python tests/models/make_golden.py

NAME.txt lists parameters and buffers with their shapes, in torchvision's order. NAME_outputs.txt holds numbers that the
model with 10 classes computes in double precision after a fill by formula (`fill` here and in the test, exact on
both sides), and the sums of the absolute values of a few parameters after initialisation with seed 0.
"""

import math
import pathlib

import numpy as np
import torch
import torchvision

DATA = pathlib.Path(__file__).parent / "data"


def unit(tensor_index, count):
    """`count` numbers in [0, 1), multiples of 2^-24, from a multiplicative hash of tensor and element index."""
    x = np.arange(tensor_index * 1_000_003 + 1, tensor_index * 1_000_003 + 1 + count, dtype=np.uint64)
    x *= np.uint64(0x9E3779B97F4A7C15)  # modulo 2^64
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return torch.from_numpy((x >> np.uint64(40)).astype(np.float32)) / (1 << 24)


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


def write_outputs(name, model, initial, mean, variance):
    lines = []

    def record(key, tensor):
        lines.append(f"{key} " + " ".join(f"{float(value):.12g}" for value in tensor.flatten()))

    for key in initial:
        record(f"initial_{key}", model.get_parameter(key).detach().double().abs().sum())
    with torch.no_grad():
        tensors = list(model.named_parameters()) + list(model.named_buffers())
        for index, (key, tensor) in enumerate(tensors):
            fill(tensor, key, index)
        images = unit(len(tensors), 4 * 3 * 64 * 64).view(4, 3, 64, 64) * 2 - 1
        model, images = model.double(), images.double()
        record("eval_logits", model.eval()(images))
        record("train_logits", model.train()(images))
        for key in (mean, variance):
            record(key, model.get_buffer(key)[:64])
    (DATA / f"{name}_outputs.txt").write_text("\n".join(lines) + "\n")


def seeded(make):
    torch.manual_seed(0)
    return make(num_classes=10)


if __name__ == "__main__":
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    write_names("resnet18", torchvision.models.resnet18())
    write_names("resnet50", torchvision.models.resnet50())
    write_outputs("resnet18", seeded(torchvision.models.resnet18),
                  ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.conv2.weight", "fc.weight", "fc.bias"],
                  "bn1.running_mean", "layer4.1.bn2.running_var")
    write_outputs("resnet50", seeded(torchvision.models.resnet50),
                  ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.2.conv3.weight", "fc.weight", "fc.bias"],
                  "layer2.0.bn1.running_mean", "layer4.2.bn3.running_var")
