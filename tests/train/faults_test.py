"""One rank fails, in every way: the whole job ends soon, with one report, the right exit code and nothing left over."""

import json
import re
import socket
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

# Of faults that nothing but the deadline ends. Ranks on a busy machine need some of it to start.
TIMEOUT_S = 6
# The fault and the end are times of one clock of one machine.
SOON_S = 10

USAGE, ENVIRONMENT, COMMUNICATION = 2, 3, 4
KILLED = 128 + 9
# What ranks may leave that fail in their communication, and may be killed while they write.
DUMPS = r"collectives\.rank\d+\.txt(\.partial-\d+-0x[0-9a-f]+)?"


class FaultTest(unittest.TestCase):
    maxDiff = None

    def run_with(self, fault, *, ranks=2, at_rank=1, timeout_s=60, within=SOON_S):
        """A run in which `at_rank` misbehaves. Checks what holds for every fault, and returns the job."""
        folder = jobs.temporary_directory(self)
        note, self.output = folder / "note", folder / "output"
        job = jobs.run([jobs.program("fault_program"), "--fault", fault, "--at-rank", at_rank, "--note", note,
                        "--output", self.output, "--timeout", timeout_s], ranks=ranks)
        self.assertTrue(note.exists(), f"the fault did not happen\n{job}")
        self.faulty_process = int(note.read_text().split()[1])
        self.assertFalse(job.timed_out, job)
        self.assertLess(job.ended - note.stat().st_mtime, within, job)
        self.assertNotEqual(job.exit_code, 0, job)
        self.assertEqual(job.left_over, (), job)
        return job

    def require_report(self, job, rank, ranks, *words):
        """One line of libtrain's, from `rank` or from any of several, that holds all `words`."""
        reports = job.reports()
        self.assertEqual(len(reports), 1, job)
        reporter = "|".join(map(str, rank)) if isinstance(rank, tuple) else rank
        self.assertRegex(reports[0], rf"rank ({reporter}) of {ranks} on {re.escape(socket.gethostname())} "
                                     r"\(process \d+\) failed: ")
        for word in words:
            self.assertIn(word, reports[0])
        return reports[0]

    def require_report_of_faulty_rank(self, job, rank, ranks, *words):
        report = self.require_report(job, rank, ranks, *words)
        self.assertIn(f"(process {self.faulty_process})", report)

    def require_unfinished_metrics(self, besides=r"(?!)"):
        """What rank 0 had written is whole lines, and does not pass for a run that ended well."""
        names = {path.name for path in self.output.iterdir()}
        self.assertEqual({name for name in names if not re.fullmatch(besides, name)}, {"metrics.jsonl"})
        text = (self.output / "metrics.jsonl").read_text()
        self.assertTrue(text.endswith("\n"))
        events = [json.loads(line)["event"] for line in text.splitlines()]
        self.assertEqual(events[0], "run")
        self.assertNotIn("summary", events)

    def require_nothing_written(self):
        self.assertFalse(self.output.exists())

    def require_nothing_written_but(self, names):
        self.assertEqual({path.name for path in self.output.iterdir() if not re.fullmatch(names, path.name)}, set())


