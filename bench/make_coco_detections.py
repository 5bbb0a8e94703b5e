"""Writes a COCO instances file and detections of its objects, the same for the same options, for the benchmarks of the
evaluation. Needs pycocotools.

As in val2017 an image has 7 objects, of few categories and of all sizes, and a hundredth of them are crowds. Most
detections are near an object, with scores that repeat.
"""

import argparse
import json
import math
import pathlib
import random
import sys

CATEGORIES = [number for number in range(1, 91) if number not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)]
OBJECTS_OF_AN_IMAGE = 7


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="for instances.json and results.json")
    parser.add_argument("--images", type=int, default=5000, help="(default: 5000)")
    parser.add_argument("--detections", type=int, default=36, help="of each image (default: 36)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.images < 1 or options.detections < 1:
        parser.error("--images and --detections must be at least 1")
    return options


def outline(rng, middle, radii, points):
    """Corners of a polygon around an ellipse."""
    coordinates = []
    for number in range(points):
        angle = 2 * math.pi * number / points
        share = rng.uniform(0.75, 1)
        coordinates += [round(middle[0] + radii[0] * share * math.cos(angle), 2),
                        round(middle[1] + radii[1] * share * math.sin(angle), 2)]
    return coordinates


def box_of(polygon):
    left, top = min(polygon[::2]), min(polygon[1::2])
    return [left, top, round(max(polygon[::2]) - left, 2), round(max(polygon[1::2]) - top, 2)]


def random_ellipse(rng, image):
    radii = []
    for side in (image["width"], image["height"]):
        radii.append(min(math.exp(rng.uniform(math.log(6), math.log(160))), side / 2))
    middle = [rng.uniform(radius, side - radius) for radius, side in zip(radii, (image["width"], image["height"]))]
    return middle, radii


def jittered(rng, ellipse):
    middle, radii = ellipse
    return ([each + rng.gauss(0, 0.1) * radius for each, radius in zip(middle, radii)],
            [radius * rng.uniform(0.8, 1.25) for radius in radii])


def random_image(rng, number):
    width, height = (640, 480) if rng.random() < 0.7 else (480, 640)
    return {"id": number, "width": width, "height": height, "file_name": f"{number:012}.jpg"}


def make_image(rng, image, detections):
    """The annotations, without ids, and results of an image."""
    from pycocotools import mask

    size = image["height"], image["width"]
    categories = rng.sample(CATEGORIES, 3)
    objects = [(random_ellipse(rng, image), rng.choice(categories)) for _ in range(OBJECTS_OF_AN_IMAGE)]
    annotations = []
    for ellipse, category in objects:
        polygon = outline(rng, *ellipse, rng.randint(10, 40))
        runs = mask.frPyObjects([polygon], *size)[0]
        crowd = rng.random() < 0.01
        annotations.append({
            "segmentation": {"size": list(size), "counts": runs["counts"].decode()} if crowd else [polygon],
            "area": float(mask.area(runs)), "iscrowd": int(crowd), "image_id": image["id"], "bbox": box_of(polygon),
            "category_id": category})
    results = []
    for _ in range(detections):
        ellipse, category = rng.choice(objects)
        polygon = outline(rng, *jittered(rng, ellipse), rng.randint(20, 60))
        runs = mask.frPyObjects([polygon], *size)[0]
        results.append({
            "image_id": image["id"], "category_id": category if rng.random() < 0.7 else rng.choice(CATEGORIES),
            "score": round(rng.random(), 3), "bbox": box_of(polygon),
            "segmentation": {"size": list(size), "counts": runs["counts"].decode()}})
    return annotations, results


def make_instances(rng, count, detections):
    """What the two files contain."""
    images, annotations, results = [], [], []
    for number in range(1, count + 1):
        images.append(random_image(rng, number))
        of_image, found = make_image(rng, images[-1], detections)
        annotations += [each | {"id": len(annotations) + place} for place, each in enumerate(of_image, 1)]
        results += found
    categories = [{"id": number, "name": f"category {number}"} for number in CATEGORIES]
    return {"images": images, "annotations": annotations, "categories": categories}, results


def main():
    options = parse_arguments()
    instances, results = make_instances(random.Random(options.seed), options.images, options.detections)
    images, annotations = instances["images"], instances["annotations"]
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("instances.json", instances), ("results.json", results)):
        with open(options.folder / name, "w", encoding="ascii") as file:
            json.dump(value, file, separators=(",", ":"))
    print(f"{options.folder}: {len(images)} images, {len(annotations)} annotations, {len(results)} detections",
          file=sys.stderr)


if __name__ == "__main__":
    main()
