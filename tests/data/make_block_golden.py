#!/usr/bin/env python3
"""Prints the golden values of block_order_test.cpp: the definition in block_order.hpp, on lists."""

from itertools import accumulate

from make_golden import combine, permutation

BLOCKS = int.from_bytes(b"blocks", "big")


def permuted(elements, key, number):
    return [elements[permutation(len(elements), key, number, place)] for place in range(len(elements))]


def block_order(sizes, blocks_at_once, seed, epoch):
    key = combine(combine(seed, epoch), BLOCKS)
    ends = list(accumulate(sizes))
    blocks = permuted([range(end - size, end) for size, end in zip(sizes, ends)], key, 0)
    order = []
    for number, begin in enumerate(range(0, len(blocks), blocks_at_once), start=1):
        window = [sample for block in blocks[begin:begin + blocks_at_once] for sample in block]
        order += permuted(window, key, number)
    return order


if __name__ == "__main__":
    for sizes, blocks_at_once, seed, epoch in (([3, 0, 5, 2, 4], 2, 0, 0), ([3, 0, 5, 2, 4], 2, 0, 1),
                                               ([3, 0, 5, 2, 4], 2, 1, 0), ([3, 0, 5, 2, 4], 1, 0, 0),
                                               ([3, 0, 5, 2, 4], 16, 0, 0), ([5] * 1000, 3, 42, 89)):
        values = block_order(sizes, blocks_at_once, seed, epoch)[:14]
        print(f"sizes={sizes[:5]} blocks_at_once={blocks_at_once} seed={seed} epoch={epoch}: {values}")
