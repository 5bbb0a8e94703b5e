"""The digits example against damaged data and wrong options: one line that says what and where, and nothing written."""

import json
import re
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

DATA = jobs.ROOT / "examples/digits/data"
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
# IDX: 4 bytes of magic number, 4 for each dimension, then one byte a pixel or label.
IMAGES_HEADER, LABELS_HEADER = 16, 8
IMAGE_BYTES = 8 * 8

USAGE, ENVIRONMENT = 2, 3


class DigitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.output = self.folder / "output"

    def run_digits(self, *arguments, ranks=2):
        output = () if "--output" in arguments else ("--output", self.output)
        return jobs.run([jobs.program("digits"), *arguments, *output], ranks=ranks)

    def require_refusal(self, job, exit_code, *words):
        """And nothing on the disk."""
        jobs.require_refusal(self, job, exit_code, *words)
        self.assertFalse(self.output.exists(), job)


class DamagedData(DigitsTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        shutil.copytree(DATA, self.data)

    def require_file_refused(self, name, offset, *words):
        job = self.run_digits("--data", self.data)
        self.require_refusal(job, ENVIRONMENT, self.data / name, f"byte offset {offset}", *words)

    def cut(self, name, length):
        (self.data / name).write_bytes((self.data / name).read_bytes()[:length])

    def test_truncated_images(self):
        self.cut(IMAGES, IMAGES_HEADER + 1000 * IMAGE_BYTES + 7)
        self.require_file_refused(IMAGES, IMAGES_HEADER + 1000 * IMAGE_BYTES + 7, "truncated")

    def test_truncated_header(self):
        self.cut(IMAGES, 10)
        self.require_file_refused(IMAGES, 10)

    def test_empty_file(self):
        self.cut(LABELS, 0)
        self.require_file_refused(LABELS, 0)

    def test_wrong_magic_number(self):
        content = (self.data / IMAGES).read_bytes()
        (self.data / IMAGES).write_bytes(b"\x7fELF" + content[4:])
        self.require_file_refused(IMAGES, 0, "0x7f45")

    def test_images_in_the_place_of_labels(self):
        shutil.copy(self.data / IMAGES, self.data / LABELS)
        # The fourth byte of the magic number counts the dimensions.
        self.require_file_refused(LABELS, 3, "1 dimension")

    def test_labels_of_another_count(self):
        content = (self.data / LABELS).read_bytes()
        labels = content[LABELS_HEADER:-1]
        (self.data / LABELS).write_bytes(content[:4] + len(labels).to_bytes(4, "big") + labels)
        job = self.run_digits("--data", self.data)
        self.require_refusal(job, ENVIRONMENT, self.data / LABELS, "byte offset 4", 1437, 1436)

    def test_trailing_bytes(self):
        size = (self.data / IMAGES).stat().st_size
        with open(self.data / IMAGES, "ab") as file:
            file.write(b"more")
        self.require_file_refused(IMAGES, size)

    def test_missing_file(self):
        (self.data / "t10k-labels-idx1-ubyte").unlink()
        job = self.run_digits("--data", self.data)
        self.require_refusal(job, ENVIRONMENT, self.data / "t10k-labels-idx1-ubyte")

    def test_missing_directory(self):
        job = self.run_digits("--data", self.folder / "nowhere")
        self.require_refusal(job, ENVIRONMENT, self.folder / "nowhere", "does not exist")

    def test_a_single_process_refuses_like_two_ranks(self):
        self.cut(IMAGES, 999)
        job = self.run_digits("--data", self.data, ranks=None)
        self.require_refusal(job, ENVIRONMENT, self.data / IMAGES, "byte offset 999")


class WrongOptions(DigitsTest):
    def test_a_value_that_is_no_number(self):
        self.require_refusal(self.run_digits("--epochs", "x"), USAGE, "--epochs", "'x'", "whole number")

    def test_a_misspelt_option(self):
        self.require_refusal(self.run_digits("--epoch", "3"), USAGE, "--epoch", "--help")

    def test_a_rank_that_starts_late_finds_that_its_error_is_told(self):
        script = (f'sleep $((2 * OMPI_COMM_WORLD_RANK)); {jobs.program("digits")} --timeout -1; code=$?; '
                  f'echo $code >{self.folder}/ended.$OMPI_COMM_WORLD_RANK; exit $code')
        job = jobs.run(["sh", "-c", script], ranks=2)
        self.require_refusal(job, USAGE, "--timeout", "-1")
        # The first one has waited: otherwise mpirun would have ended the second in its sleep.
        self.assertEqual((self.folder / "ended.1").read_text(encoding="utf-8"), f"{USAGE}\n", job)

    def test_a_timeout_that_is_no_time(self):
        self.require_refusal(self.run_digits("--timeout", "-1"), USAGE, "--timeout", "-1")

    def test_an_output_that_is_a_file(self):
        file = self.folder / "file"
        file.touch()
        job = self.run_digits("--epochs", "1", "--output", file)
        self.require_refusal(job, ENVIRONMENT, file)
        self.assertEqual(file.stat().st_size, 0)

    def test_an_output_below_a_file(self):
        file = self.folder / "file"
        file.touch()
        self.require_refusal(self.run_digits("--epochs", "1", "--output", file / "run"), ENVIRONMENT, file / "run")

    def test_an_output_where_nobody_may_write(self):
        # /proc refuses new folders to root as well.
        self.require_refusal(self.run_digits("--epochs", "1", "--output", "/proc/libtrain"), ENVIRONMENT,
                             "/proc/libtrain")

    def test_help_is_printed_without_a_run(self):
        job = self.run_digits("--help", ranks=None)
        self.assertEqual(job.exit_code, 0, job)
        for option in ("--data", "--epochs", "--batch-size", "--output", "--timeout", "--seed"):
            self.assertRegex(job.stdout, rf"(?m)^\s+{re.escape(option)}\b")
        self.assertFalse(self.output.exists())

    def test_help_that_cannot_be_printed_is_an_error(self):
        job = jobs.run(["bash", "-c", 'exec "$@" > /dev/full', "bash", jobs.program("digits"), "--help"])
        self.require_refusal(job, ENVIRONMENT, "Cannot write to standard output")


class SpecialFiles(DigitsTest):
    def run_with_timeline(self, file, *before):
        return jobs.run([*before, jobs.program("digits"), "--epochs", "1", "--output", self.output, "--timeline", file],
                        environment={"OMP_NUM_THREADS": "1"})

    def test_a_timeline_is_written_to_a_device_or_a_pipe_as_it_is(self):
        null, full = self.folder / "null", self.folder / "full"  # links, which would go in the place of the devices
        null.symlink_to("/dev/null")
        full.symlink_to("/dev/full")
        job = self.run_with_timeline(null)
        self.assertEqual(job.exit_code, 0, job)
        jobs.require_refusal(self, self.run_with_timeline(full), ENVIRONMENT, full, "No space left on device")
        job = self.run_with_timeline("/dev/stdout", "bash", "-c", '"$@" | cat', "bash")
        self.assertIn("traceEvents", json.loads(job.stdout), job)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["full", "null", "output"])
        self.assertTrue(null.is_symlink() and full.is_symlink())


if __name__ == "__main__":
    jobs.require_programs("digits")
    unittest.main()
