"""Resizing and augmentation, side by side with Pillow and torchvision: pixels equal, draws equally distributed."""

import math
import os
import random
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
jobs.require_packages("numpy", "PIL", "torch", "torchvision")

import numpy
import PIL
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import autoaugment, functional

CASES = 40
OUR_DRAWS = 50000
THEIR_DRAWS = 4000


def random_image(width, height, channels, seed):
    """Bytes without structure, but for some rows in grey."""
    generator = numpy.random.default_rng(seed)
    pixels = generator.integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    pixels[::5] = pixels[::5, :, :1]
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def channels_of(image):
    return len(image.getbands())


class Commands:
    """Commands for resize_program, carried out together: starting it takes longer than most of them."""

    def __init__(self, folder):
        self.folder = folder
        self.lines = []
        self.files = 0

    def path(self):
        self.files += 1
        return self.folder / f"file_{self.files}"

    def source(self, image):
        path = self.path()
        path.write_bytes(image.tobytes())
        return path

    def add(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def resize(self, image, box, size, window=None):
        target = self.path()
        window = window or (0, 0, *size)
        self.add("resize", self.source(image), target, channels_of(image), *image.size, *map(repr, box), *size, *window)
        return target, window[2:]

    def change(self, name, amount, image):
        target = self.path()
        self.add("change", name, repr(float(amount)), self.source(image), target, channels_of(image), *image.size)
        return target, image.size

    def draws(self, name, *words):
        target = self.path()
        self.add(name, target, OUR_DRAWS, *words)
        return target

    def carry_out(self):
        file = self.path()
        file.write_text("\n".join(self.lines) + "\n")
        job = jobs.run([jobs.program("resize_program"), file])
        if job.exit_code != 0:
            raise AssertionError(f"resize_program failed: {job}")


def difference(result, expected):
    """By how much a result of resize_program differs from a picture of Pillow's, at most."""
    path, (width, height) = result
    expected = numpy.asarray(expected).reshape(height, width, -1).astype(int)
    return int(abs(numpy.frombuffer(path.read_bytes(), numpy.uint8).reshape(expected.shape) - expected).max())


def float32(value):
    """As Pillow rounds the edges of a box."""
    return float(numpy.float32(value))


def distance(ours, theirs):
    """Kolmogorov and Smirnov's for two samples, in units in which one pair of equal distributions in a million is
    farther than 2.69 apart: sqrt(log(2e6) / 2)."""
    ours, theirs = numpy.sort(ours), numpy.sort(theirs)
    places = numpy.concatenate([ours, theirs])
    shares = [numpy.searchsorted(sample, places, side="right") / len(sample) for sample in (ours, theirs)]
    return abs(shares[0] - shares[1]).max() * (len(ours) * len(theirs) / (len(ours) + len(theirs))) ** 0.5


class Parity(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch.set_num_threads(1)
        self.commands = Commands(jobs.temporary_directory(self))

    def require_equal_distributions(self, names, ours, theirs):
        for name, our, their in zip(names, ours, theirs, strict=True):
            with self.subTest(name):
                self.assertLess(distance(our, their), 2.69)


class Resize(Parity):
    def test_equals_pillow_within_one(self):
        """Pillow 13 begins with the vertical pass where that is cheaper; two calls, one for each direction, keep it to
        the order that we and former versions have, and then all bits agree."""
        generator = random.Random(1)
        cases = []
        for seed in range(CASES):
            width, height = generator.randint(1, 300), generator.randint(1, 300)
            size = generator.randint(1, 150), generator.randint(1, 150)
            box = (0.0, 0.0, float(width), float(height))
            if seed % 2:
                box = tuple(map(float32, (generator.uniform(0, 0.4) * width, generator.uniform(0, 0.4) * height,
                                          generator.uniform(0.6, 1) * width, generator.uniform(0.6, 1) * height)))
            image = random_image(width, height, 3 if seed % 4 else 1, seed)
            cases.append((image, box, size, self.commands.resize(image, box, size)))
        self.commands.carry_out()

        largest = equal = 0
        for image, box, size, result in cases:
            left, top, right, bottom = box
            with self.subTest(source=image.size, box=box, target=size):
                rows = image.resize((size[0], image.height), Image.BILINEAR, box=(left, 0, right, image.height))
                in_turn = rows.resize(size, Image.BILINEAR, box=(0, top, size[0], bottom))
                self.assertEqual(difference(result, in_turn), 0)
                found = difference(result, image.resize(size, Image.BILINEAR, box=box))
                self.assertLessEqual(found, 1)
                largest, equal = max(largest, found), equal + (found == 0)
        print(f"resize against Pillow {PIL.__version__}: largest difference {largest}, {equal} of {CASES} equal")

    def test_evaluates_as_torchvision(self):
        """Resize and CenterCrop, of which only the crop is computed."""
        image = random_image(250, 187, 3, 1)
        expected = functional.center_crop(functional.resize(image, [128]), [112])
        size = functional.resize(image, [128]).size
        window = (round((size[0] - 112) / 2), round((size[1] - 112) / 2), 112, 112)
        result = self.commands.resize(image, (0.0, 0.0, 250.0, 187.0), size, window)
        self.commands.carry_out()
        self.assertLessEqual(difference(result, expected), 1)


def affine(image, translate=(0, 0), shear=(0.0, 0.0), center=None):
    degrees = [math.degrees(math.atan(amount)) for amount in shear]
    return functional.affine(image, angle=0.0, translate=list(translate), scale=1.0, shear=degrees, center=center)


class Change(Parity):
    FACTORS = (0.0, 0.01, 0.3, 0.77, 1.0, 1.25, 1.99)
    CHANGES = {
        "brightness": (functional.adjust_brightness, FACTORS),
        "contrast": (functional.adjust_contrast, FACTORS),
        "saturation": (functional.adjust_saturation, FACTORS),
        "sharpness": (functional.adjust_sharpness, FACTORS),
        "hue": (functional.adjust_hue, (-0.5, -0.1, 0.003, 0.25, 0.5)),
        "posterize": (lambda image, bits: functional.posterize(image, int(bits)), (1, 4, 8)),
        "solarize": (functional.solarize, (0.0, 8.5, 128.0, 255.0)),
        "autocontrast": (lambda image, _: functional.autocontrast(image), (0,)),
        "equalize": (lambda image, _: functional.equalize(image), (0,)),
        "shear_x": (lambda image, amount: affine(image, shear=(amount, 0.0), center=[0, 0]), (-0.99, 0.132, 0.3)),
        "shear_y": (lambda image, amount: affine(image, shear=(0.0, amount), center=[0, 0]), (-0.99, 0.132, 0.3)),
        "translate_x": (lambda image, pixels: affine(image, translate=(pixels, 0)), (-31, 0, 5, 200)),
        "translate_y": (lambda image, pixels: affine(image, translate=(0, pixels)), (-31, 0, 5, 200)),
        "rotate": (functional.rotate, (-135.0, -90.0, -4.5, 0.0, 13.7, 45.0, 90.0, 180.0)),
    }

    def test_equals_torchvision_on_pil_images(self):
        images = [random_image(83, 61, 3, 1), random_image(64, 64, 3, 2), random_image(50, 70, 1, 3)]
        # Few values, in the middle: what autocontrast and equalize have something to do with.
        images.append(images[0].point([90 + value // 4 for value in range(256)] * 3))
        cases = [(name, amount, image, self.commands.change(name, amount, image))
                 for name, (_, amounts) in self.CHANGES.items() for amount in amounts for image in images]
        self.commands.carry_out()
        for name, amount, image, result in cases:
            with self.subTest(name, amount=amount, size=image.size, mode=image.mode):
                self.assertEqual(difference(result, self.CHANGES[name][0](image, amount)), 0)


class Draws(Parity):
    def columns(self, name, *words):
        target = self.commands.draws(name, *words)
        self.commands.carry_out()
        return numpy.loadtxt(target).T

    def test_random_resized_crops_are_distributed_as_torchvision_s(self):
        left, top, width, height = self.columns("draw_crops", 500, 375)
        picture = torch.empty(1, 375, 500)
        theirs = numpy.array([transforms.RandomResizedCrop.get_params(picture, [0.08, 1.0], [3 / 4, 4 / 3])
                              for _ in range(THEIR_DRAWS)]).T
        their_top, their_left, their_height, their_width = theirs
        self.require_equal_distributions(
            ("left", "top", "width", "height", "area", "ratio"),
            (left, top, width, height, width * height, width / height),
            (their_left, their_top, their_width, their_height, their_width * their_height, their_width / their_height))

    def test_colour_jitters_are_distributed_as_torchvision_s(self):
        ours = self.columns("draw_jitters", 0.4, 1.5, 0.2, 0.1)
        theirs = transforms.ColorJitter(0.4, 1.5, 0.2, 0.1)
        draws = [theirs.get_params(theirs.brightness, theirs.contrast, theirs.saturation, theirs.hue)
                 for _ in range(THEIR_DRAWS)]
        their_orders = numpy.array([order.tolist() for order, *_ in draws]).T
        their_factors = numpy.array([factors for _, *factors in draws]).T
        places = 4 ** numpy.arange(4)
        self.require_equal_distributions(
            ("order", "brightness", "contrast", "saturation", "hue"),
            (places @ ours[:4], *ours[4:]), (places @ their_orders, *their_factors))

    def test_trivial_augments_are_distributed_as_torchvision_s(self):
        operation, magnitude = self.columns("draw_augments")
        names = list(transforms.TrivialAugmentWide()._augmentation_space(31))
        theirs = []
        with mock.patch.object(autoaugment, "_apply_op") as apply:
            apply.side_effect = lambda _, name, size, **__: theirs.append((names.index(name), size))
            augment, image = transforms.TrivialAugmentWide(), Image.new("RGB", (2, 2))
            for _ in range(THEIR_DRAWS):
                augment(image)
        their_operation, their_magnitude = numpy.array(theirs).T
        # Operation and magnitude as one number; the last bits of torch.linspace's magnitudes are rounded away.
        self.require_equal_distributions(
            ("operation and magnitude",), (1000 * operation + magnitude.round(4),),
            (1000 * their_operation + their_magnitude.round(4),))


if __name__ == "__main__":
    jobs.require_programs("resize_program")
    unittest.main()
