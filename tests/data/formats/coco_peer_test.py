"""COCO annotations, CSV and JSON lines against pycocotools and Python's own modules, on random files.

Runs itself with the project's Python, which has pycocotools.
"""

import contextlib
import csv
import io
import json
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

FILES = 12
NAMES = ["", "a.jpg", "ünï/中文 🙂.jpg", 'quote " and \\ slash', "line\nbreak\ttab", "}, {", "[[1, 2]]", "\u2028\x7f"]

jobs.require_packages("numpy", "pycocotools")

import numpy as np
import pycocotools.mask
from coco_masks import compressed, counts_of
from pycocotools.coco import COCO


def shuffled(rng, members):
    """The same object with its keys in another order, and now and then one more."""
    items = list(members.items())
    if rng.random() < 0.3:
        items.append((rng.choice(["extra", "license", "ignored"]), rng.choice([None, 1.5, "}", [[{"id": 1}]], {}])))
    rng.shuffle(items)
    return dict(items)


def coordinate(rng, size):
    value = rng.uniform(-3, size + 3)
    return rng.choice([lambda: round(value, 2), lambda: round(value, 1), lambda: round(value), lambda: value])()


def polygon(rng, height, width):
    points = rng.randint(3, 12)
    return [coordinate(rng, size) for _ in range(points) for size in (width, height)]


def random_mask(rng, height, width):
    mask = np.zeros((height, width), dtype=np.uint8)
    for _ in range(rng.randint(0, 4)):
        top, left = rng.randrange(height), rng.randrange(width)
        mask[top:top + rng.randint(1, height), left:left + rng.randint(1, width)] = rng.randint(0, 1)
    return mask


def annotation(rng, number, image, categories):
    height, width = image["height"], image["width"]
    crowd = int(rng.random() < 0.2)
    kind = rng.choice(["polygons", "polygons", "string", "counts"])
    if kind == "polygons":
        segmentation = [polygon(rng, height, width) for _ in range(rng.randint(1, 3))]
    else:
        mask = random_mask(rng, height, width)
        counts = compressed(mask) if kind == "string" else counts_of(mask)
        segmentation = shuffled(rng, {"size": [height, width], "counts": counts})
    box = [coordinate(rng, width), coordinate(rng, height), abs(coordinate(rng, width)), abs(coordinate(rng, height))]
    if rng.random() < 0.1:
        box[rng.choice([2, 3])] = 0
    return shuffled(rng, {
        "id": number,
        "image_id": image["id"],
        "category_id": rng.choice(categories)["id"],
        "bbox": box,
        "area": rng.choice([round(rng.uniform(0, 500), 4), rng.randint(0, 500)]),
        "iscrowd": crowd,
        "segmentation": segmentation,
    })


def random_instances(rng):
    images = [shuffled(rng, {"id": number, "width": rng.randint(1, 40), "height": rng.randint(1, 40),
                             "file_name": rng.choice(NAMES)})
              for number in rng.sample(range(1, 10**6), rng.randint(1, 8))]
    categories = [shuffled(rng, {"id": number, "name": rng.choice(NAMES), "supercategory": rng.choice(NAMES)})
                  for number in rng.sample(range(1, 91), rng.randint(1, 6))]
    numbers = rng.sample(range(1, 10**12), rng.randint(0, 40))
    annotations = [annotation(rng, number, rng.choice(images), categories) for number in numbers]
    return shuffled(rng, {"images": images, "categories": categories, "annotations": annotations})


def write_json(rng, path, value):
    style = rng.choice([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])
    path.write_text(json.dumps(value, **style), encoding="utf-8")


def hexadecimal(text):
    return text.encode("utf-8").hex() or "-"


