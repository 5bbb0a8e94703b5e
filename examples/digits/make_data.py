#!/usr/bin/env python3
"""Writes the digits data set that examples/digits trains on, as four IDX files with MNIST's names.

Source: the 1,797 8x8 images that scikit-learn ships (what `sklearn.datasets.load_digits` returns), whose pixels are
0..16. They become bytes by round(x * 255 / 16). 360 images are held out by a shuffle, stratified by class, with a
fixed seed. Only scikit-learn's data file is read, so that nothing else of it has to work.

    python examples/digits/make_data.py [DIRECTORY]
"""

import csv
import gzip
import importlib.util
import pathlib
import random
import struct
import sys

HELD_OUT = 360
SEED = 1998  # the year in which the data were donated


def load_digits():
    """Rows of 64 pixels, and their labels."""
    package = pathlib.Path(importlib.util.find_spec("sklearn").origin).parent
    with gzip.open(package / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        rows = [[int(float(value)) for value in row] for row in csv.reader(file)]
    return [row[:-1] for row in rows], [row[-1] for row in rows]


def held_out_counts(labels):
    """How many images of each class to hold out: proportional, the largest remainders rounded up."""
    classes = sorted(set(labels))
    shares = {c: HELD_OUT * labels.count(c) / len(labels) for c in classes}
    counts = {c: int(shares[c]) for c in classes}
    by_remainder = sorted(classes, key=lambda c: (counts[c] - shares[c], c))
    for c in by_remainder[: HELD_OUT - sum(counts.values())]:
        counts[c] += 1
    return counts


def split(labels):
    """Indices to train on and indices to hold out, each in an order mixed over the classes."""
    generator = random.Random(SEED)
    order = sorted(range(len(labels)), key=lambda _: generator.random())
    remaining = held_out_counts(labels)
    train, held_out = [], []
    for index in order:
        if remaining[labels[index]] > 0:
            remaining[labels[index]] -= 1
            held_out.append(index)
        else:
            train.append(index)
    return train, held_out


def write_idx(path, shape, content):
    """IDX: two zero bytes, type 0x08 (unsigned byte), number of dimensions, each as big-endian uint32, data."""
    header = struct.pack(">BBBB", 0, 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape)
    path.write_bytes(header + bytes(content))


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "data")
    images, labels = load_digits()
    images = [[int(pixel * 255 / 16 + 0.5) for pixel in image] for image in images]
    train, held_out = split(labels)
    for name, indices in (("train", train), ("t10k", held_out)):
        pixels = [pixel for index in indices for pixel in images[index]]
        write_idx(directory / f"{name}-images-idx3-ubyte", (len(indices), 8, 8), pixels)
        write_idx(directory / f"{name}-labels-idx1-ubyte", (len(indices),), [labels[index] for index in indices])
    print(f"{directory}: {len(train)} images to train on, {len(held_out)} held out")


if __name__ == "__main__":
    main()
