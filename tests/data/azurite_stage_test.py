"""`--stage` of an example under mpirun, from the Azurite emulator: one process of the node copies, through an outage as
well, the next start copies nothing again, and nothing that is printed or left on the disk shows the signature.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import hashlib
import random
import shutil
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import azurite_jobs
import loader_jobs
from azurite_jobs import PATIENCE_S, emulator_process, jobs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "train"))
from stage_test import contents_of, inodes_of, outcome_of

PROGRAM = "images"
RANKS = 2
IMAGES = 16
# Files beside the pictures, which the example passes over: most of what there is to copy.
NOTES = 16
NOTE_BYTES = 1 << 19


def digests_of(folder):
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents_of(folder).items()}


class Link(emulator_process.Relay):
    """Counts the bytes that come from a server, and ends it once there are more than `last_byte`."""

    def __init__(self, test, server, last_byte=None):
        super().__init__(server.port)
        test.addCleanup(self.close)
        self._server_behind = server
        self._last_byte = last_byte
        self.passed = 0
        self.has_failed = threading.Event()

    def start_over(self):
        """Counts from zero, and ends nothing any more. Another link would be another store, by its port."""
        with self._lock:
            self.passed = 0
            self._last_byte = None

    def _admitted(self):
        return self._count

    def _count(self, count):
        with self._lock:
            self.passed += count
            if self._last_byte is not None and self.passed > self._last_byte and not self.has_failed.is_set():
                self._server_behind.kill()
                self.has_failed.set()
        return count


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class Staging(azurite_jobs.AzuriteTest):
    @classmethod
    def fill(cls):
        cls.data = cls.shared / "set"
        loader_jobs.make_pictures(cls.data / "train", IMAGES)
        shutil.copytree(cls.data / "train", cls.data / "val")
        # In the folder of a class, where the example looks for pictures only.
        notes = cls.data / "train/000/notes"
        notes.mkdir()
        for number in range(NOTES):
            (notes / f"{number}.txt").write_bytes(random.Random(number).randbytes(NOTE_BYTES))
        cls.put_folder(cls.data, "set/")
        cls.keep()

    def setUp(self):
        super().setUp()
        self.stage = self.folder / "stage"

    def command(self, data, output, *words):
        return [jobs.program(PROGRAM), "--data", data, "--epochs", 1, "--batch-size", 8, "--size", 32, "--model",
                "resnet18", "--classes", IMAGES, "--output", output, *words]

    def start_staging(self, link, output):
        command = self.command(self.location("data/set"), self.folder / output, "--stage", self.stage)
        return azurite_jobs.Running(self, [*jobs.mpirun(RANKS), *command], self.environment(link.port))

    def train_locally(self, output):
        job = jobs.run(self.command(self.data, output), ranks=RANKS, time_limit=PATIENCE_S,
                       environment=loader_jobs.ENVIRONMENT)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        return outcome_of(output)

    def require_good_end(self, running, output, expected):
        exit_code, printed, errors = running.finish()
        self.assertEqual(exit_code, 0, errors)
        self.require_no_secret(printed, errors)
        self.assertEqual(outcome_of(self.folder / output), expected)
        self.assertEqual(digests_of(self.staged_folder() / "files"), digests_of(self.data))
        self.require_no_secret_on_disk()

    def require_no_secret_on_disk(self):
        """Neither in what the run writes nor in what staging leaves: manifest, journal, progress, partial files."""
        for name, content in contents_of(self.folder).items():
            self.require_no_secret(name, content.decode("latin-1"))

    def staged_folder(self):
        folder, = self.stage.iterdir()
        return folder

    def test_goes_on_after_an_outage_and_copies_nothing_twice(self):
        size = sum(map(len, contents_of(self.data).values()))
        with ThreadPoolExecutor(1) as pool:
            local = pool.submit(self.train_locally, jobs.temporary_directory(self))
            link = Link(self, self.server, last_byte=size // 3)
            running = self.start_staging(link, "first")
            self.assertTrue(link.has_failed.wait(PATIENCE_S), "nothing was copied")
            running.errors.expect(r"warning: .*'az://data/set/[^']*'.*Trying again", PATIENCE_S)
            self.assertFalse((self.staged_folder() / "manifest").exists())
            self.assertTrue((self.staged_folder() / "journal").exists())
            self.require_no_secret_on_disk()
            self.server.start()
            expected = local.result()
        self.require_good_end(running, "first", expected)
        # All of it once, and what was on its way when the server went; twice, had both processes copied.
        self.assertLess(link.passed, 1.75 * size)

        before = inodes_of(self.staged_folder())
        link.start_over()
        self.require_good_end(self.start_staging(link, "second"), "second", expected)
        self.assertLess(link.passed, 0.25 * size)
        self.assertEqual(inodes_of(self.staged_folder()), before)


if __name__ == "__main__":
    azurite_jobs.run_tests(PROGRAM)
