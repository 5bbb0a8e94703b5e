"""`--stage` and `--cache` of an example under mpirun: data are copied to the local disk once, whoever dies while that
goes on, a disk that is too small is named, and a program that does not listen to the options says so.
"""

import json
import os
import shutil
import signal
import struct
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "data")]
import jobs
import loader_jobs

USAGE, ENVIRONMENT = 2, 3
IMAGES = 32
NOTES = 20_000  # enough to copy them for seconds
TIME_LIMIT_S = 150


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def contents_of(folder):
    return {name: path.read_bytes() for name, path in files_in(folder).items()}


def inodes_of(folder):
    """A file that is written anew has another one."""
    return {name: path.stat().st_ino for name, path in files_in(folder).items()}


def outcome_of(output):
    """The loss and the accuracy of a run of one epoch, of which `output` is the folder."""
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    epoch, = (record for record in records if record["event"] == "epoch")
    evaluation, = (record for record in records if record["event"] == "evaluation")
    return epoch["loss"], evaluation["accuracy"]


def copied_files(journal):
    """The paths that a staging folder's journal says are complete: see libtrain/data/storage/detail/staging_manifest.hpp."""
    lines = journal.read_text().split("\n")[1:-1]
    return [line.split(" ")[4].removeprefix("=") for line in lines]


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class StageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = jobs.temporary_directory(cls)
        loader_jobs.make_pictures(cls.data / "train", IMAGES)
        shutil.copytree(cls.data / "train", cls.data / "val")

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.stage = self.folder / "stage"
        self.cache = self.folder / "cache"
        self.output = self.folder / "output"

    def command(self, *words, data=None, output=None):
        return [jobs.program("images"), "--data", data or self.data, "--epochs", "1", "--batch-size", "8", "--size",
                "32", "--model", "resnet18", "--output", output or self.output, "--resume", "none", *words]

    def start(self, command, directory=jobs.ROOT):
        return jobs.run(command, ranks=2, time_limit=TIME_LIMIT_S, environment=loader_jobs.ENVIRONMENT,
                        directory=directory)

    def train(self, *words, data=None, directory=jobs.ROOT):
        """The outcome of a run, which must end well."""
        output = Path(tempfile.mkdtemp(dir=self.folder))
        job = self.start(self.command(*words, data=data, output=output), directory)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        return outcome_of(output)

    def require_refusal(self, job, exit_code, *words):
        jobs.require_refusal(self, job, exit_code, *words)
        self.assertFalse(self.output.exists(), job)

    def staged_folder(self):
        folder, = self.stage.iterdir()
        return folder


