"""Jobs under torchrun with one and two agents, whose ranks are killed and started again."""

import json
import sys
import unittest
import uuid
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support"), str(Path(__file__).resolve().parent)]
import digits
import jobs
import sockets

RESTARTS = 20
PAIRS = 20
TIME_LIMIT_S = 120
# Rank FAULTY kills itself once, in the midst of its work or before it has met the other.
ONCE = """
if [ "$RANK" = "$FAULTY" ] && mkdir "$ONCE" 2>/dev/null; then
  [ "$WHEN" = late ] || kill -9 $$
  exec "$PROGRAM" --output "$OUTPUT" --timeout 60 --fault kill --at-rank "$RANK" --note "$ONCE/note"
fi
exec "$PROGRAM" --output "$OUTPUT" --timeout 60
"""


class Torchrun(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.torchrun = jobs.ROOT / ".deps/bin/torchrun"
        if not self.torchrun.exists():
            self.skipTest("this environment has no torchrun")

    def agents(self, count, *command, environment=None, run=None):
        """Runs `command` under `count` agents with one rank each; returns their ends."""
        port, run = sockets.free_port(), run or uuid.uuid4().hex
        words = [self.torchrun, "--no-python", "--nnodes", count, "--nproc-per-node", 1, "--max-restarts", 3,
                 "--monitor-interval", 0.2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                 "--rdzv-id", run, "--local-addr", "127.0.0.1", *command]
        variables = {"OMP_NUM_THREADS": "1"} | (environment or {})
        return jobs.run(["bash", "-c", 'for agent in $(seq "$1"); do "${@:2}" & agents+=($!); done; '
                         'for agent in "${agents[@]}"; do wait "$agent" || failed=1; done; exit ${failed:-0}',
                         "agents", count, *words], environment=variables, time_limit=TIME_LIMIT_S)

    def require_summary(self, output, job):
        records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual((records[-1]["event"], records[-1]["ranks"]), ("summary", 2), job)

    def test_a_job_of_two_agents_starts_again_whoever_is_killed(self):
        for number in range(RESTARTS):
            faulty, when = number % 2, ("late", "early")[number // 2 % 2]
            with self.subTest(number=number, faulty=faulty, when=when):
                output = self.folder / f"output-{number}"
                job = self.agents(2, "bash", "-c", ONCE, environment={
                    "PROGRAM": jobs.program("fault_program"), "OUTPUT": str(output), "FAULTY": str(faulty),
                    "WHEN": when, "ONCE": str(self.folder / f"once-{number}")})
                self.assertTrue((self.folder / f"once-{number}").exists(), job)
                self.assertEqual(job.exit_code, 0, job)
                self.require_summary(output, job)

    def losses_of(self, names_and_seeds):
        """Runs jobs of two ranks at once, each under an agent of its own, and returns the losses of each."""
        agent = '"$TORCHRUN" --no-python --standalone --local-addr 127.0.0.1 --nproc-per-node 2'
        script = "".join(f'{agent} {" ".join(map(str, digits.command(self.folder / name, seed)))} & jobs+=($!)\n'
                         for name, seed in names_and_seeds)
        job = jobs.run(["bash", "-c", script + 'for job in "${jobs[@]}"; do wait "$job" || failed=1; done; '
                        "exit ${failed:-0}"],
                       environment={"TORCHRUN": str(self.torchrun), "OMP_NUM_THREADS": "1"},
                       time_limit=digits.TIME_LIMIT_S)
        self.assertEqual(job.exit_code, 0, job)
        return [digits.losses_in(self.folder / name) for name, _ in names_and_seeds]

    def test_pairs_that_start_together_train_with_their_own_ranks(self):
        alone = {}
        for pair in range(PAIRS):
            seeds = digits.seeds_of(pair)
            for seed in seeds:
                if seed not in alone:
                    alone[seed], = self.losses_of([(f"alone-{seed}", seed)])
            self.assertEqual(self.losses_of([(f"{pair}-{seed}", seed) for seed in seeds]),
                             [alone[seed] for seed in seeds], f"pair {pair}")

    def test_all_pairs_of_hosts_are_measured(self):
        job = self.agents(2, jobs.program("libtrain-info"), "--check")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("all-reduce of 2 ranks", job.stdout)


if __name__ == "__main__":
    jobs.require_programs("digits", "fault_program", "libtrain-info")
    unittest.main()
