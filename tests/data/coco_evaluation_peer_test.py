"""coco_evaluate against pycocotools on random sets: all numbers, those of each category, and on one and two threads.

Runs itself with the project's Python, which has pycocotools.
"""

import contextlib
import copy
import io
import json
import math
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

SETS = 100
TOLERANCE = 1e-12
USAGE, ENVIRONMENT = 2, 3
SEED_VARIABLE = "LIBTRAIN_TEST_SEED"

jobs.require_packages("numpy", "pycocotools")

import numpy as np
from coco_masks import compressed, counts_of
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


class RandomSet:
    """A ground truth and detections that are near its objects. On a coarse grid there are ties of overlaps, and with
    few scores ties of scores."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        rng = self.rng
        self.coarse = rng.random() < 0.5
        self.side = rng.choice([24, 60, 200])  # of the images, at most
        self.scores = rng.choice([[0.5], [0.1, 0.5, 0.9], None])
        self.result_kind = rng.choice(["bbox", "segmentation", "both", "first without box"])
        self.images = [{"id": number, "height": rng.randint(10, self.side), "width": rng.randint(10, self.side),
                        "file_name": ""} for number in rng.sample(range(0, 60), rng.randint(1, 8))]
        self.categories = [{"id": number, "name": f"name {number}"}
                           for number in rng.sample(range(0, 91), rng.randint(1, 4))]
        self.annotated = rng.sample(self.categories, rng.randint(1, len(self.categories)))
        self.annotations = []
        for image in self.images:
            for _ in range(rng.choice([0, 0, 1, 3, 6, 12])):
                self.annotations.append(self.annotation(image))
        first = rng.choice([0, 1, 1000])
        ids = list(range(first, first + len(self.annotations)))
        if rng.random() < 0.2:  # repeated ids, zeros among them
            ids = [rng.choice([0, 0, number, number // 2]) for number in ids]
        for annotation, number in zip(self.annotations, ids):
            annotation["id"] = number
        rng.shuffle(self.annotations)
        self.results = []
        for image in self.images:
            for _ in range(rng.choice([0, 0, 2, 9, 30])):
                self.results.append(self.result(image))
        if rng.random() < 0.2:  # more than count
            image, category = rng.choice(self.images), rng.choice(self.annotated)
            self.results += [self.result(image) | {"category_id": category["id"]} for _ in range(150)]
        rng.shuffle(self.results)
        if self.results and rng.random() < 0.3:
            known = {each["id"] for each in self.categories}
            self.results += [each | {"category_id": next(number for number in range(100) if number not in known)}
                             for each in rng.sample(self.results, min(5, len(self.results)))]
        if self.results and self.result_kind == "first without box":
            del self.results[0]["bbox"]

    def number(self, least, most):
        if self.coarse:
            return 4 * self.rng.randint(math.floor(least / 4), math.ceil(most / 4))
        return round(self.rng.uniform(least, most), 2)

    def box(self, image):
        return [self.number(-4, image["width"] - 4), self.number(-4, image["height"] - 4),
                self.number(0, image["width"] / 2), self.number(0, image["height"] / 2)]

    def polygon(self, box):
        """Corners of the box or, on the fine grid, points within and near it."""
        left, top, width, height = box
        if self.coarse:
            return [left, top, left + width, top, left + width, top + height, left, top + height]
        return [coordinate for _ in range(self.rng.randint(3, 9))
                for coordinate in (round(left + width * self.rng.uniform(-0.1, 1.1), 2),
                                   round(top + height * self.rng.uniform(-0.1, 1.1), 2))]

    def mask(self, image, box):
        mask = np.zeros((image["height"], image["width"]), dtype=np.uint8)
        left, top, width, height = (round(each) for each in box)
        mask[max(0, top):max(0, top + height), max(0, left):max(0, left + width)] = 1
        if not self.coarse:
            mask &= np.frombuffer(self.rng.randbytes(mask.size), dtype=np.uint8).reshape(mask.shape) < 200
        return mask

    def annotation(self, image):
        rng = self.rng
        box = self.box(image)
        kind = rng.choice(["polygons", "polygons", "string", "counts"])
        if kind == "polygons":
            segmentation = [self.polygon(box) for _ in range(rng.randint(1, 2))]
        else:
            mask = self.mask(image, box)
            segmentation = {"size": list(mask.shape),
                            "counts": compressed(mask) if kind == "string" else counts_of(mask)}
        area = rng.choice([box[2] * box[3], 0, 32**2, 96**2, 1023.9, 9216.1, rng.uniform(0, 2e4)])
        return {"image_id": image["id"], "category_id": rng.choice(self.annotated)["id"], "bbox": box, "area": area,
                "iscrowd": int(rng.random() < 0.2), "segmentation": segmentation}

    def result(self, image):
        rng = self.rng
        near = [each for each in self.annotations if each["image_id"] == image["id"]]
        if near and rng.random() < 0.7:
            like = rng.choice(near)
            box = [each + rng.choice([0, 0, 4 if self.coarse else rng.gauss(0, 2)]) for each in like["bbox"]]
            box[2:] = [max(0, each) for each in box[2:]]
            category = like["category_id"]
        else:
            box = self.box(image)
            category = rng.choice(self.categories)["id"]
        result = {"image_id": image["id"], "category_id": category,
                  "score": rng.choice(self.scores) if self.scores else rng.random()}
        if self.result_kind != "segmentation":
            result["bbox"] = box
        if self.result_kind != "bbox":
            other = rng.random() < 0.03
            mask = self.mask(image | {"height": image["height"] + 1} if other else image, box)
            result["segmentation"] = {"size": list(mask.shape), "counts": compressed(mask)}
        return result

    def instances(self):
        return {"images": self.images, "categories": self.categories, "annotations": self.annotations}


def expected_stats(instances, results, kind):
    """pycocotools' 12 numbers, and those of each category."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = copy.deepcopy(instances)
        truth.createIndex()
        if results:
            found = truth.loadRes(copy.deepcopy(results))
        else:  # loadRes looks at the first one
            found = COCO()
            found.dataset = {"images": instances["images"], "categories": instances["categories"], "annotations": []}
            found.createIndex()
        evaluation = COCOeval(truth, found, kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]

    def mean(values):
        return np.mean(values) if values.max() > -1 else -1

    of_categories = {}
    for number, category in enumerate(evaluation.params.catIds):
        of_areas = [precision[:, :, number, area, 2] for area in range(4)]
        parts = [of_areas[0], of_areas[0][0], of_areas[0][5], *of_areas[1:],
                 *(recall[:, number, 0, most] for most in range(3)),
                 *(recall[:, number, area, 2] for area in (1, 2, 3))]
        of_categories[category] = [mean(part) for part in parts]
    return evaluation.stats.tolist(), of_categories


