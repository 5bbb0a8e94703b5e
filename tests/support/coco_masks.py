"""The two forms in which COCO files have the runs of a mask, for tests. Needs numpy and pycocotools."""

import numpy as np
import pycocotools.mask


def compressed(mask):
    return pycocotools.mask.encode(np.asfortranarray(mask))["counts"].decode()


def counts_of(mask):
    """The runs of a mask, zeros first."""
    pixels = mask.flatten(order="F")
    borders = np.flatnonzero(np.diff(pixels)) + 1
    runs = np.diff(np.concatenate([[0], borders, [pixels.size]])).tolist()
    return [0, *runs] if pixels[0] else runs