class Exceptions(FaultTest):
    def test_any_rank_that_throws_ends_the_job(self):
        for ranks, rank in ((2, 0), (2, 1), (3, 0), (3, 2)):
            with self.subTest(ranks=ranks, rank=rank):
                job = self.run_with("throw", ranks=ranks, at_rank=rank)
                self.assertEqual(job.exit_code, 1, job)
                self.require_report_of_faulty_rank(job, rank, ranks, "The disk caught fire.")
                self.require_unfinished_metrics(besides=DUMPS)  # of ranks that were waiting for it

    def test_a_rank_that_throws_is_reported_although_its_peers_wait_in_another_communicator(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.run_with("throw-with-part", at_rank=rank)
                self.assertEqual(job.exit_code, 1, job)
                self.require_report_of_faulty_rank(job, rank, 2, "The disk caught fire.")
                self.require_unfinished_metrics(besides=DUMPS)

    def test_all_ranks_that_throw_at_once_make_one_report(self):
        job = self.run_with("throw-everywhere", ranks=3, at_rank=0)
        self.assertEqual(job.exit_code, 1, job)
        self.require_report_of_faulty_rank(job, 0, 3, "The disk caught fire.")

    def test_a_rank_that_steps_out_of_order_is_named(self):
        job = self.run_with("double-backward")
        self.assertEqual(job.exit_code, USAGE, job)
        self.require_report(job, 0, 2, "rank 1: Parameter 'head.bias' received a second gradient before wait()")
        self.require_unfinished_metrics()

    def test_parameters_without_a_gradient_are_named(self):
        job = self.run_with("missing-parameter", ranks=3, at_rank=2)
        self.assertEqual(job.exit_code, USAGE, job)
        self.require_report(job, 0, 3, "no gradient to some parameters: rank 2: 3 of 4 parameters", "'head.bias'",
                            "'hidden.bias'", "'hidden.weight'")


class LostRanks(FaultTest):
    def require_loss_reported(self, job, ranks, rank, codes_of_mpirun, words_of_mpirun):
        """mpirun and the rank's peers both notice, and whoever is first ends the job and names the process."""
        if job.reports():
            self.assertIn(job.exit_code, (COMMUNICATION, *codes_of_mpirun), job)
            others = tuple(other for other in range(ranks) if other != rank)
            self.require_report(job, others, ranks,
                                f"rank {rank} (process {self.faulty_process}) exited or was killed")
        else:
            self.assertIn(job.exit_code, codes_of_mpirun, job)
            self.assertRegex(" ".join(job.stderr.split()),
                             rf"process rank {rank} with PID {self.faulty_process} on node \S+ {words_of_mpirun}")
        self.require_unfinished_metrics(besides=DUMPS)

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for ranks, rank in ((2, 1), (3, 0)):
            with self.subTest(ranks=ranks, rank=rank):
                job = self.run_with("kill", ranks=ranks, at_rank=rank)
                self.require_loss_reported(job, ranks, rank, (KILLED,), r"exited on signal 9 \(Killed\)")

    def test_a_rank_that_exits_without_a_word_ends_the_job(self):
        job = self.run_with("exit")
        self.require_loss_reported(job, 2, 1, range(1, 256), "exiting improperly")

    def test_a_stopped_rank_ends_the_job_by_the_timeout(self):
        # With rank 0 lost, several others find out at the same moment.
        for ranks, rank in ((2, 1), (3, 0), (4, 0)):
            with self.subTest(ranks=ranks, rank=rank):
                job = self.run_with("stop", ranks=ranks, at_rank=rank, timeout_s=TIMEOUT_S, within=TIMEOUT_S + 5)
                self.assertEqual(job.exit_code, COMMUNICATION, job)
                others = tuple(other for other in range(ranks) if other != rank)
                self.require_report(job, others, ranks, "all_reduce", f"rank {rank} did not arrive before the deadline")
                self.require_unfinished_metrics(besides=DUMPS)

    def test_a_rank_that_hangs_ends_the_job_by_the_timeout(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                job = self.run_with("hang-before", ranks=ranks, timeout_s=TIMEOUT_S, within=TIMEOUT_S + 5)
                self.assertEqual(job.exit_code, COMMUNICATION, job)
                self.require_report(job, tuple({*range(ranks)} - {1}), ranks, "all_reduce",
                                    "rank 1 did not arrive before the deadline")


class DifferentCalls(FaultTest):
    def test_different_collectives_are_named_with_their_ranks(self):
        for ranks, rank, others in ((2, 1, "rank 0"), (3, 0, "ranks 1 and 2"), (3, 1, "ranks 0 and 2")):
            with self.subTest(ranks=ranks, rank=rank):
                job = self.run_with("different-collective", ranks=ranks, at_rank=rank)
                self.assertEqual(job.exit_code, COMMUNICATION, job)
                # A whole bucket of gradients against the two elements of the odd call.
                calls = {f"rank {rank}": r"2 float32 \(sum\)", others: r"\d+ float32 \(average\)"}
                report = self.require_report(job, 0, ranks, "different collectives")
                for caller, call in calls.items():
                    self.assertRegex(report, f"{caller} called all_reduce of {call}")

    def test_a_rank_that_leaves_early_is_noticed(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.run_with("return", at_rank=rank)
                self.assertEqual(job.exit_code, COMMUNICATION, job)
                self.require_report(job, 0, 2, "different collectives")
                self.require_unfinished_metrics(besides=DUMPS)


    def test_a_rank_that_returns_before_the_set_up_is_told_what_the_others_do(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.run_with("return-early", at_rank=rank)
                self.assertEqual(job.exit_code, COMMUNICATION, job)
                self.require_report(
                    job, 0, 2, "different collectives",
                    f"rank {rank} called all_gather_bytes for the end of run(), whose body has returned",
                    f"rank {1 - rank} called all_gather_bytes for making a GradientSynchronizer")
                self.require_nothing_written_but(DUMPS)


class LateRank(unittest.TestCase):
    def test_a_rank_that_does_not_call_mpi_init_ends_the_job_by_the_timeout(self):
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec sleep 300; fi; exec "$@"'
        output = jobs.temporary_directory(self) / "output"
        job = jobs.run(["bash", "-c", script, "bash", jobs.program("fault_program"), "--fault", "none", "--output",
                        output, "--connect-timeout", 10], ranks=2)
        self.assertEqual((job.exit_code, job.left_over), (COMMUNICATION, ()), job)
        self.assertLess(job.ended - job.began, 10 + SOON_S, job)
        self.assertIn("Still waiting in MPI_Init", job.stderr)
        self.assertEqual(len(job.reports()), 1, job)
        self.assertIn("MPI_Init has not returned before the deadline", job.reports()[0])


class DifferentModels(FaultTest):
    def require_difference(self, fault, rank_0, others, **where):
        job = self.run_with(fault, **where)
        self.assertEqual(job.exit_code, USAGE, job)
        self.require_report(job, 0, where["ranks"], "model differs", f"rank 0 has {rank_0}", others)
        self.require_nothing_written()

    def test_shape(self):
        self.require_difference("shape", "parameter 'hidden.weight' of shape [16, 8]",
                                "rank 1 has parameter 'hidden.weight' of shape [17, 8]", ranks=2, at_rank=1)

    def test_shape_on_rank_0(self):
        self.require_difference("shape", "parameter 'hidden.weight' of shape [17, 8]",
                                "ranks 1 and 2 have parameter 'hidden.weight' of shape [16, 8]", ranks=3, at_rank=0)

    def test_name(self):
        self.require_difference("name", "parameter 'head.weight' of shape [3, 16]",
                                "rank 2 has parameter 'output.weight' of shape [3, 16]", ranks=3, at_rank=2)

    def test_more_parameters(self):
        self.require_difference("count", "nothing (only 4 tensors)",
                                "rank 1 has parameter 'extra.weight' of shape [1, 1]", ranks=2, at_rank=1)

    def test_fewer_parameters(self):
        self.require_difference("count", "parameter 'extra.weight' of shape [1, 1]",
                                "has nothing (only 4 tensors)", ranks=2, at_rank=0)

    def test_dtype(self):
        self.require_difference("dtype", "parameter 'hidden.weight' of shape [16, 8] and dtype Float",
                                "rank 1 has parameter 'hidden.weight' of shape [16, 8] and dtype Double",
                                ranks=2, at_rank=1)


class DifferentWeights(FaultTest):
    def test_a_weight_that_one_rank_changes_after_the_last_step_is_named(self):
        for ranks, others in ((2, "rank 0"), (3, "ranks 0 and 2")):
            with self.subTest(ranks=ranks):
                job = self.run_with("change-weight", ranks=ranks)
                self.assertEqual(job.exit_code, USAGE, job)
                self.require_report(job, 0, ranks, "The replicas have diverged: parameter 'head.bias'",
                                    f"has different values on rank 1 than on {others}")
                self.require_unfinished_metrics()


class NoFault(unittest.TestCase):
    def test_a_sound_run_ends_with_code_0_a_summary_and_no_report(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                output = jobs.temporary_directory(self) / "output"
                job = jobs.run([jobs.program("fault_program"), "--output", output], ranks=ranks)
                self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
                records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual([record["event"] for record in records], ["run"] + ["step"] * 20 + ["summary"])
                self.assertEqual(records[-1]["ranks"], ranks)

    def test_a_summary_that_is_no_number_on_another_rank_than_0_is_not_written_and_not_judged(self):
        output = jobs.temporary_directory(self) / "output"
        job = jobs.run([jobs.program("fault_program"), "--fault", "nan-summary", "--output", output], ranks=2)
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
        self.assertEqual(json.loads((output / "metrics.jsonl").read_text().splitlines()[-1])["result"], 1)


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
