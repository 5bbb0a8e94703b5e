"""The digits of examples/digits/data as image files, in folders named after their classes. As a program it writes all of
them, to the folders train and val of the one that it is given."""

import struct
import sys
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[2] / "examples/digits/data"
SIDE = 32


def read(split):
    """Images, as rows of grey values, and labels: split is train or t10k."""
    images = (DIGITS / f"{split}-images-idx3-ubyte").read_bytes()
    labels = (DIGITS / f"{split}-labels-idx1-ubyte").read_bytes()[8:]
    count, height, width = struct.unpack(">3I", images[4:16])
    pixels = images[16:]
    size = height * width
    return [(pixels[size * index:size * (index + 1)], (width, height), labels[index]) for index in range(count)]


def write(folder, split, classes, per_class=None):
    """JPEG files of SIDE x SIDE pixels, the first `per_class` of each class; returns the folder."""
    from PIL import Image
    written = dict.fromkeys(classes, 0)
    for number, (pixels, size, label) in enumerate(read(split)):
        if label not in written or written[label] == per_class:
            continue
        written[label] += 1
        of_class = folder / str(label)
        of_class.mkdir(parents=True, exist_ok=True)
        image = Image.frombytes("L", size, pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        image.convert("RGB").save(of_class / f"{number:04}.jpg", quality=95)
    return folder


if __name__ == "__main__":
    for name, part in ("train", "train"), ("val", "t10k"):
        write(Path(sys.argv[1]) / name, part, range(10))
