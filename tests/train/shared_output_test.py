"""Runs that are given one output folder: at once, the second is refused; one after the other, both leave their records,
also where the first was killed. Every record says which run it is of.
"""

import json
import os
import signal
import socket
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

ENVIRONMENT = 3
TIME_LIMIT_S = 60


class SharedOutput(unittest.TestCase):
    def setUp(self):
        self.output = jobs.temporary_directory(self) / "output"
        self.metrics = self.output / "metrics.jsonl"

    def run_steps(self, steps, ranks=2):
        return jobs.run([jobs.program("fault_program"), "--steps", steps, "--output", self.output], ranks=ranks,
                        time_limit=TIME_LIMIT_S)

    def records(self):
        """Whole lines, of which a running job may be writing the last."""
        lines = self.metrics.read_text().split("\n")[:-1] if self.metrics.exists() else []
        return [json.loads(line) for line in lines]

    def steps_of(self, run_id):
        return sum(record["event"] == "step" and record["run_id"] == run_id for record in self.records())

    def await_steps(self, count, job):
        """The `run` record of the job, once it has written so many steps."""
        deadline = time.monotonic() + TIME_LIMIT_S
        while time.monotonic() < deadline and not job.done():
            records = self.records()
            if len(records) > count:
                return records[0]
            time.sleep(0.01)
        raise AssertionError("the job has ended" if job.done() else "the job takes no steps")

    def test_the_second_of_two_at_once_is_refused(self):
        with ThreadPoolExecutor(1) as pool:
            first_job = pool.submit(self.run_steps, 10**6)
            first = self.await_steps(1, first_job)
            try:
                for ranks in (2, None):
                    job = self.run_steps(1, ranks)
                    jobs.require_refusal(self, job, ENVIRONMENT, f"run {first['run_id']}", f"process {first['process']}",
                                         f"on {socket.gethostname()}", time.strftime("since %Y-", time.gmtime()),
                                         f"is writing to '{self.metrics}'", "--output")
                # The first one has not noticed.
                self.await_steps(len(self.records()) + 1, first_job)
                self.assertEqual({record["run_id"] for record in self.records()}, {first["run_id"]})
            finally:
                os.kill(first["process"], signal.SIGKILL)
            self.assertNotEqual(first_job.result().exit_code, 0)

        # What the killed one left behind stays, and refuses no later run.
        steps = self.steps_of(first["run_id"])
        job = self.run_steps(3)
        self.assertEqual(job.exit_code, 0, job)
        records = self.records()
        later = [record for record in records if record["run_id"] != first["run_id"]]
        self.assertEqual(self.steps_of(first["run_id"]), steps)
        self.assertEqual([record["event"] for record in later], ["run", "step", "step", "step", "summary"])
        self.assertEqual(records[-5:], later)
        self.assertEqual(len({record["run_id"] for record in later}), 1)
        for record in records:
            self.assertRegex(record["run_id"], r"^[0-9a-f]{32}$")

    def test_runs_one_after_the_other_share_a_folder(self):
        for _ in range(2):
            job = self.run_steps(1)
            self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.assertEqual([record["event"] for record in self.records()], ["run", "step", "summary"] * 2)
        self.assertEqual(len({record["run_id"] for record in self.records()}), 2)

    def test_a_folder_where_the_file_cannot_be_written_is_named(self):
        self.metrics.mkdir(parents=True)
        jobs.require_refusal(self, self.run_steps(1), ENVIRONMENT, f"Cannot open the metrics file '{self.metrics}'")

    def test_a_read_only_folder_is_named(self):
        self.metrics = Path("/sys/kernel/metrics.jsonl")
        self.output = self.metrics.parent
        job = self.run_steps(1)
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertRegex(job.reports()[0], "Cannot open the metrics file '/sys/kernel/metrics.jsonl': " +
                         "(Permission denied|Operation not permitted|Read-only file system)")


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
