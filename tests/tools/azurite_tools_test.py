"""libtrain-inspect and libtrain-pack of data in the Azurite emulator: they say and write what they do of the same data
on the local disk, and a signature that is refused ends them with one sentence.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "data"))
import azurite_jobs
import loader_jobs
from azurite_jobs import ENVIRONMENT, emulator, jobs

IMAGES = 24
SHARDS = 2


def inspect(data, *words):
    return [jobs.program("libtrain-inspect"), data, "--quiet", *words]


def contents_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class Tools(azurite_jobs.AzuriteTest):
    @classmethod
    def fill(cls):
        cls.data = cls.shared / "data"
        loader_jobs.make_pictures(cls.data / "pictures", IMAGES)
        for kind in ("tar", "tfrecord"):
            loader_jobs.make_shards(cls.data / "pictures", cls.data / kind, kind, SHARDS)
        (cls.data / "table").mkdir()
        (cls.data / "table/labels.csv").write_text("path,label\n" + "".join(f"{i}.jpg,{i % 3}\n" for i in range(999)))
        shutil.copytree(jobs.ROOT / "examples/segment/shapes", cls.data / "coco")
        cls.put_folder(cls.data)

    def require_good_end(self, command):
        """What a program prints."""
        job = self.run_to_end(command)
        self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
        return job.stdout

    def require_refusal(self, command, name):
        job = self.run_to_end(command)
        self.assertEqual((job.exit_code, job.stdout, len(job.stderr.splitlines())), (ENVIRONMENT, "", 1), job)
        self.assertTrue(job.stderr.startswith(f"{name}: "), job)
        for word in ("az://data/pictures", "access was refused", "403", "which expires at 20"):
            self.assertIn(word, job.stderr)

    def test_inspect_says_what_it_says_of_local_data(self):
        for path in ("pictures", "tar", "tfrecord", "table/labels.csv"):
            with self.subTest(path):
                expected = self.require_good_end(inspect(self.data / path, "--check", "decode", "--json"))
                self.assertIn(str(self.data), expected)
                said = self.require_good_end(inspect(self.location(f"data/{path}"), "--check", "decode", "--json"))
                self.assertEqual(said, expected.replace(str(self.data), "az://data"))

    def test_inspect_draws_what_it_draws_of_local_data(self):
        sheets = [self.folder / name for name in ("local.png", "remote.png")]
        for sheet, data in zip(sheets, (self.data / "tar", self.location("data/tar"))):
            self.require_good_end(inspect(data, "--check", "none", "--contact-sheet", sheet, "--samples", "5"))
        self.assertEqual(*(sheet.read_bytes() for sheet in sheets))

    def test_pack_writes_what_it_writes_of_local_data(self):
        for kind in ("tar", "tfrecord"):
            with self.subTest(kind):
                output = self.folder / kind
                self.require_good_end(loader_jobs.pack(self.location("data/pictures"), output, kind, SHARDS))
                self.assertEqual(contents_of(output), contents_of(self.data / kind))

    def test_pack_reads_the_annotations_of_remote_images(self):
        outputs = [self.folder / name for name in ("local", "remote")]
        for output, data in zip(outputs, (self.data / "coco", self.location("data/coco"))):
            self.require_good_end([jobs.program("libtrain-pack"), "--input", data, "--output", output, "--format", "tar",
                                   "--coco", "val2017", "--shards", SHARDS, "--quiet"])
        self.assertEqual(*map(contents_of, outputs))
        self.assertEqual(len(contents_of(outputs[0])), SHARDS + 1)

    def test_an_expired_signature_ends_both_at_once(self):
        self.token = emulator.account_sas(seconds=-60)
        location = self.location("data/pictures")
        self.require_refusal(inspect(location), "libtrain-inspect")
        output = self.folder / "shards"
        self.require_refusal(loader_jobs.pack(location, output, "tar", SHARDS), "libtrain-pack")
        self.assertFalse(output.exists())


if __name__ == "__main__":
    azurite_jobs.run_tests("libtrain-inspect", "libtrain-pack")
