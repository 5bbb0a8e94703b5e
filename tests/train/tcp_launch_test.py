"""Jobs without MPI: ranks that are plain processes, or torchrun's, connect over TCP, train, and fail together."""

import json
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

COMMUNICATION = 4
TIMEOUT_S = 6  # of faults that nothing else ends; ranks on a busy machine need some of it to start
# Starts the ranks, of which rank 1 may be the one that fails, and leaves with the greatest of their exit codes.
START = """
import os, subprocess, sys
ranks, command = int(sys.argv[1]), sys.argv[2:]
ranks = [subprocess.Popen(command, env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks)} |
                          ({"LIBTRAIN_HOST": f"host {rank % 2}"} if "TWO_HOSTS" in os.environ else {}))
         for rank in range(ranks)]
def end_of(process, seconds):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # as a launcher does with what is left of a job
        return process.wait()
codes = [end_of(process, 20) for process in (ranks[0], ranks[2 % len(ranks)])]
codes.insert(1, end_of(ranks[1], 0.5 if any(codes) else 20))
codes += [end_of(process, 20) for process in ranks[3:]]
print("exit codes", *codes[:len(ranks)])
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""


class TcpLaunch(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def start(self, ranks, *options, environment=None, before=(), timeout_s=60):
        command = [sys.executable, "-c", START, ranks, *before, jobs.program("fault_program"), "--dist-url",
                   f"file://{self.folder}/meet", "--output", self.folder / "output", "--timeout", timeout_s, *options]
        return jobs.run(command, environment={"OMP_NUM_THREADS": "1"} | (environment or {}))

    def require_success(self, job, ranks):
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
        records = [json.loads(line) for line in (self.folder / "output/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(records[-1]["event"], "summary")
        self.assertEqual(records[-1]["ranks"], ranks)
        return records[0]["backend"]

    def test_ranks_of_one_host_share_memory(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                job = self.start(ranks)
                self.assertEqual(self.require_success(job, ranks), "shared_memory")
                self.assertIn(f"{ranks} ranks on 1 host: shared memory", job.stderr)

    def test_shared_memory_can_be_switched_off(self):
        job = self.start(2, environment={"LIBTRAIN_SHARED_MEMORY": "off"})
        self.assertEqual(self.require_success(job, 2), "tcp")

    def test_two_hosts_talk_over_tcp(self):
        job = self.start(4, environment={"TWO_HOSTS": "1"})
        self.assertEqual(self.require_success(job, 4), "shared_memory+tcp")
        self.assertIn("4 ranks on 2 hosts: shared memory inside, tcp between", job.stderr)

    def test_torchrun_starts_ranks(self):
        torchrun = jobs.ROOT / ".deps/bin/torchrun"
        if not torchrun.exists():
            self.skipTest("this environment has no torchrun")
        job = jobs.run([torchrun, "--no-python", "--standalone", "--local-addr", "127.0.0.1",
                        "--nproc-per-node", 2, jobs.program("fault_program"),
                        "--output", self.folder / "output"], environment={"OMP_NUM_THREADS": "1"})
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("2 ranks on 1 host: shared memory", job.stderr)

    def test_a_lost_rank_ends_the_others(self):
        words = {"kill": "rank 1 ", "exit": "rank 1 ", "stop": "rank 1 ", "throw": "The disk caught fire"}
        for shared_memory in ("on", "off"):
            for fault, word in words.items():
                timeout_s, within = (TIMEOUT_S, TIMEOUT_S + 7) if fault == "stop" else (60, 10)
                with self.subTest(fault=fault, shared_memory=shared_memory):
                    note = self.folder / "note"
                    for left in ("note", "meet"):
                        (self.folder / left).unlink(missing_ok=True)
                    job = self.start(3, "--fault", fault, "--note", note,
                                     environment={"LIBTRAIN_SHARED_MEMORY": shared_memory}, timeout_s=timeout_s)
                    self.assertTrue(note.exists(), job)
                    self.assertFalse(job.timed_out, job)
                    self.assertLess(job.ended - note.stat().st_mtime, within, job)
                    # A rank that can still say why it ends says so to the others.
                    told = [word in report for report in job.reports()]
                    self.assertTrue(told == [True] * 3 if fault == "throw" else any(told), job)
                    self.assertEqual(job.left_over, (), job)
                    self.assertRegex(job.stdout, r"exit codes 4 \S+ 4")

    def test_no_rank_ends_well_where_the_result_of_rank_0_is_lost(self):
        full = ["sh", "-c", '[ "$RANK" != 0 ] || exec "$@" > /dev/full; exec "$@"', "sh"]
        for before, fault, code, words in (([], "nan-summary", 2, "The run has ended with NaN or infinity as its result"),
                                           (full, "draw", 3, "Cannot write to standard output")):
            with self.subTest(fault=fault):
                (self.folder / "meet").unlink(missing_ok=True)
                job = self.start(2, "--fault", fault, "--at-rank", 0, before=before)
                self.assertRegex(job.stdout, rf"(?m)^exit codes {code} -?[1-9]", job)
                self.assertIn(words, job.stderr)
                self.assertEqual(job.left_over, (), job)

    def test_a_stale_rendezvous_file_is_named(self):
        (self.folder / "meet").write_bytes(b"\x07\0\0\0\0\0\0\0garbage")
        job = self.start(2)
        self.assertNotEqual(job.exit_code, 0, job)
        self.assertFalse(job.timed_out, job)


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
