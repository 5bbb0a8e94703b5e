"""The contact sheets of libtrain-inspect: their cells beside what Pillow makes of the same files."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

# Goes on with the project's Python where this one has no Pillow.
from inspect_test import ENVIRONMENT, USAGE, Inspect, inspect, jobs, picture

from PIL import Image, ImageChops

# The permutations of 10 elements with seeds 0 and 1: tests/data/permutation_test.cpp, from Python's integers.
SHUFFLED = {0: [5, 1, 2, 7, 0, 8, 6, 4, 9, 3], 1: [7, 9, 5, 1, 0, 8, 3, 2, 6, 4]}
COLUMNS, GAP = 6, 4  # of a sheet


class ContactSheet(Inspect):
    SIDE, SHORT_SIDE = 32, 36
    CONSTANT, COLOR = 5, (10, 200, 30)  # the number of a picture of one colour, first of seed 0

    @classmethod
    def setUpClass(cls):
        cls.images = Path(tempfile.mkdtemp(prefix="libtrain-")) / "train"
        cls.addClassCleanup(shutil.rmtree, cls.images.parent, ignore_errors=True)
        (cls.images / "all").mkdir(parents=True)
        cls.paths = [cls.images / "all" / f"{i}.{'jpg' if i % 3 == 1 else 'png'}" for i in range(10)]
        for i, path in enumerate(cls.paths):
            picture("RGB", (40 + 13 * i, 160 - 11 * i), i).save(path)
        Image.new("RGB", (70, 50), cls.COLOR).save(cls.paths[cls.CONSTANT])

    def setUp(self):
        super().setUp()
        self.path = self.folder / "sheet.png"

    def sheet(self, *arguments, images=None):
        job = inspect(images or self.images, "--contact-sheet", self.path, "--size", self.SIDE, "--check", "none",
                      *arguments)
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(sorted(os.listdir(self.folder)), [self.path.name] + (["train"] if images else []))
        sheet = Image.open(self.path)
        self.assertEqual((sheet.format, sheet.mode), ("PNG", "RGB"))
        return sheet, job

    def size_of(self, rows):
        step = self.SIDE + GAP
        return COLUMNS * step - GAP, rows * step - GAP

    def cell(self, sheet, row, column):
        left, top = column * (self.SIDE + GAP), row * (self.SIDE + GAP)
        return sheet.crop((left, top, left + self.SIDE, top + self.SIDE))

    def plain(self, path):
        """As Resize(36) and CenterCrop(32) of torchvision make it, by Pillow alone."""
        image = Image.open(path).convert("RGB")
        width, height = (self.SHORT_SIDE * side // min(image.size) for side in image.size)
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - self.SIDE) / 2), round((height - self.SIDE) / 2)
        return resized.crop((left, top, left + self.SIDE, top + self.SIDE))

    def require_plain(self, cell, path):
        difference = max(high for _, high in ImageChops.difference(cell, self.plain(path)).getextrema())
        self.assertLessEqual(difference, 1, path)

    def test_begins_its_rows_with_plain_pictures(self):
        for seed in SHUFFLED:
            sheet, job = self.sheet("--samples", "4", "--seed", seed)
            self.assertEqual(job.stderr, "", job)
            self.assertEqual(sheet.size, self.size_of(4))
            for row, number in enumerate(SHUFFLED[seed][:4]):
                self.require_plain(self.cell(sheet, row, 0), self.paths[number])

    def test_goes_on_with_draws_that_differ(self):
        sheet, _ = self.sheet("--samples", "10")
        for row, number in enumerate(SHUFFLED[0]):
            cells = [self.cell(sheet, row, column) for column in range(COLUMNS)]
            if number == self.CONSTANT:
                for cell in cells:
                    self.assertEqual(cell.getcolors(), [(self.SIDE * self.SIDE, self.COLOR)])
                continue
            self.assertEqual(len({cell.tobytes() for cell in cells}), COLUMNS, number)
            # Bilinear weights add up to 1 and none is negative: no channel leaves the range that it has in the file.
            ranges = Image.open(self.paths[number]).getextrema()
            for cell in cells:
                for (low, high), (least, greatest) in zip(cell.getextrema(), ranges):
                    self.assertTrue(least <= low and high <= greatest, number)

    def test_is_white_between_pictures(self):
        sheet, _ = self.sheet("--samples", "2")
        step = self.SIDE + GAP
        for column in range(COLUMNS - 1):
            gap = sheet.crop((column * step + self.SIDE, 0, (column + 1) * step, sheet.height))
            self.assertEqual(gap.getextrema(), ((255, 255),) * 3)
        gap = sheet.crop((0, self.SIDE, sheet.width, step))
        self.assertEqual(gap.getextrema(), ((255, 255),) * 3)

    def test_for_evaluation_has_another_sample_in_each_place(self):
        sheet, _ = self.sheet("--samples", "8", "--augment", "evaluation")
        self.assertEqual(sheet.size, self.size_of(2))
        for place, number in enumerate(SHUFFLED[0][:8]):
            self.require_plain(self.cell(sheet, place // COLUMNS, place % COLUMNS), self.paths[number])
        self.assertEqual(self.cell(sheet, 1, 2).getextrema(), ((255, 255),) * 3)

    def test_is_the_same_file_with_the_same_seed(self):
        files = []
        for arguments in (["--seed", "1"], ["--seed", "1", "--threads", "3"], ["--seed", "2"]):
            self.sheet("--samples", "3", *arguments)
            files.append(self.path.read_bytes())
        self.assertEqual(files[0], files[1])
        self.assertNotEqual(files[0], files[2])

    def test_has_no_more_rows_than_samples(self):
        facts = self.facts(self.images, "--contact-sheet", self.path, "--size", "8")
        self.assertEqual(facts["contact_sheet"], {"path": str(self.path), "samples": 10, "left_out": 0, "width": 68,
                                                  "height": 116})

    def test_has_the_usual_size(self):
        self.facts(self.images, "--contact-sheet", self.path, "--samples", "1")
        self.assertEqual(Image.open(self.path).size, (6 * 224 + 5 * GAP, 224))

    def test_leaves_out_what_is_damaged(self):
        images = self.copy_of_images()
        (images / "all" / self.paths[self.CONSTANT].name).write_text("no image at all")
        sheet, job = self.sheet("--samples", "3", images=images)
        self.assertEqual(sheet.size, self.size_of(3))
        for row, number in enumerate(SHUFFLED[0][1:4]):
            self.require_plain(self.cell(sheet, row, 0), self.paths[number])
        self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertIn(self.paths[self.CONSTANT].name, job.stderr)

    def test_that_fails_leaves_the_former_one(self):
        self.path.write_bytes(b"former")
        (self.folder / "train/all").mkdir(parents=True)
        (self.folder / "train/all/0.png").write_text("no image at all")
        job = inspect(self.folder / "train", "--contact-sheet", self.path)
        self.assertEqual((job.exit_code, job.stdout), (ENVIRONMENT, ""), job)
        self.assertIn("contact sheet", job.stderr.splitlines()[-1])
        self.assertEqual(self.path.read_bytes(), b"former")
        self.assertEqual(sorted(os.listdir(self.folder)), ["sheet.png", "train"])

    def test_is_written_to_a_device_or_a_pipe_and_behind_a_link(self):
        words = (self.images, "--size", "8", "--check", "none", "--contact-sheet")
        null = self.folder / "null"  # a link, which would go in the place of the machine's device
        null.symlink_to("/dev/null")
        self.assertEqual(inspect(*words, null).exit_code, 0)
        self.assertTrue(null.is_symlink())
        full = self.folder / "full"
        full.symlink_to("/dev/full")
        self.assertIn("No space left on device", self.refuse(ENVIRONMENT, *words, full))
        link = self.folder / "link"
        link.symlink_to(self.path)
        self.assertEqual(inspect(*words, link).exit_code, 0)
        self.assertTrue(link.is_symlink())
        with open(self.folder / "piped.png", "wb") as piped:
            script = 'set -o pipefail; "$@" --contact-sheet /dev/stderr 2>&1 >/dev/null | cat'
            subprocess.run(["bash", "-c", script, "bash", jobs.program("libtrain-inspect"), *map(str, words[:-1]),
                            "--quiet"], stdout=piped, check=True, timeout=60)
        self.assertEqual((self.folder / "piped.png").read_bytes(), self.path.read_bytes())
        self.assertEqual(sorted(os.listdir(self.folder)), ["full", "link", "null", "piped.png", "sheet.png"])

    def test_cannot_be_written_where_there_is_no_folder(self):
        self.assertIn("nowhere", self.refuse(ENVIRONMENT, self.images, "--size", "8", "--contact-sheet",
                                             self.folder / "nowhere/sheet.png"))

    def test_has_a_size_that_can_be_opened(self):
        self.assertIn("--size", self.refuse(USAGE, self.images, "--contact-sheet", self.path, "--size", "4096"))


if __name__ == "__main__":
    jobs.require_programs("libtrain-inspect")
    unittest.main()
