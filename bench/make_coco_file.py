"""Writes a COCO instances file of a given size, the same for the same options.

Counts follow instances_train2017.json: 7 objects an image, 1.3 polygons an object, of 6 to 60 points with two decimals,
1.2 percent of crowds as run lengths, and ids that are not sorted.
"""

import argparse
import json
import os
import random
import tempfile

CATEGORIES = [number for number in range(1, 91) if number not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]
OBJECTS_OF_AN_IMAGE = 7


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="where to write it")
    parser.add_argument("--megabytes", type=float, default=100, help="about how long it gets (default: 100)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.megabytes <= 0:
        parser.error("--megabytes must be positive")
    return options


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def polygon(rng, left, top, width, height):
    points = min(60, max(6, round(rng.lognormvariate(2.9, 0.6))))
    draw = rng.random
    coordinates = []
    for _ in range(points):
        coordinates.append(round(left + width * draw(), 2))
        coordinates.append(round(top + height * draw(), 2))
    return coordinates


def runs(rng, height, width):
    """Run lengths of a crowd that add up to the picture."""
    left = height * width
    counts = []
    while left > 2000:
        counts.append(rng.randint(1, 1000))
        left -= counts[-1]
    return [*counts, left]


def annotation(rng, number, image):
    image_height, image_width = image["height"], image["width"]
    width, height = round(rng.uniform(8, image_width / 2), 2), round(rng.uniform(8, image_height / 2), 2)
    left, top = round(rng.uniform(0, image_width - width), 2), round(rng.uniform(0, image_height - height), 2)
    crowd = rng.random() < 0.012
    if crowd:
        segmentation = {"counts": runs(rng, image_height, image_width), "size": [image_height, image_width]}
    else:
        segmentation = [polygon(rng, left, top, width, height) for _ in range(1 + (rng.random() < 0.3))]
    return {
        "segmentation": segmentation,
        "area": round(width * height * rng.uniform(0.3, 0.9), 4),
        "iscrowd": int(crowd),
        "image_id": image["id"],
        "bbox": [left, top, width, height],
        "category_id": rng.choice(CATEGORIES),
        "id": 900100000000 + number if crowd else number,
    }


def make_image(rng, number):
    return {
        "license": rng.randint(1, 8),
        "file_name": f"{number:012}.jpg",
        "coco_url": f"http://images.cocodataset.org/train2017/{number:012}.jpg",
        "height": rng.choice([333, 375, 427, 480, 500, 612, 640]),
        "width": rng.choice([333, 375, 427, 480, 500, 612, 640]),
        "date_captured": "2013-11-14 16:28:13",
        "flickr_url": f"http://farm{rng.randint(1, 9)}.staticflickr.com/{rng.randint(1000, 9999)}/{rng.getrandbits(40)}_z.jpg",
        "id": number,
    }


def write(options, file):
    """Annotations come first, as their number follows from the size; images are those that they need."""
    rng = random.Random(options.seed)
    size = options.megabytes * 1e6
    images = []
    image_bytes = 0
    numbers = iter(rng.sample(range(1, 600000), 300000)) if size < 1e9 else iter(range(1, 1 << 40))
    file.write('{"info":{"description":"made by make_coco_file.py","year":2017},"licenses":[],"annotations":[')
    number = 0
    while file.tell() + image_bytes < size:
        images.append(make_image(rng, next(numbers)))
        image_bytes += len(compact(images[-1])) + 1
        for _ in range(OBJECTS_OF_AN_IMAGE):
            number += 1
            # Neighbours in the file belong to different images, as in COCO's own files.
            image = images[rng.randrange(max(0, len(images) - 1000), len(images))]
            file.write(("," if number > 1 else "") + compact(annotation(rng, number, image)))
    file.write('],"categories":')
    file.write(compact([{"supercategory": "thing", "id": each, "name": f"category {each}"} for each in CATEGORIES]))
    file.write(',"images":')
    file.write(compact(images))
    file.write("}")
    return len(images), number


def main():
    options = parse_arguments()
    folder = os.path.dirname(os.path.abspath(options.file))
    # Complete or not there at all.
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=folder, delete=False) as file:
        try:
            images, annotations = write(options, file)
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, options.file)
    size = os.path.getsize(options.file)
    print(f"{options.file}: {size} bytes, {images} images, {annotations} annotations")


if __name__ == "__main__":
    main()
