"""Checkpoints in Azure Blob Storage, S3 and Google Cloud Storage, against the emulators, which this test starts: what is
stored, the store that goes away in the middle of an upload, a writer that is killed there, a second run, and access that
is denied.

Exit code 77, and a line that says so, where the emulators cannot be had; ctest then reports the test as skipped.
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "data" / "storage"))
import azurite_emulator
import azurite_test
import cloud_emulators
import emulator_process
import gcs_test
import jobs
import s3_test

PROGRAM = "checkpoint_store_program"
STORAGE = "storage_program"
FILES = ("loader.json", "manifest.json", "model.bin")
PARTS = 25_000_000  # bytes: more than one part
PAUSES = ("step-00000200/loader.json", "step-00000200/manifest.json")


class Cases:
    """For a Store of storage_cases.py."""

    def setUp(self):
        super().setUp()
        self.runs_at = f"/{self.id().rpartition('.')[2]}"  # a location for each test
        self.folder = jobs.temporary_directory(self)

    def words(self, command, root, *words, location=None):
        return [command, location or self.at(self.runs_at), self.folder / root, *words]

    def run_store(self, *words, environment=None):
        return self.run_program(*words, environment=environment, program=PROGRAM)

    def save(self, root, run, *steps, says=None):
        job = self.run_store(*self.words("save", root, run, *steps))
        self.assertEqual((job.exit_code, job.stdout.splitlines()), (0, [f"saved {step}" for step in steps]), job)
        if says is None:
            self.assertEqual(job.reports(), [], job)
        return job

    def require_newest(self, root, step):
        job = self.run_store(*self.words("fetch", root))
        self.assertEqual((job.exit_code, job.stdout, job.reports()), (0, f"newest {step}\n", []), job)

    def require_stored(self, *steps):
        """Nothing but these checkpoints is at the location."""
        listed = [entry["path"] for entry in self.read("list", self.at(self.runs_at))]
        self.assertEqual(listed, [*(f"step-{step:08}/{name}" for step in steps for name in FILES), "writer.json"])

    def start(self, root, run, *steps, pause, port=None):
        """A run that waits in the middle of an upload."""
        command = [jobs.program(PROGRAM), *self.words("save", root, run, *steps), "--pause", pause, "--deadline-ms", 100]
        running = emulator_process.Running(self, command, self.credentials(port))
        running.lines.expect(f"^putting {pause}$", 60)
        return running

    def test_what_is_stored_and_fetched(self):
        job = self.run_store(*self.words("save", "one", "run-1", 100, 200, 300, "--bytes", PARTS))
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.require_stored(200, 300)
        self.require_newest("two", 300)
        self.save("two", "run-1,run-2", 400)
        self.require_stored(300, 400)

    def test_nothing_is_stored_yet(self):
        self.require_newest("one", -1)

    def test_the_store_goes_away_in_the_middle_of_an_upload(self):
        for number, pause in enumerate(PAUSES):
            self.runs_at += f"-{number}"
            relay = emulator_process.Relay(self.server.port)
            running = self.start(f"one-{number}", "run-1", 100, 200, 300, pause=pause, port=relay.port)
            relay.close()
            running.write_line()
            running.lines.expect("^failed 200: .*(the store failed or did not answer|could not be sent)", 120)
            self.require_newest(f"two-{number}", 100)
            relay = emulator_process.Relay(self.server.port, at=relay.port)
            self.addCleanup(relay.close)
            exit_code, lines, errors = running.finish()
            self.assertEqual(exit_code, 0, errors)
            self.require_no_secret(lines + errors)
            self.require_stored(200, 300)
            self.require_newest(f"three-{number}", 300)

    def test_a_run_is_killed_in_the_middle_of_an_upload(self):
        for number, pause in enumerate(PAUSES):
            self.runs_at += f"-{number}"
            running = self.start(f"one-{number}", "run-1", 100, 200, pause=pause)
            running.kill()
            self.require_newest(f"two-{number}", 100)
            # On the machine that has the second checkpoint, and on one that has not.
            self.save(("one", "two")[number] + f"-{number}", "run-1,run-2", 300)
            self.require_stored(*((200, 300) if number == 0 else (100, 300)))

    def test_of_two_runs_the_later_one_goes_on(self):
        running = self.start("one", "run-1", 100, 200, pause=PAUSES[0])
        job = self.save("two", "run-2", 150, says="run-1")
        self.assertIn("(run run-1, ", job.stderr)
        running.write_line()
        running.lines.expect(r"^failed 200: Another run \(run run-2, .*has begun to write checkpoints", 60)
        exit_code, _, errors = running.finish()
        self.assertEqual(exit_code, 3)
        self.assertIn("has begun to write checkpoints", errors)
        self.require_newest("three", 150)

    def test_a_checkpoint_that_is_damaged_on_the_disk_is_not_uploaded(self):
        running = self.start("one", "run-1", 100, 200, pause="step-00000100/model.bin")
        with (self.folder / "one/step-00000100/model.bin").open("r+b") as file:
            file.write(b"changed")
        running.write_line()
        running.lines.expect("^failed 100: .*model.bin' is damaged", 60)
        exit_code, _, errors = running.finish()
        self.assertEqual(exit_code, 0, errors)
        self.assertIn("A checkpoint is not uploaded", errors)
        self.require_newest("two", 200)

    def test_a_container_that_does_not_exist_is_named(self):
        location = f"{self.SCHEME}://nowhere/run"
        for words in (self.words("fetch", "one", location=location),
                      self.words("save", "one", "run-1", 100, location=location)):
            job = self.run_store(*words)
            jobs.require_refusal(self, job, 3, "nowhere", "does not exist")


class AzureCheckpoints(Cases, azurite_test.Azure):
    def without_key(self, permissions, **options):
        return super().without_key() | {
            "AZURE_STORAGE_SAS_TOKEN": self.new_sas(permissions=permissions, **options)}

    def test_signatures(self):
        words = self.words("save", "one", "run-1", 100)
        for environment, says in ((self.without_key("rl"), "access was refused"),
                                  (self.without_key("racwdl", seconds=-60), "which expires at 20")):
            job = self.run_store(*words, environment=environment)
            self.assertEqual(job.exit_code, 3, job)
            self.assertIn(says, job.stderr)
            words = self.words("save", "one", "run-1", 200)
        job = self.run_store(*self.words("save", "one", "run-1", 300), environment=self.without_key("racwdl"))
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.require_stored(200, 300)  # those that could not be uploaded before


class S3Checkpoints(Cases, s3_test.S3):
    pass


class GcsCheckpoints(Cases, gcs_test.Gcs):
    pass


if __name__ == "__main__":
    jobs.require_programs(PROGRAM, STORAGE)
    azurite_test.AZURITE[:] = azurite_emulator.find_azurite()
    s3_test.PYTHON[:] = gcs_test.PYTHON[:] = cloud_emulators.find_emulators()
    unittest.main()
