"""Pairs of jobs that mpirun starts at once, whose ranks connect over MPI and over TCP."""

import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support"), str(Path(__file__).resolve().parent)]
import digits
import jobs

PAIRS = 20


class Mpirun(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def start_together(self, names, commands):
        """Runs one job of two ranks a command, all at once, and returns the losses of each."""
        words = [[*jobs.mpirun(2), *command] for command in commands]
        script = "".join(f'{" ".join(map(str, job))} & jobs+=($!)\n' for job in words)
        job = jobs.run(["bash", "-c", script + 'for job in "${jobs[@]}"; do wait "$job" || failed=1; done; '
                        "exit ${failed:-0}"], environment={"OMP_NUM_THREADS": "1"}, time_limit=digits.TIME_LIMIT_S)
        self.assertEqual(job.exit_code, 0, job)
        return [digits.losses_in(self.folder / name) for name in names]

    def require_pairs_to_keep_apart(self, *options):
        alone = {}
        for pair in range(PAIRS):
            seeds = digits.seeds_of(pair)
            for seed in seeds:
                if seed not in alone:
                    name = f"alone-{seed}"
                    alone[seed], = self.start_together([name], [[*digits.command(self.folder / name, seed), *options]])
            names = [f"{pair}-{seed}" for seed in seeds]
            commands = [[*digits.command(self.folder / name, seed), *options] for name, seed in zip(names, seeds)]
            self.assertEqual(self.start_together(names, commands), [alone[seed] for seed in seeds], f"pair {pair}")
        self.assertEqual(len(set(map(tuple, alone.values()))), len(alone), "each seed has losses of its own")

    def test_pairs_over_mpi_keep_apart(self):
        self.require_pairs_to_keep_apart()

    def test_pairs_over_tcp_keep_apart(self):
        self.require_pairs_to_keep_apart("--dist-backend", "gloo")


if __name__ == "__main__":
    jobs.require_programs("digits")
    unittest.main()
