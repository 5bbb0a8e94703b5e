"""A run that loses its machine, and with it the folder of its checkpoints, goes on from an object store, the Azurite
emulator, and ends with the bits of a run that nothing has disturbed.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "data" / "storage"))
import azurite_emulator
import azurite_test
import emulator_process
import jobs

PROGRAM = "resume_program"


class ResumeFromAStore(azurite_test.Azure):
    def run_job(self, *options):
        """With an output folder of its own."""
        job = jobs.run([jobs.program(PROGRAM), "--output", jobs.temporary_directory(self), *options], ranks=2,
                       time_limit=200, environment=emulator_process.foreign_unset() | self.credentials())
        self.require_no_secret(job.stdout + job.stderr)
        self.assertEqual(job.left_over, (), job)
        return job

    def test_a_run_whose_machine_is_lost_ends_as_an_undisturbed_one(self):
        undisturbed = self.run_job()
        self.assertEqual(undisturbed.exit_code, 0, undisturbed)
        store = ("--store", self.at("/runs/one"))
        for step, resumed in ((17, None), (30, 14)):
            job = self.run_job(*store, "--kill-at-step", step)
            self.assertNotEqual(job.exit_code, 0, job)
            self.assertEqual(f"resumed at step {resumed}\n" in job.stdout, resumed is not None, job)
        last = self.run_job(*store)
        self.assertEqual(last.exit_code, 0, last)
        self.assertIn("resumed at step 28\n", last.stdout)
        self.assertEqual(last.stdout.splitlines()[-1], undisturbed.stdout.splitlines()[-1])

    def test_a_store_that_cannot_be_used_is_one_error(self):
        job = self.run_job("--store", f"{self.SCHEME}://nowhere/run")
        jobs.require_refusal(self, job, 3, "nowhere", "does not exist")
        job = self.run_job("--store", "/local/path")
        jobs.require_refusal(self, job, 2, "CheckpointOptions::store is '/local/path', a local path")


if __name__ == "__main__":
    jobs.require_programs(PROGRAM)
    azurite_test.AZURITE[:] = azurite_emulator.find_azurite()
    unittest.main()