class CocoPeer(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def output(self, *words):
        job = jobs.run([jobs.program("coco_program"), *words])
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        return [line.split(" ") for line in job.stdout.splitlines()]

    def random_files(self):
        for seed in range(FILES):
            rng = random.Random(seed)
            path = self.folder / f"instances_{seed}.json"
            write_json(rng, path, random_instances(rng))
            with contextlib.redirect_stdout(io.StringIO()):
                coco = COCO(str(path))
            yield rng, path, coco

    def require_objects(self, coco, lines, score=None):
        """Every annotation in the order of images by id, in an image in the order of the file."""
        expected = [each for image in sorted(coco.imgs) for each in coco.imgToAnns.get(image, [])]
        self.assertEqual([int(line[1]) for line in lines], [each["id"] for each in expected])
        for line, each in zip(lines, expected):
            self.assertEqual([int(word) for word in line[2:5]],
                             [each["image_id"], each["category_id"], each["iscrowd"]])
            self.assertEqual(float(line[5]), each["area"])
            self.assertEqual(float(line[6]), each.get("score", 1))
            self.assertEqual([float(word) for word in line[7:11]], each["bbox"])
        return expected

    def test_instances_are_read_as_pycocotools_reads_them(self):
        for rng, path, coco in self.random_files():
            pixels = self.folder / "pixels"
            lines = self.output("instances", path, pixels)
            with self.subTest(path=path.name):
                images = [line[1:] for line in lines if line[0] == "image"]
                self.assertEqual(images, [[str(each["id"]), str(each["width"]), str(each["height"]),
                                           hexadecimal(each["file_name"])]
                                          for _, each in sorted(coco.imgs.items())])
                categories = [line[1:] for line in lines if line[0] == "category"]
                self.assertEqual(categories, [[str(each["id"]), hexadecimal(each["name"]),
                                               hexadecimal(each["supercategory"])]
                                              for _, each in sorted(coco.cats.items())])
                annotations = [line for line in lines if line[0] == "annotation"]
                expected = self.require_objects(coco, annotations)
                self.require_masks(coco, expected, annotations, pixels.read_bytes())
                trainable = [int(line[1]) for line in lines if line[0] == "trainable"]
                self.assertEqual(trainable, [image for image in sorted(coco.imgs)
                                             if any(not each["iscrowd"] for each in coco.imgToAnns.get(image, []))])

    def require_masks(self, coco, expected, lines, pixels):
        offset = 0
        for each, line in zip(expected, lines):
            runs = coco.annToRLE(each)
            counts = runs["counts"]
            encoded = counts.decode() if isinstance(counts, bytes) else counts
            self.assertEqual(line[11], encoded.encode().hex(), each)
            self.assertEqual(int(line[12]), int(pycocotools.mask.area(runs)))
            self.assertEqual([float(word) for word in line[13:17]], pycocotools.mask.toBbox(runs).tolist())
            mask = coco.annToMask(each).flatten(order="F")
            ours = np.frombuffer(pixels, dtype=np.uint8, count=mask.size, offset=offset)
            self.assertTrue(np.array_equal(ours, mask), each)
            offset += mask.size
        self.assertEqual(offset, len(pixels))

    def test_overlaps_are_those_of_pycocotools(self):
        for _, path, coco in self.random_files():
            lines = iter(self.output("iou", path))
            for image in sorted(coco.imgs):
                annotations = coco.imgToAnns.get(image, [])
                if not annotations:
                    continue
                masks = [coco.annToRLE(each) for each in annotations]
                crowds = [each["iscrowd"] for each in annotations]
                boxes = np.array([each["bbox"] for each in annotations], dtype=np.double)
                of_masks = pycocotools.mask.iou(masks, masks, crowds)
                with np.errstate(all="ignore"):
                    of_boxes = pycocotools.mask.iou(boxes, boxes, crowds)
                for row, detection in enumerate(annotations):
                    for column, truth in enumerate(annotations):
                        line = next(lines)
                        self.assertEqual([int(word) for word in line[1:3]], [detection["id"], truth["id"]])
                        self.assertEqual(float(line[3]), of_masks[row, column], (path, line))
                        self.assertEqual(float(line[4]), of_boxes[row, column], (path, line))
            self.assertIsNone(next(lines, None))

    def test_results_are_read_as_loadres_reads_them(self):
        for rng, path, coco in self.random_files():
            results = []
            for _ in range(rng.randint(1, 30)):
                image = rng.choice(list(coco.imgs.values()))
                results.append({"image_id": image["id"], "category_id": rng.choice(list(coco.cats)),
                                "bbox": [coordinate(rng, 30) for _ in range(4)], "score": rng.random()})
            boxes = self.folder / "boxes.json"
            write_json(rng, boxes, [shuffled(rng, each) for each in results])
            for each in results:
                image = coco.imgs[each["image_id"]]
                mask = random_mask(rng, image["height"], image["width"])
                del each["bbox"]
                each["segmentation"] = {"size": list(mask.shape), "counts": compressed(mask)}
            masks = self.folder / "masks.json"
            write_json(rng, masks, [shuffled(rng, each) for each in results])
            for file in (boxes, masks):
                with self.subTest(path=path.name, results=file.name):
                    with contextlib.redirect_stdout(io.StringIO()):
                        loaded = coco.loadRes(str(file))
                    for each in loaded.anns.values():
                        each["area"] = float(each["area"])
                        each["bbox"] = [float(value) for value in each["bbox"]]
                    self.require_objects(loaded, self.output("results", file, path))

    def test_written_results_are_those_that_loadres_reads(self):
        for rng, path, coco in self.random_files():
            results = []
            for _ in range(20):
                image = rng.choice(list(coco.imgs.values()))
                mask = random_mask(rng, image["height"], image["width"])
                results.append({"image_id": image["id"], "category_id": rng.choice(list(coco.cats)),
                                "bbox": [coordinate(rng, 30) for _ in range(4)], "score": rng.random(),
                                "segmentation": {"size": list(mask.shape), "counts": compressed(mask)}})
            results.sort(key=lambda each: each["image_id"])
            file, written = self.folder / "results.json", self.folder / "written.json"
            write_json(rng, file, results)
            for keys in ("both", "bbox", "segmentation"):
                self.output("rewrite", file, path, keys, written)
                left_out = {"bbox": {"segmentation"}, "segmentation": {"bbox"}, "both": set()}[keys]
                self.assertEqual(json.loads(written.read_text()),
                                 [{name: each[name] for name in each if name not in left_out} for each in results])
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(len(coco.loadRes(str(written)).anns), len(results))

    def test_csv_rows_are_those_of_the_csv_module(self):
        for seed in range(FILES):
            rng = random.Random(seed)
            end = rng.choice(["\n", "\r\n"])
            pieces = ['"', ",", ";", "\t", "\n", " ", "x", "é", "🙂", "'", "\\", *(["\r"] if end == "\r\n" else [])]
            separator = rng.choice([",", ";", "\t"])
            columns = rng.randint(2, 5)
            rows = [["".join(rng.choices(pieces, k=rng.randint(0, 8))) for _ in range(columns)] for _ in range(60)]
            path = self.folder / f"rows_{seed}.csv"
            with open(path, "w", encoding=rng.choice(["utf-8", "utf-8-sig"]), newline="") as file:
                quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
                csv.writer(file, delimiter=separator, lineterminator=end, quoting=quoting).writerows(rows)
            with open(path, encoding="utf-8-sig", newline="") as file:
                expected = [[hexadecimal(field) for field in row] for row in csv.reader(file, delimiter=separator)]
            lines = [line[:-1] for line in self.output("csv", path, separator)]
            self.assertEqual(lines, expected, path)

    def test_json_lines_are_those_of_the_json_module(self):
        for seed in range(FILES):
            rng = random.Random(seed)
            rows = [shuffled(rng, {"text": rng.choice(NAMES) * rng.randint(1, 3), "label": rng.randint(-9, 9)})
                    for _ in range(40)]
            path = self.folder / f"rows_{seed}.jsonl"
            blank = rng.choice(["", "\n", " \r\n"])
            path.write_bytes("".join(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n" + blank
                                     for row in rows).encode("utf-8"))
            self.assertEqual(self.output("lines", path, "text"), [[hexadecimal(row["text"])] for row in rows])
            self.assertEqual(self.output("lines", path, "label"), [[hexadecimal(str(row["label"]))] for row in rows])


if __name__ == "__main__":
    jobs.require_programs("coco_program")
    unittest.main()
