"""The examples against labels that their model has no class for: one sentence that names label, sample and file. And
`images` where its training would end in LibTorch's words or in NaN.
"""

import io
import shutil
import sys
import tarfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "data")]
import jobs
import loader_jobs

USAGE = 2
DIGITS = jobs.ROOT / "examples/digits/data"
LABELS_HEADER = 8  # of an IDX file: 4 bytes of magic number, 4 that count the labels
IMAGES = 12


class Digits(unittest.TestCase):
    def test_a_label_without_a_class_is_refused(self):
        folder = jobs.temporary_directory(self)
        data = folder / "data"
        for split, sample in (("train", 1411), ("t10k", 0)):
            shutil.copytree(DIGITS, data, dirs_exist_ok=True)
            file = data / f"{split}-labels-idx1-ubyte"
            content = bytearray(file.read_bytes())
            content[LABELS_HEADER + sample] = 255
            file.write_bytes(content)
            for program in ("digits", "custom_loop", "first_program"):
                if (program, split) == ("first_program", "t10k"):
                    continue  # which does not read it
                with self.subTest(program=program, split=split):
                    output = folder / "output"
                    job = jobs.run([jobs.program(program), "--data", data, "--output", output], ranks=2)
                    jobs.require_refusal(self, job, USAGE, f"label 255 of sample {sample} in '{file}'",
                                         f"byte offset {LABELS_HEADER + sample}", "not below the model's 10 classes")
                    self.assertFalse(output.exists(), job)


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.pictures = cls.folder / "pictures"
        for split in ("train", "val"):
            loader_jobs.make_pictures(cls.pictures / split, IMAGES)

    def train(self, data, classes, *words, batch_size=3):
        return jobs.run([jobs.program("images"), "--data", data, "--classes", classes, "--epochs", 1, "--batch-size",
                         batch_size, "--size", 32, "--model", "resnet18", "--output", self.folder / "output",
                         "--resume", "none", *words],
                        ranks=2, environment=loader_jobs.ENVIRONMENT)

    def shards_with(self, labels):
        """A tar archive of the pictures with these labels for each split; such archives name no classes."""
        data = Path(self.folder / f"shards{labels[-1]}")
        for split in ("train", "val"):
            (data / split).mkdir(parents=True)
            with tarfile.open(data / split / "a.tar", "w") as archive:
                for number, label in enumerate(labels):
                    path = self.pictures / split / loader_jobs.path_of(number)
                    archive.add(path, f"{number}{path.suffix}")
                    member = tarfile.TarInfo(f"{number}.cls")
                    member.size = len(str(label))
                    archive.addfile(member, io.BytesIO(str(label).encode()))
        return data

    def test_more_classes_than_the_model_has_are_refused_before_the_first_step(self):
        job = self.train(self.pictures, IMAGES - 1)
        jobs.require_refusal(self, job, USAGE, f"{IMAGES} classes", f"the model has {IMAGES - 1}")

    def test_a_last_batch_of_one_image_is_left_out(self):
        job = self.train(self.pictures, IMAGES, batch_size=5)  # 12 images, 10 in the first step
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.assertIn("1 steps", job.stderr + job.stdout)

    def test_a_rate_that_is_far_too_high_is_an_error(self):
        job = self.train(self.pictures, IMAGES, "--learning-rate", "1e30")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn("NaN or infinity", job.reports()[0], job)

    def test_a_label_without_a_class_is_refused_when_it_is_read(self):
        for label in (10, 2**62):
            with self.subTest(label=label):
                data = self.shards_with([*range(10), 9, label])
                job = self.train(data, 10)
                self.assertEqual((job.exit_code, job.left_over), (USAGE, ()), job)
                # The rank that read it is the first to report; another one may say what became of its collective.
                for word in (f"label {label} of sample 11 in '{data / 'train/a.tar'}' (byte offset ",
                             "is not below the model's 10 classes"):
                    self.assertIn(word, job.reports()[0], job)


if __name__ == "__main__":
    jobs.require_programs("digits", "custom_loop", "first_program", "images")
    unittest.main()
