#!/usr/bin/env python3
"""Prints the golden values of crop_policy_test.cpp, from torchvision itself:

    OMP_NUM_THREADS=1 .deps/bin/python tests/data/image/make_torchvision_golden.py
"""

from unittest import mock

import torch
import torchvision
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional

# Width and height of the picture, the shorter side after resizing, width and height of the crop.
CENTER_CROPS = [(500, 375, 256, 224, 224), (375, 500, 256, 224, 224), (333, 500, 232, 224, 224),
                (1024, 681, 257, 224, 200), (640, 480, 480, 640, 33), (7, 3, 100, 99, 98)]

# Too wide or too high for any crop of the default ratios that has the area of the whole.
FALLBACKS = [(1000, 10), (10, 1000), (101, 9), (9, 100)]


def resized_center_crop(width, height, short_side, crop_width, crop_height):
    """(width, height) after resizing, and the crop's left and top edges: what torchvision passes to its crop."""
    [new_height, new_width] = functional._compute_resized_output_size((height, width), [short_side])
    resized = torch.empty(1, new_height, new_width)
    with mock.patch.object(functional, "crop") as crop:
        functional.center_crop(resized, [crop_height, crop_width])
    _, top, left, *_ = crop.call_args.args
    return new_width, new_height, left, top


def fallback(width, height):
    """Left, top, width and height of the crop where none of the ten draws fits: draws of a hundred times the area."""
    top, left, crop_height, crop_width = RandomResizedCrop.get_params(
        torch.empty(1, height, width), [100.0, 100.0], [3 / 4, 4 / 3])
    return left, top, crop_width, crop_height


if __name__ == "__main__":
    print(f"torchvision {torchvision.__version__}")
    for case in CENTER_CROPS:
        print(f"resized_center_crop{case}: {resized_center_crop(*case)}")
    for case in FALLBACKS:
        print(f"random_resized_crop{case}, fallback: {fallback(*case)}")
