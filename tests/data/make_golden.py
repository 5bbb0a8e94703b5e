#!/usr/bin/env python3
"""Prints the golden values of permutation_test.cpp and sample_random_test.cpp.

An implementation independent of libtrain's, from the papers that the headers cite, on Python's unbounded integers.
"""

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def combine(a, b):
    return mix((mix((a + GOLDEN) & MASK) + b + GOLDEN) & MASK)


def splitmix64(state):
    while True:
        state = (state + GOLDEN) & MASK
        yield mix(state)


def permutation(size, seed, epoch, position):
    bits = max(2, (size - 1).bit_length())
    half = (bits + bits % 2) // 2
    stream = splitmix64(combine(seed, epoch))
    keys = [next(stream) for _ in range(12)]
    x = position
    while True:
        left, right = divmod(x, 1 << half)
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) >> (64 - half))
        x = (left << half) + right
        if x < size:
            return x


if __name__ == "__main__":
    for size, seed, epoch in ((3, 0, 1), (4, 0, 1), (10, 0, 0), (10, 0, 1), (10, 1, 0), (16, 7, 3),
                              (1_281_167, 42, 89), (2**63 + 5, 1, 2)):
        values = [permutation(size, seed, epoch, position) for position in range(min(size, 10))]
        print(f"permutation size={size} seed={seed} epoch={epoch}: {values}")
    for seed, epoch, index in ((0, 0, 0), (42, 89, 1_281_166)):
        stream = splitmix64(combine(combine(seed, epoch), index))
        print(f"sample random seed={seed} epoch={epoch} index={index}: {[next(stream) for _ in range(4)]}")
