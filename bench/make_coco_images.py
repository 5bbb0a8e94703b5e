"""Writes a COCO folder of synthetic photographs, the same for the same options, for the benchmark of the loader. Needs
pycocotools.

images/ has JPEGs of 640 x 480 and 480 x 640 pixels (see make_photographs.py), instances.json their objects (see
make_coco_detections.py): 7 an image, of 10 to 40 points, a hundredth of them crowds as run lengths.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

from make_coco_detections import make_instances
from make_photographs import photograph, save


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where to write it; must not exist")
    parser.add_argument("--images", type=int, default=128, help="how many (default: 128)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.images < 1:
        parser.error("--images must be at least 1")
    if options.folder.exists():
        parser.error(f"{options.folder} exists already")
    return options


def write(folder, count, seed):
    instances, _ = make_instances(random.Random(seed), count, detections=0)
    with open(folder / "instances.json", "w", encoding="ascii") as file:
        json.dump(instances, file, separators=(",", ":"))
    (folder / "images").mkdir()
    for image in instances["images"]:
        save(photograph(seed, image["id"], (image["width"], image["height"])), folder / "images" / image["file_name"])
    return instances


def main():
    options = parse_arguments()
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    # Complete or not there at all.
    unfinished = pathlib.Path(tempfile.mkdtemp(dir=options.folder.parent))
    try:
        instances = write(unfinished, options.images, options.seed)
        unfinished.chmod(0o755)
        os.rename(unfinished, options.folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    print(f"{options.folder}: {len(instances['images'])} images, {len(instances['annotations'])} annotations",
          file=sys.stderr)


if __name__ == "__main__":
    main()
