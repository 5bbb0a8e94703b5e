"""make_shapes writes data sets that pycocotools and Pillow read and whose masks are exactly what the images show, the
same for the same options, complete or without annotations, and refuses what it cannot do.
"""

import contextlib
import io
import json
import signal
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "checkpoint")]
import checkpoint_jobs
import jobs

jobs.require_packages("PIL", "numpy", "pycocotools")

import numpy
from PIL import Image
from pycocotools.coco import COCO

USAGE, ENVIRONMENT = 2, 3
CORNERS = {1: 24, 2: 4, 3: 3}  # of circles, squares and triangles
CONTRAST, GRADIENT = 48, 40  # of colours, in the program
EVERYTHING = ("--train", 40, "--val", 12, "--size", 96, "--vary-size", "--crowds")


def make_shapes(output, *options, environment=None):
    return jobs.run([jobs.program("make_shapes"), "--output", output, *options], environment=environment)


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def annotations_of(folder, split):
    return json.loads((folder / f"annotations/instances_{split}2017.json").read_text())


def pixels_of(path):
    with Image.open(path) as image:
        assert (image.format, image.mode) == ("PNG", "RGB"), path
        return numpy.asarray(image).astype(int)


def pictures_of(folder, split):
    """The record, pixels, annotations and masks of each image."""
    with contextlib.redirect_stdout(io.StringIO()):
        found = COCO(folder / f"annotations/instances_{split}2017.json")
    for image in found.dataset["images"]:
        annotations = found.imgToAnns[image["id"]]
        masks = [found.annToMask(each).astype(bool) for each in annotations]
        yield image, pixels_of(folder / f"{split}2017" / image["file_name"]), annotations, masks


class MakeShapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.noisy = cls.made("noisy", *EVERYTHING)
        cls.clean = cls.made("clean", *EVERYTHING, "--noise", 0)

    @classmethod
    def made(cls, name, *options):
        job = make_shapes(cls.folder / name, *options)
        assert job.exit_code == 0 and job.stderr == "", job
        return cls.folder / name

    def refuse(self, exit_code, output, *options, environment=None):
        job = make_shapes(output, *options, environment=environment)
        self.assertEqual((job.exit_code, job.stdout), (exit_code, ""), job)
        return job.stderr

    def test_lays_files_out_as_coco_does(self):
        found = {split: annotations_of(self.noisy, split) for split in ("train", "val")}
        listed = {f"{split}2017/{image['file_name']}" for split in found for image in found[split]["images"]}
        self.assertEqual(set(content_of(self.noisy)),
                         listed | {f"annotations/instances_{split}2017.json" for split in found})
        for split, images in (("train", 40), ("val", 12)):
            self.assertEqual([image["id"] for image in found[split]["images"]], list(range(1, images + 1)))
            self.assertEqual(found[split]["images"][0]["file_name"], "000000000001.png")
            ids = [each["id"] for each in found[split]["annotations"]]
            self.assertEqual(ids, list(range(1, len(ids) + 1)))
            self.assertEqual([(each["id"], each["name"]) for each in found[split]["categories"]],
                             [(1, "circle"), (2, "square"), (3, "triangle")])

    def test_annotates_what_the_image_shows(self):
        """Without noise, an object has one colour, and no other pixel has a similar one."""
        for split in ("train", "val"):
            for image, pixels, annotations, masks in pictures_of(self.clean, split):
                self.assertEqual(pixels.shape, (image["height"], image["width"], 3))
                self.assertLessEqual(sum(mask.astype(int) for mask in masks).max(), 1, image)
                background = pixels[~numpy.any(masks, axis=0)]
                low, high = background.min(axis=0), background.max(axis=0)
                self.assertLessEqual((high - low).max(), GRADIENT, image)
                colors = []
                for annotation, mask in zip(annotations, masks):
                    under = numpy.unique(pixels[mask], axis=0)
                    self.assertEqual(len(under), 1, annotation["id"])
                    self.assertGreater(numpy.maximum(low - under[0], under[0] - high).max(), CONTRAST, annotation["id"])
                    colors.append(under[0])
                for number, color in enumerate(colors):
                    for other in colors[:number]:
                        self.assertGreater(abs(color - other).max(), CONTRAST, image)

    def test_gives_boxes_and_areas_of_visible_pixels(self):
        kinds = set()
        for image, _, annotations, masks in pictures_of(self.noisy, "train"):
            for annotation, mask in zip(annotations, masks):
                rows, columns = mask.any(axis=1).nonzero()[0], mask.any(axis=0).nonzero()[0]
                self.assertEqual(annotation["bbox"], [columns[0], rows[0], columns[-1] - columns[0] + 1,
                                                      rows[-1] - rows[0] + 1])
                self.assertEqual(annotation["area"], mask.sum())
                segmentation = annotation["segmentation"]
                is_polygon = isinstance(segmentation, list)
                kinds.add((is_polygon, annotation["iscrowd"]))
                if is_polygon:
                    coordinates = numpy.array(segmentation).reshape(-1, 2)
                    self.assertEqual(len(coordinates), CORNERS[annotation["category_id"]])
                    self.assertTrue((coordinates >= 0).all())
                    self.assertTrue((coordinates <= [image["width"], image["height"]]).all())
                    self.assertTrue(numpy.array_equal(coordinates, coordinates.round(2)))
                else:
                    self.assertEqual(segmentation["size"], [image["height"], image["width"]])
        self.assertEqual(kinds, {(True, 0), (False, 0), (False, 1)})

    def test_makes_shapes_that_are_regular_polygons(self):
        for annotation in annotations_of(self.noisy, "train")["annotations"]:
            if isinstance(annotation["segmentation"], list):
                corners = numpy.array(annotation["segmentation"]).reshape(-1, 2)
                radii = numpy.linalg.norm(corners - corners.mean(axis=0), axis=1)
                sides = numpy.linalg.norm(corners - numpy.roll(corners, 1, axis=0), axis=1)
                self.assertLess(numpy.ptp(radii), 0.03, annotation["id"])  # after rounding to two decimals
                self.assertLess(numpy.ptp(sides), 0.03, annotation["id"])

    def test_adds_noise_up_to_what_is_asked_for(self):
        files = [path.relative_to(self.noisy) for path in self.noisy.glob("*2017/*.png")]
        for name, noise in (("noisy", 8), ("noisier", 60)):
            folder = self.noisy if noise == 8 else self.made(name, *EVERYTHING, "--noise", noise)
            added = numpy.concatenate([(pixels_of(folder / file) - pixels_of(self.clean / file)).ravel()
                                       for file in files])
            self.assertEqual((added.min(), added.max()), (-noise, noise))
            self.assertEqual(annotations_of(folder, "train"), annotations_of(self.clean, "train"))
        self.assertEqual(len(files), 52)

    def test_draws_all_kinds_of_images(self):
        found = annotations_of(self.noisy, "train")
        sizes = [(image["width"], image["height"]) for image in found["images"]]
        self.assertTrue(all(48 <= side <= 96 for size in sizes for side in size))
        self.assertGreater(sum(width > height for width, height in sizes), 5)
        self.assertGreater(sum(width < height for width, height in sizes), 5)
        usual = annotations_of(self.made("usual", "--train", 200, "--val", 0, "--min-objects", 0), "train")
        self.assertFalse((self.folder / "usual/val2017").exists())
        self.assertEqual({(image["width"], image["height"]) for image in usual["images"]}, {(128, 128)})
        self.assertEqual({each["iscrowd"] for each in usual["annotations"]}, {0})
        per_image = numpy.bincount([each["image_id"] for each in usual["annotations"]], minlength=201)[1:]
        self.assertEqual(set(per_image), {0, 1, 2, 3, 4})
        per_category = numpy.bincount([each["category_id"] for each in usual["annotations"]])
        self.assertGreater(per_category[1:].min(), 0.25 * len(usual["annotations"]))
        covered = sum(isinstance(each["segmentation"], dict) for each in usual["annotations"])
        self.assertGreater(covered, 0.1 * len(usual["annotations"]))

    def test_makes_the_same_files_of_the_same_seed(self):
        first = content_of(self.noisy)
        self.assertEqual(content_of(self.made("again", *EVERYTHING, "--seed", 1)), first)
        other = content_of(self.made("other", *EVERYTHING, "--seed", 2))
        for name in first.keys() & other.keys():
            self.assertNotEqual(other[name], first[name], name)
        # Image k does not depend on the number of images, and val2017 is not train2017 again.
        fewer = content_of(self.made("fewer", *EVERYTHING[4:], "--train", 5, "--val", 3))
        for name in fewer:
            if name.endswith(".png"):
                self.assertEqual(fewer[name], first[name], name)
        self.assertNotEqual(first["train2017/000000000001.png"], first["val2017/000000000001.png"])

    def test_is_read_by_inspect(self):
        for split in ("train", "val"):
            found = annotations_of(self.noisy, split)
            job = jobs.run([jobs.program("libtrain-inspect"), "--json",
                            self.noisy / f"annotations/instances_{split}2017.json"])
            self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
            facts = json.loads(job.stdout)
            polygons = sum(isinstance(each["segmentation"], list) for each in found["annotations"])
            self.assertEqual((facts["images"], facts["annotations"]), (len(found["images"]), len(found["annotations"])))
            self.assertEqual(facts["crowds"], sum(each["iscrowd"] for each in found["annotations"]))
            self.assertEqual(facts["masks"], {"polygons": polygons, "without": 0,
                                              "run_length": len(found["annotations"]) - polygons})
            self.assertEqual(set(facts["left_out"].values()) | set(facts["odd_ids"].values()), {0})

    def test_made_the_set_of_the_checkout(self):
        stored = jobs.ROOT / "examples/segment/shapes"
        again = self.made("stored", "--train", 0, "--val", 6, "--size", 144, "--vary-size", "--min-objects", 2,
                          "--noise", 4, "--seed", 35)
        self.assertEqual(annotations_of(stored, "val"), annotations_of(again, "val"))
        self.assertEqual(set(content_of(stored)), set(content_of(again)))
        for path in stored.glob("val2017/*.png"):  # another zlib may compress them differently
            self.assertTrue(numpy.array_equal(pixels_of(path), pixels_of(again / "val2017" / path.name)), path)

    def test_refuses_options_that_make_no_sense(self):
        output = self.folder / "refused"
        for options, word in ((("--train", "-1"), "--train"), (("--val", "1.5"), "--val"), (("--size", "31"), "--size"),
                              (("--size", "4097"), "--size"), (("--max-objects", "0"), "--max-objects"),
                              (("--max-objects", "21"), "--max-objects"), (("--min-objects", "-1"), "--min-objects"),
                              (("--min-objects", "5"), "--max-objects"), (("--noise", "256"), "--noise"),
                              (("--seed", "-1"), "--seed"), (("--seed", "none"), "--seed"),
                              (("--train", "0", "--val", "0"), "--val"), (("--colour", "red"), "--colour"),
                              (("more",), "more")):
            self.assertIn(word, self.refuse(USAGE, output, *options), options)
            self.assertFalse(output.exists(), options)
        job = jobs.run([jobs.program("make_shapes")])
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn("--output", job.stderr)

    def test_refuses_more_shapes_than_an_image_has_room_for(self):
        message = self.refuse(USAGE, self.folder / "full", "--size", 32, "--min-objects", 20, "--max-objects", 20)
        self.assertIn("32 x 32 pixels has no place for 20 shapes", message)
        self.made("full", "--train", 1, "--val", 0)

    def test_refuses_folders_that_are_not_empty_or_cannot_be_made(self):
        former = content_of(self.noisy)
        self.assertIn("not an empty folder", self.refuse(USAGE, self.noisy))
        self.assertEqual(content_of(self.noisy), former)
        file = self.folder / "file"
        file.write_text("kept")
        self.assertIn("not an empty folder", self.refuse(USAGE, file))
        self.assertIn(str(file / "below"), self.refuse(ENVIRONMENT, file / "below", "--train", 1, "--val", 0))
        self.assertEqual(file.read_text(), "kept")
        self.assertIn("/proc/none", self.refuse(ENVIRONMENT, "/proc/none", "--train", 1))
        empty = self.folder / "empty"
        empty.mkdir()
        self.made("empty", "--train", 1, "--val", 0)

    def test_that_is_interrupted_leaves_complete_annotations_or_none(self):
        """At each call that changes a file, until the run is not disturbed any more."""
        images = {"train": 2, "val": 1}
        for action in ("ENOSPC", "kill"):
            complete = {split: 0 for split in images}
            for call in range(1, 60):
                output = self.folder / f"{action}-{call}"
                job = make_shapes(output, "--train", 2, "--val", 1, "--size", 32,
                                  environment=checkpoint_jobs.environment(output, call, action))
                for split in images:
                    if (output / f"annotations/instances_{split}2017.json").exists():
                        complete[split] += 1
                        self.assertEqual(len(list(pictures_of(output, split))), images[split])
                if job.exit_code == 0:
                    break
                self.assertEqual(job.exit_code, ENVIRONMENT if action == "ENOSPC" else -signal.SIGKILL, job)
                if action == "ENOSPC":
                    self.assertEqual(len(job.stderr.splitlines()), 1, job)
                    self.assertIn(str(output), job.stderr)
            self.assertEqual(job.exit_code, 0, job)
            self.assertGreater(call, 4 * sum(images.values()), action)  # to open, write, store and rename each image
            self.assertGreater(complete["train"], complete["val"], action)
            self.assertEqual(complete["val"], 1, action)


if __name__ == "__main__":
    jobs.require_programs("make_shapes", "libtrain-inspect", "libfaulty_disk.so")
    unittest.main()
