"""torch's random numbers under run(): the same from run to run, of their own on every rank and with every seed; and that
a run whose numbers cannot be printed fails.
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs


class Seeds(unittest.TestCase):
    def numbers(self, *options, ranks):
        """What the ranks of a run drew first, in rank order."""
        job = jobs.run([jobs.program("fault_program"), "--fault", "draw", *options], ranks=ranks)
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        lines = [line for line in job.stdout.splitlines() if line.startswith("drew ")]
        self.assertEqual(len(lines), ranks or 1, job)
        return lines

    def test_two_runs_draw_the_same(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.assertEqual(self.numbers(ranks=ranks), self.numbers(ranks=ranks))

    def test_no_two_ranks_or_seeds_draw_the_same(self):
        drawn = [numbers for seed in (0, 1) for numbers in self.numbers("--seed", seed, ranks=2)]
        self.assertEqual(len(set(drawn)), 4, drawn)

    def test_rank_0_draws_what_a_single_process_draws(self):
        single = self.numbers("--seed", 5, ranks=None)
        for ranks in (1, 2):
            self.assertEqual(self.numbers("--seed", 5, ranks=ranks)[:1], single)

    def test_a_standard_output_that_is_full_is_an_error(self):
        job = jobs.run(["bash", "-c", 'exec "$@" > /dev/full', "bash", jobs.program("fault_program"), "--fault", "draw",
                        "--output", jobs.temporary_directory(self)])
        jobs.require_refusal(self, job, 3, "Cannot write to standard output")


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
