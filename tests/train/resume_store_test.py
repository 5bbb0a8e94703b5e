"""A training that loses its machine, and with it the folder of its checkpoints, continues from an object store, the
Azurite emulator, and ends with the bits of one that nothing has disturbed.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import json
import os
import re
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "data" / "storage"))
import azurite_emulator
import azurite_test
import emulator_process
from trainings import Training, jobs, resumed_at

STOPPED = 5
OPTIONS = {"adamw": ("--optimizer", "adamw", "--average", 0.9),
           "sharded": ("--optimizer", "sharded")}  # whose state all ranks write


class ResumeFromAStore(azurite_test.Azure):
    def new_machine(self, *options, optimizer="adamw"):
        return Training(self, *OPTIONS[optimizer], *options)

    def run_on(self, training, *options, **how):
        job = training.run(*options, environment=emulator_process.foreign_unset() | self.credentials(), **how)
        self.require_no_secret(job.stdout + job.stderr)
        self.assertEqual(job.left_over, (), job)
        return job

    def stop_at(self, training, step):
        def stop(_process):
            training.wait_for_note("held")
            os.kill(training.process(1), signal.SIGTERM)
            training.wait_for_note("asked", [1])
            training.go()

        return self.run_on(training, "--hold-at", f"step {step}", meanwhile=stop)

    def test_a_training_whose_machines_are_lost_ends_as_an_undisturbed_one(self):
        for optimizer in OPTIONS:
            with self.subTest(optimizer):
                undisturbed = self.new_machine(optimizer=optimizer).finish()
                store = ("--checkpoint-store", self.at(f"/runs/{optimizer}"))
                before = 0
                for step in (17, 41):
                    job = self.stop_at(self.new_machine(*store, optimizer=optimizer), step)
                    self.assertEqual((job.exit_code, resumed_at(job)), (STOPPED, before), job)
                    before = int(re.search(r"has stopped at step (\d+),", job.stderr)[1])
                    self.assertIn(before, (step, step + 1))
                last = self.run_on(self.new_machine(*store, optimizer=optimizer))
                self.assertEqual((last.exit_code, resumed_at(last)), (0, before), last)
                self.assertIn(undisturbed, last.stdout)

    def test_a_finished_training_sends_what_its_last_upload_has_not(self):
        store = "--checkpoint-store", self.at("/runs/unsent")
        machine = self.new_machine(*store)
        self.assertEqual(self.run_on(machine).exit_code, 0)
        last = max(machine.checkpoints.glob("step-*")).name
        self.server.delete("data", f"runs/unsent/checkpoints/{last}/manifest.json")
        job = self.run_on(machine)
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(resumed_at(self.run_on(self.new_machine(*store))), int(last.removeprefix("step-")))

    def test_without_the_best_checkpoint_the_next_best_in_the_store_counts(self):
        store = "--best", "accuracy", "--checkpoint-every", 10, "--checkpoint-store", self.at("/runs/best")
        lost = self.new_machine(*store)
        job = self.stop_at(lost, 47)
        self.assertEqual(job.exit_code, STOPPED, job)
        accuracies = {}
        for manifest in sorted(lost.checkpoints.glob("step-*/manifest.json")):
            accuracy = json.loads(manifest.read_text())["metrics"].get("accuracy")
            if accuracy is not None:
                accuracies[int(manifest.parent.name.removeprefix("step-"))] = accuracy
        best, second = sorted(accuracies, key=lambda step: (-accuracies[step], step))[:2]
        for file in (lost.checkpoints / f"step-{best:08d}").iterdir():
            self.server.delete("data", f"runs/best/checkpoints/step-{best:08d}/{file.name}")
        job = self.run_on(self.new_machine(*store))
        self.assertEqual(job.exit_code, 0, job)
        self.assertRegex(job.stderr, f"The best checkpoint, that of step {best}, is not in .* or in the store. "
                                     f"That of step {second} is the best now.")

    def test_a_store_that_cannot_be_used_is_one_error(self):
        machine = self.new_machine()
        job = self.run_on(machine, "--checkpoint-store", f"{self.SCHEME}://nowhere/run")
        jobs.require_refusal(self, job, 3, "nowhere", "does not exist")
        job = self.run_on(machine, "--checkpoint-store", "/local/path")
        jobs.require_refusal(self, job, 2, "is '/local/path/checkpoints', a local path")
        job = self.run_on(machine, "--checkpoint-store", self.at("/runs/two"), "--resume", "none")
        jobs.require_refusal(self, job, 2, "--resume none does not go with --checkpoint-store")


if __name__ == "__main__":
    jobs.require_programs("resume_program", "checkpoint_program")
    azurite_test.AZURITE[:] = azurite_emulator.find_azurite()
    unittest.main()