class Staging(StageTest):
    def test_trains_on_a_copy_that_the_next_start_finds(self):
        expected = self.train()
        self.assertEqual(self.train("--stage", self.stage), expected)
        staged = self.staged_folder()
        manifest = staged / "manifest"
        before = inodes_of(staged / "files"), manifest.stat().st_ino, manifest.read_bytes()
        self.assertEqual(contents_of(staged / "files"), contents_of(self.data))
        self.assertEqual(self.train("--stage", self.stage), expected)
        self.assertEqual(self.staged_folder(), staged)
        self.assertEqual((inodes_of(staged / "files"), manifest.stat().st_ino, manifest.read_bytes()), before)
        self.assertFalse((staged / "journal").exists())

    def test_one_relative_path_in_two_folders_is_two_sets(self):
        copies = []
        for name in ("a", "b"):
            data = self.folder / name / "data"
            shutil.copytree(self.data, data)
            (data / "train/000/whose.txt").write_text(name)
            self.train("--stage", self.stage, data="data", directory=data.parent)
            copies += [staged for staged in self.stage.iterdir() if staged not in copies]
        self.assertEqual([(staged / "files/train/000/whose.txt").read_text() for staged in copies], ["a", "b"])

    def large_data(self):
        data = self.folder / "large"
        shutil.copytree(self.data, data)
        # The folder of a class, in which the example looks for pictures only.
        notes = data / "train/000/notes"
        notes.mkdir()
        for number in range(NOTES):
            (notes / f"{number}.txt").write_text(f"note {number}\n")
        return data

    def kill_copier(self, running):
        """Kills the process that copies when it has copied some hundred files; returns the paths of these."""
        deadline = time.monotonic() + TIME_LIMIT_S
        while not running.done() and time.monotonic() < deadline:
            for journal in self.stage.glob("*/journal"):
                copied = copied_files(journal)
                if len(copied) >= 300:
                    self.assertFalse((journal.parent / "manifest").exists())
                    # Numbers of 64 bits; the fifth is the process, behind what is done and what is to be done.
                    copier = struct.unpack_from("=5Q", (journal.parent / "progress").read_bytes())[4]
                    os.kill(copier, signal.SIGKILL)
                    return copied
            time.sleep(0.005)
        raise AssertionError("nothing was copied, or all before anybody looked")

    def test_a_copier_that_is_killed_is_followed_by_the_next_start(self):
        data = self.large_data()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.start, self.command("--stage", self.stage, data=data))
            copied = self.kill_copier(running)
            job = running.result()
        self.assertFalse(job.timed_out, job)
        self.assertNotEqual(job.exit_code, 0, job)
        self.assertEqual(job.left_over, (), job)
        self.assertLess(len(copied), NOTES)
        staged = self.staged_folder()
        inodes = inodes_of(staged / "files")
        before = [(name, inodes[name]) for name in copied]

        self.train("--stage", self.stage, data=data)
        self.assertEqual(contents_of(staged / "files"), contents_of(data))
        inodes = inodes_of(staged / "files")
        self.assertEqual([(name, inodes[name]) for name in copied], before)
        self.assertTrue((staged / "manifest").exists())
        for name in ("journal", "partial"):
            self.assertFalse((staged / name).exists(), name)

    def test_a_disk_that_is_too_small_is_named(self):
        disk = self.folder / "disk"
        disk.mkdir()
        script = 'mount -t tmpfs -o size=4m tmpfs "$1" || exit; shift; exec "$@"'
        in_namespace = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", disk]
        if jobs.run([*in_namespace, "true"]).exit_code != 0:
            self.skipTest("this environment mounts no tmpfs")
        # In the namespace everyone is root, whom mpirun refuses unless told otherwise.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        job = jobs.run([*in_namespace, *jobs.mpirun(2), *self.command("--stage", disk / "stage")],
                       time_limit=TIME_LIMIT_S, environment=loader_jobs.ENVIRONMENT | root)
        self.require_refusal(job, ENVIRONMENT, f"Staging '{self.data}", f"to '{disk / 'stage'}/", "more bytes",
                             "the disk has", "use --cache")


class Caching(StageTest):
    def test_a_second_start_finds_what_the_first_one_read(self):
        expected = self.train()
        self.assertEqual(self.train("--cache", self.cache), expected)
        entries = inodes_of(self.cache / "entries")
        self.assertEqual(len(entries), 2 * IMAGES)
        self.assertEqual(self.train("--cache", self.cache), expected)
        self.assertEqual(inodes_of(self.cache / "entries"), entries)


class Options(StageTest):
    def test_are_listed_in_the_help(self):
        for program in ("images", "digits"):
            job = jobs.run([jobs.program(program), "--help"])
            self.assertEqual(job.exit_code, 0, job)
            for option in ("--stage", "--cache", "--cache-limit"):
                self.assertRegex(job.stdout, rf"(?m)^\s+{option}(?![-\w])", program)

    def test_a_limit_without_a_cache_is_refused(self):
        job = self.start(self.command("--cache-limit", "1G"))
        self.require_refusal(job, USAGE, "--cache-limit is given without --cache")

    def test_both_together_are_refused(self):
        job = self.start(self.command("--stage", self.stage, "--cache", self.cache))
        self.require_refusal(job, USAGE, "--stage and --cache are both given")
        self.assertFalse(self.stage.exists())
        self.assertFalse(self.cache.exists())

    def test_a_folder_in_the_data_is_refused(self):
        for option in ("--stage", "--cache"):
            for folder in (self.data, self.data / "train/copies/of/this"):
                with self.subTest(option=option, folder=folder):
                    job = self.start(self.command(option, folder))
                    self.require_refusal(job, USAGE, f"Option {option} is '{folder}', which is in the data")
        self.assertEqual(sorted(path.name for path in self.data.iterdir()), ["train", "val"])
        self.assertFalse((self.data / "train/copies").exists())

    def test_a_program_that_opens_its_data_itself_warns(self):
        job = self.start([jobs.program("digits"), "--epochs", "1", "--output", self.output, "--stage", self.stage])
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(job.stderr.count("warning: --stage had no effect"), 1, job)
        self.assertFalse(self.stage.exists())


if __name__ == "__main__":
    jobs.require_programs("images", "digits")
    unittest.main()
