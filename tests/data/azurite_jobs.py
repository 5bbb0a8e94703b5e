"""What the tests share that run libtrain's programs on data in the Azurite emulator: a server that is filled once for
all tests of a class, programs that run while a test goes on, and that no signature shows.
"""

import json
import sys
import unittest
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "storage"))
import azurite_emulator as emulator
import emulator_process
import loader_jobs
import jobs
from emulator_process import Running
from loader_jobs import steps_of

ENVIRONMENT = 3  # libtrain's exit code
OPTIONS = ("--seed", "7", "--remainder", "exact")
PATIENCE_S = 120
AZURITE = []  # the command, found before the tests begin


def run(command, environment):
    """The Job of a program that knows of no cloud but what `environment` says."""
    unset = emulator_process.foreign_unset()
    return jobs.run(command, time_limit=PATIENCE_S, environment=unset | environment)


class Loader(Running):
    """loader_program."""

    def __init__(self, test, *words, environment):
        super().__init__(test, [jobs.program(loader_jobs.PROGRAM), *OPTIONS, *words],
                         loader_jobs.ENVIRONMENT | environment)

    def expect_images(self, count):
        line = self.lines.next(PATIENCE_S)
        if line is None:
            raise AssertionError(f"the loader ended: {self.errors.rest(10)}")
        if json.loads(line)["images"] != count:
            raise AssertionError(f"expected {count} images, found {line}")

    def expect_step(self, step):
        self.lines.expect(rf'"step":{step}\b', PATIENCE_S)

    def begin_epoch(self):
        """Where it was told to --wait for that."""
        self.write_line()

    def go_on(self):
        """Where it was told to --pause-after a step."""
        self.write_line()

    def expect_end(self, epoch):
        self.lines.expect(rf'"ended":{epoch}\b', PATIENCE_S)


class AzuriteTest(emulator_process.ServerTest):

    maxDiff = None

    @classmethod
    def new_server(cls, folder):
        return emulator.Azurite(AZURITE, folder)

    @classmethod
    def setUpClass(cls):
        cls.shared = jobs.temporary_directory(cls)
        super().setUpClass()

    @classmethod
    def keep(cls):
        """What was written until now survives that the server is killed."""
        cls.server.stop()
        cls.server.start()

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        if not self.server.is_running():
            self.server.start()
        self.token = emulator.account_sas()

    def location(self, path):
        return f"az://{path}?{self.token}"

    def environment(self, port=None):
        return {"AZURE_STORAGE_BLOB_ENDPOINT": self.server.endpoint(port)}

    def run_to_end(self, command):
        """The Job of a program, which must show no signature."""
        job = run(command, self.environment())
        self.require_no_secret(job.stdout, job.stderr)
        return job

    def require_no_secret(self, *outputs):
        signature = self.token.partition("sig=")[2]
        for secret in (self.token, signature, urllib.parse.unquote(signature)):
            for output in outputs:
                self.assertNotIn(secret, output)


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class AzuriteLoaderTest(AzuriteTest):
    def start(self, *words, path):
        return Loader(self, "--data", self.location(path), *words, environment=self.environment())

    def cache(self):
        return ("--cache", self.folder / "cache")

    def local(self, *words, data):
        """What the same run gets of a local folder."""
        job = loader_jobs.run_rank("--data", data, *OPTIONS, *words)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        return steps_of(job.stdout)

    def require_good_end(self, loader, expected):
        """Returns what it says on standard error."""
        exit_code, output, errors = loader.finish()
        self.assertEqual(exit_code, 0, errors)
        self.require_no_secret(output, errors)
        self.assertEqual(steps_of(output), expected)
        return errors


def run_tests(*programs):
    jobs.require_programs(*programs)
    AZURITE[:] = emulator.find_azurite()
    unittest.main()
