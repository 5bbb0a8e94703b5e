"""A run that is killed in the middle of an epoch, once or several times, goes on from its newest checkpoint and ends with
the bits of a run that nothing has disturbed.
"""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs


class Resume(unittest.TestCase):
    def run_job(self, output, *options, ranks):
        return jobs.run([jobs.program("resume_program"), "--output", output, *options], ranks=ranks, time_limit=120)

    def finish(self, output, *options, ranks):
        """The last line of a run that succeeds, and the step at which it was resumed, or None."""
        job = self.run_job(output, *options, ranks=ranks)
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        resumed = re.search(r"^resumed at step (\d+)$", job.stdout, re.MULTILINE)
        return job.stdout.splitlines()[-1], int(resumed[1]) if resumed else None

    def test_a_killed_run_ends_as_an_undisturbed_one(self):
        for ranks in (None, 2):
            with self.subTest(ranks=ranks):
                undisturbed, _ = self.finish(jobs.temporary_directory(self), ranks=ranks)
                self.assertRegex(undisturbed, r"^weights \d+ optimizer \d+ after \d+ steps$")
                output = jobs.temporary_directory(self)
                for step in (5, 17, 30):
                    job = self.run_job(output, "--kill-at-step", step, ranks=ranks)
                    self.assertNotEqual(job.exit_code, 0, job)
                    self.assertEqual(job.left_over, (), job)
                last, resumed = self.finish(output, ranks=ranks)
                self.assertIn(resumed, (14, 21, 28), last)
                self.assertEqual(last, undisturbed)

    def test_fewer_ranks_go_on_with_the_rest_of_the_data(self):
        output = jobs.temporary_directory(self)
        job = self.run_job(output, "--kill-at-step", 16, ranks=2)
        self.assertNotEqual(job.exit_code, 0, job)
        last, resumed = self.finish(output, "--batch-size", 64, ranks=1)
        self.assertIn(resumed, (7, 14), last)
        undisturbed, _ = self.finish(jobs.temporary_directory(self), ranks=2)
        self.assertEqual(last.split(" after ")[1], undisturbed.split(" after ")[1])

    def test_a_finished_run_leaves_its_checkpoints_as_they_are(self):
        output = jobs.temporary_directory(self)
        self.finish(output, ranks=None)
        folder = Path(output) / "checkpoints"
        before = sorted(path.name for path in folder.iterdir())
        last, resumed = self.finish(output, ranks=None)
        self.assertIsNotNone(resumed, last)
        self.assertEqual(before, sorted(path.name for path in folder.iterdir()))


if __name__ == "__main__":
    jobs.require_programs("resume_program")
    unittest.main()
