"""A job that hangs ends in time, says which rank is where, and every rank that lives leaves its last collectives."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
import ranks

COMMUNICATION = 4
TIMEOUT_S = 6  # of the faults that nothing else ends; ranks on a busy machine need some of it to start
RECORDS = 100

# All gradients of fault_program fit into one bucket.
BUCKET = r"all_reduce of \d+ float32 \(average\) for bucket 0 of 1 \('\w+\.\w+' to '\w+\.\w+'\)"
STATUS = r"all_reduce of \d+ uint8 \(maximum\) for the status of a round"  # behind the last bucket
NUMBER = r"\(collective number (\d+)\)"
SECONDS = r"for \d+\.\d s"
SILENT = "no collective log found"
ROW = re.compile(r"^ *(\d+)  (queued|running|done|failed) +\S+ +\S+ +\S+  (.+)$", re.MULTILINE)


class HangTest(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.output, self.note = self.folder / "output", self.folder / "note"

    def command(self, fault, *options):
        return [jobs.program("fault_program"), "--fault", fault, "--at-rank", 1, "--note", self.note, "--output",
                self.output, "--timeout", TIMEOUT_S, *options]

    def logs(self):
        """By rank, what it wrote."""
        return {int(path.name.removeprefix("collectives.rank").removesuffix(".txt")): path.read_text()
                for path in self.output.glob("collectives.rank*.txt")}

    def logs_of_the_waiting(self):
        """Those of ranks 0 and 2. Rank 1 may write one, too, when mpirun lets a stopped rank go on in order to end it."""
        logs = self.logs()
        self.assertLessEqual({0, 2}, set(logs))
        return {rank: logs[rank] for rank in (0, 2)}

    def require_place(self, said, who, where):
        """A line that says where ranks are; returns the number of the collective."""
        found = re.search(rf"^  {who}: {where} {NUMBER}, {SECONDS}$", said, re.MULTILINE)
        self.assertIsNotNone(found, f"no line '{who}: {where} ...' in\n{said}")
        return int(found[1])

    def require_log(self, log, rank, world_size, where, number, state, call=BUCKET):
        """One rank's file: whole, with the bucket's names, and ending in where the rank is."""
        self.assertRegex(log, rf"\Arun [0-9a-f]+\nrank {rank} of {world_size} on \S+ \(process \d+\), ")
        rows = ROW.findall(log)
        last = [row for row in rows if int(row[0]) == number]
        self.assertEqual([row[1] for row in last], [state], log)
        self.assertRegex(last[0][2], rf"\A{call}\Z")
        self.assertRegex(log, rf"\nThis rank is {where} {call} \(collective number {number}\), for \d+\.\d+ s\n\Z")
        return rows


class UnderMpirun(HangTest):
    def run_with(self, fault, *options, world_size=3, within=TIMEOUT_S + 5):
        job = jobs.run(self.command(fault, *options), ranks=world_size)
        self.assertTrue(self.note.exists(), f"the fault did not happen\n{job}")
        self.assertFalse(job.timed_out, job)
        self.assertEqual(job.exit_code, COMMUNICATION, job)
        self.assertLess(job.ended - self.note.stat().st_mtime, within, job)
        self.assertEqual(job.left_over, (), job)
        self.assertEqual(len(job.reports()), 1, job)
        self.assertIn(f"  Each rank's last collectives are in {self.output}/collectives.rank*.txt.\n", job.stderr)
        return job

    def test_a_stopped_rank_is_the_one_that_wrote_nothing(self):
        job = self.run_with("stop")
        number = self.require_place(job.stderr, "ranks 0 and 2", f"in {BUCKET}")
        self.assertIn(f"  rank 1: {SILENT}", job.stderr)
        for rank, log in self.logs_of_the_waiting().items():
            self.require_log(log, rank, 3, "in", number, "failed")
            self.assertIn("rank 1 did not arrive before the deadline", log)

    def test_a_rank_that_is_busy_elsewhere_says_so(self):
        job = self.run_with("hang-before")
        number = self.require_place(job.stderr, "ranks 0 and 2", f"in {BUCKET}")
        before = self.require_place(job.stderr, "rank 1", f"outside of collectives, after {STATUS}")
        self.assertEqual(before, number - 1, job)
        logs = self.logs()
        self.assertEqual(sorted(logs), [0, 1, 2], job)
        self.require_log(logs[1], 1, 3, "outside of collectives, after", before, "done", STATUS)
        self.assertIn("has not failed, but another rank of this host has", logs[1])

    def test_each_rank_keeps_its_last_hundred_collectives(self):
        job = self.run_with("stop", "--at-step", 2 * RECORDS, "--steps", 3 * RECORDS)
        number = self.require_place(job.stderr, "ranks 0 and 2", f"in {BUCKET}")
        for rank, log in self.logs_of_the_waiting().items():
            rows = self.require_log(log, rank, 3, "in", number, "failed")
            self.assertEqual([int(row[0]) for row in rows], list(range(number - RECORDS + 2, number + 2)))  # the status, too

    def test_different_collectives_are_told_apart(self):
        job = self.run_with("different-collective", within=8)  # noticed at once
        number = self.require_place(job.stderr, "ranks 0 and 2", f"in {BUCKET}")
        self.assertEqual(self.require_place(job.stderr, "rank 1", r"in all_reduce of 2 float32 \(sum\)"), number)

    def test_a_file_of_an_earlier_run_is_not_mistaken(self):
        self.output.mkdir()
        earlier = "run 0123456789abcdef\nrank 1 of 3\n\nThis rank is in barrier (collective number 1), for 1.000 s\n"
        for rank in range(3):
            (self.output / f"collectives.rank{rank}.txt").write_text(earlier)
        job = self.run_with("stop")
        self.require_place(job.stderr, "ranks 0 and 2", f"in {BUCKET}")
        self.assertIn(f"  rank 1: {SILENT}", job.stderr)
        self.assertNotIn(earlier, self.logs_of_the_waiting().values())


class OverTcp(HangTest):
    """Plain processes, which no launcher ends: each reports for itself."""

    def run_with(self, fault, shared_memory):
        command = self.command(fault, "--dist-url", f"file://{self.folder}/meet-{shared_memory}")
        job = ranks.start(self, [command] * 3, [{"LIBTRAIN_SHARED_MEMORY": shared_memory}] * 3)
        # The faulty rank never ends by itself.
        ends = ranks.wait([job[0], job[2]])
        self.assertTrue(self.note.exists(), ends[0])
        for end in ends:
            self.assertFalse(end.timed_out, end)
            self.assertEqual(end.exit_code, COMMUNICATION, end)
            self.assertLess(end.ended - self.note.stat().st_mtime, TIMEOUT_S + 7, end)
        return ends

    def test_ranks_without_a_launcher_say_where_they_are(self):
        for shared_memory in ("on", "off"):
            with self.subTest(shared_memory=shared_memory):
                for left in (self.note, *self.output.glob("collectives*")):
                    left.unlink(missing_ok=True)
                ends = self.run_with("stop", shared_memory)
                for end in ends:
                    self.require_place(end.stderr, "ranks 0 and 2", f"in {BUCKET}")
                    self.assertIn(f"  rank 1: {SILENT}", end.stderr)
                self.assertEqual(sorted(self.logs()), [0, 2])

    def test_a_rank_that_is_busy_elsewhere_says_so(self):
        ends = self.run_with("hang-before", "on")
        self.require_place(ends[0].stderr, "rank 1", f"outside of collectives, after {STATUS}")
        self.assertEqual(sorted(self.logs()), [0, 1, 2])


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