class CocoEvaluation(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.truth = self.folder / "instances.json"
        self.results = self.folder / "results.json"

    def run_program(self, *words):
        return jobs.run([jobs.program("coco_evaluate"), "--ground-truth", self.truth, "--detections", self.results,
                         *words])

    def write(self, instances, results):
        self.truth.write_text(json.dumps(instances))
        self.results.write_text(json.dumps(results))

    def stats(self, kind, threads):
        # Hundreds of calls: jobs.run() takes longer than they do.
        done = subprocess.run([jobs.program("coco_evaluate"), "--ground-truth", self.truth, "--detections",
                               self.results, "--type", kind, "--json", "--per-category", "--threads", str(threads)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        return found["stats"], {each["id"]: each["stats"] for each in found["categories"]}

    def require_equal(self, found, expected):
        self.assertEqual(len(found), 12)
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            self.assertLessEqual(abs(ours - theirs), TOLERANCE, f"number {number}: {found} instead of {expected}")

    def require_parity(self, instances, results, reference=None):
        """Returns the numbers for masks."""
        self.write(instances, results)
        for kind in ("bbox", "segm"):
            expected, of_categories = expected_stats(instances, results if reference is None else reference, kind)
            found = self.stats(kind, threads=1)
            self.require_equal(found[0], expected)
            self.assertEqual(found[1].keys(), of_categories.keys())
            for category, stats in found[1].items():
                self.require_equal(stats, of_categories[category])
            self.assertEqual(self.stats(kind, threads=2), found)
        return found[0]

    def test_random_sets_have_the_numbers_of_pycocotools(self):
        seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 32))
        matched = 0
        for number in range(SETS):
            with self.subTest(f"set {number} of {SEED_VARIABLE}={seed}"):
                drawn = RandomSet(f"{seed} {number}")
                matched += self.require_parity(drawn.instances(), drawn.results)[1] > 0
        self.assertGreater(matched, SETS / 4)  # or the sets say nothing

    def test_detections_of_other_images_are_left_out_and_told(self):
        drawn = next(each for each in map(RandomSet, range(100)) if each.results and each.annotations)
        others = [each | {"image_id": 1000} for each in drawn.results[:3]]
        self.require_parity(drawn.instances(), others + drawn.results, reference=drawn.results)
        job = self.run_program()
        self.assertIn("warning: COCO file", job.stderr)
        self.assertIn("3 results of images that the annotation file does not list are left out", job.stderr)

        self.write(drawn.instances(), others)
        job = self.run_program()
        self.assertEqual((job.exit_code, job.stdout), (ENVIRONMENT, ""), job)
        self.assertIn("none of its 3 results is of an image that the annotation file lists", job.stderr)

    def test_the_text_is_that_of_pycocotools(self):
        drawn = RandomSet(1)
        self.write(drawn.instances(), drawn.results)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            truth = COCO(str(self.truth))
            evaluation = COCOeval(truth, truth.loadRes(str(self.results)), "bbox")
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        job = self.run_program("--type", "bbox")
        self.assertEqual(job.stdout.splitlines(), printed.getvalue().splitlines()[-12:], job)
        more = self.run_program("--per-category").stdout
        self.assertTrue(more.startswith(job.stdout))
        self.assertEqual(len(more.splitlines()), 14 + len(drawn.categories))

    def test_malformed_results_are_refused_or_left_out(self):
        drawn = RandomSet(1)
        good = {"image_id": drawn.images[0]["id"], "category_id": drawn.categories[0]["id"], "score": 0.5,
                "bbox": [1, 2, 3, 4]}
        for bad, *words in (({"score": None}, "a number for 'score'"), ({"score": "high"}, "a number for 'score'"),
                            ({"bbox": [1, 2, 3]}, "four numbers"), ({"bbox": []}, "'bbox'"),
                            ({"image_id": 1.5}, "an integer for 'image_id'"), ({"category_id": "cat"}, "'category_id'"),
                            ({"segmentation": {"size": [2, 2], "counts": "~"}}, "a run-length mask of 2 x 2"),
                            ({"segmentation": {"size": [2, 2], "counts": [5]}}, "add up to 4")):
            with self.subTest(bad=bad):
                self.write(drawn.instances(), [good, good | bad, good])
                job = self.run_program("--json")
                self.assertEqual((job.exit_code, job.stdout), (ENVIRONMENT, ""), job)
                for word in ("coco_evaluate: JSON file", "results.json", "byte offset", "result 2", *words):
                    self.assertIn(word, job.stderr)
                job = self.run_program("--json", "--skip-malformed")
                self.assertEqual(job.exit_code, 0, job)
                self.assertIn("result 2: expected", job.stderr)
                self.assertIn("1 results are malformed and left out", job.stderr)
                left = self.run_program("--json", "--skip-malformed").stdout
                self.write(drawn.instances(), [good, good])
                self.assertEqual(self.run_program("--json").stdout, left)

    def test_a_full_disk_is_told(self):
        drawn = RandomSet(1)
        self.write(drawn.instances(), drawn.results)
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([jobs.program("coco_evaluate"), "--ground-truth", self.truth, "--detections",
                                   self.results], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                  check=False)
        self.assertEqual(done.returncode, ENVIRONMENT)
        self.assertIn("Cannot write the results", done.stderr)

    def test_what_cannot_be_evaluated_is_refused(self):
        drawn = RandomSet(1)
        self.write(drawn.instances(), drawn.results)
        for words, exit_code, message in ((("--type", "keypoints"), USAGE, "--type"), (("--threads", "0"), USAGE, "0"),
                                          (("--nothing",), USAGE, "--nothing")):
            job = self.run_program(*words)
            self.assertEqual((job.exit_code, job.stdout), (exit_code, ""), job)
            self.assertIn(message, job.stderr)
        self.truth.write_text('{"images": [')
        self.assertEqual(self.run_program().exit_code, ENVIRONMENT)
        self.truth.unlink()
        job = self.run_program()
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn("instances.json", job.stderr)
        without_masks = drawn.instances()
        without_masks["annotations"] = [{name: each[name] for name in each if name != "segmentation"}
                                        for each in drawn.annotations]
        self.write(without_masks, drawn.results)
        job = self.run_program("--type", "segm")
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn("has a mask. Evaluate boxes instead.", job.stderr)


if __name__ == "__main__":
    jobs.require_programs("coco_evaluate")
    unittest.main()
