"""Writes an image folder of synthetic photographs, the same for the same options.

JPEGs of 500 x 375 pixels, quality 95, 4:2:0, of 82 KB on average (3.5 bits a pixel, as ImageNet's): smooth colours,
shapes with sharp edges, and grain that is stronger in some places than in others, so that files differ in length.
"""

import argparse
import os
import pathlib
import shutil
import tempfile

import numpy as np
from PIL import Image, ImageDraw

WIDTH, HEIGHT = 500, 375
SHAPES = 12
GRAIN = 6  # makes the files as long as they are meant to be
CLASSES = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where to write it; must not exist")
    parser.add_argument("--images", type=int, default=1024, help="how many photographs (default: 1024)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.images < CLASSES:
        parser.error(f"--images must be at least {CLASSES}: there are so many classes, and none may be empty")
    if options.folder.exists():
        parser.error(f"{options.folder} exists already")
    return options


def smooth(rng, shape, size):
    """Few random values, spread over the whole picture."""
    few = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
    return few.resize(size, Image.Resampling.BICUBIC)


def draw_shapes(rng, image):
    pen = ImageDraw.Draw(image)
    for _ in range(SHAPES):
        x, y = int(rng.integers(0, image.width)), int(rng.integers(0, image.height))
        width, height = (int(side) for side in rng.integers(20, 160, 2))
        color = tuple(int(value) for value in rng.integers(0, 256, 3))
        draw = pen.ellipse if rng.random() < 0.5 else pen.rectangle
        draw([x - width // 2, y - height // 2, x + width // 2, y + height // 2], fill=color)


def photograph(seed, number, size=(WIDTH, HEIGHT)):
    """Of so many pixels, width and height."""
    rng = np.random.default_rng((seed, number))
    image = smooth(rng, (5, 6, 3), size)
    draw_shapes(rng, image)
    strength = np.asarray(smooth(rng, (4, 5), size), dtype=np.float32) * (GRAIN / 128)
    grain = rng.standard_normal(size[::-1], dtype=np.float32) * strength
    # Less contrast leaves room for grain at both ends.
    pixels = np.asarray(image, dtype=np.float32) * 0.8 + 25 + grain[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def save(image, path):
    image.save(path, quality=95, subsampling="4:2:0")


def write(folder, images, seed):
    for number in range(images):
        place = folder / f"class_{number % CLASSES}"
        place.mkdir(exist_ok=True)
        save(photograph(seed, number), place / f"{number:06}.jpg")


def make(folder, images, seed=0):
    """Complete or not there at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        write(unfinished, images, seed)
        unfinished.chmod(0o755)
        os.rename(unfinished, folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def main():
    options = parse_arguments()
    make(options.folder, options.images, options.seed)
    files = [file.stat().st_size for file in options.folder.glob("*/*.jpg")]
    print(f"{options.folder}: {len(files)} photographs, {sum(files) / len(files) / 1e3:.1f} KB on average")


if __name__ == "__main__":
    main()
