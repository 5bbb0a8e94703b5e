"""A build without MPI: one process trains; ranks that MPI started report in one line what to do."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs


class WithoutMpi(unittest.TestCase):
    def run_digits(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            return jobs.run([jobs.program("digits"), "--epochs", "1", "--quiet", "--output", folder],
                            environment=environment)

    def test_one_process_trains(self):
        job = self.run_digits()
        self.assertEqual(job.exit_code, 0, job)

    def test_several_ranks_are_an_environment_error(self):
        job = self.run_digits(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="0",
                              OMPI_COMM_WORLD_LOCAL_SIZE="2")
        jobs.require_refusal(self, job, 3, "built without MPI", "--dist-backend gloo")


if __name__ == "__main__":
    unittest.main()
