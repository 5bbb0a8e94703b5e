#!/usr/bin/env python3
"""Prints the golden values of group_order_test.cpp and aspect_ratio_groups_test.cpp.

The orders are the definition in group_order.hpp, on lists. The groups of aspect ratios are those of torchvision's
references/detection/group_by_aspect_ratio.py: NumPy's logarithmic bins, and bisect_right.
"""

from bisect import bisect_right

import numpy as np
from make_golden import combine, permutation

GROUPS = int.from_bytes(b"groups", "big")


def group_order(groups, chunk, seed, epoch):
    drawn = [permutation(len(groups), seed, epoch, place) for place in range(len(groups))]
    split = len(drawn) // chunk * chunk
    whole, left = [], []
    for group in sorted(set(groups)):
        members = [sample for sample in drawn[:split] if groups[sample] == group]
        end = len(members) // chunk * chunk
        whole += members[:end]
        left += members[end:]
    joined = whole + left
    chunks = [joined[begin:begin + chunk] for begin in range(0, split, chunk)]
    key = combine(combine(seed, epoch), GROUPS)
    placed = {permutation(len(chunks), key, 0, number): each for number, each in enumerate(chunks)}
    return [sample for place in range(len(chunks)) for sample in placed[place]] + drawn[split:]


def aspect_ratio_groups(sizes, factor):
    bins = (2 ** np.linspace(-1, 1, 2 * factor + 1)).tolist() if factor > 0 else [1.0]
    return [bisect_right(bins, height / width) for width, height in sizes]


if __name__ == "__main__":
    few = [0, 1, 0, 2, 0, 0, 1, 0, 2, 0, 0, 1, 0, 0]
    for groups, chunk, seed, epoch in ((few, 4, 0, 0), (few, 4, 0, 1), (few, 4, 1, 0), (few, 3, 0, 0), (few, 1, 0, 0),
                                       (few, 20, 0, 0), ([sample % 7 for sample in range(1000)], 8, 42, 89)):
        print(f"groups={groups[:14]} chunk={chunk} seed={seed} epoch={epoch}: "
              f"{group_order(groups, chunk, seed, epoch)[:16]}")
    extents = [(640, 480), (480, 640), (640, 427), (500, 375), (375, 500), (640, 640), (640, 320), (320, 640), (641, 320),
               (320, 641), (640, 360), (612, 612), (333, 500), (1, 1000), (1000, 1), (635, 504), (504, 635)]
    for factor in (0, 1, 2, 3, 127):
        print(f"factor={factor}: {aspect_ratio_groups(extents, factor)}")
