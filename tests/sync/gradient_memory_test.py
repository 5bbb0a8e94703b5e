"""Gradients take no second copy: what training adds to a rank's memory, measured against one plain LibTorch process.

The network has 64 MiB of parameters. The plain process grows by them and by as much for the gradients, 128 MiB; a rank
with a GradientSynchronizer may grow by ALLOWED_SHARE of the parameters and ALLOWED_BYTES more, 14.4 MiB together. A
second copy of the gradients, such as buckets beside the gradients that autograd made, adds 64 MiB, 100 % of the
parameters; test_a_second_copy_is_seen keeps one, and sees it.

Counted is anonymous and shared memory, the latter as Pss. Over shared memory each rank maps its peers' buckets where it
reduces them: Rss counts those pages in both processes, as if there were more of them, Pss half in each. Which half is
whose means nothing, so that the mean over the ranks is what is compared.
"""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

RANKS = 2
MIB = 1 << 20
# Buckets are rounded up to pages of 2 MiB: one of 25 MiB by up to 8 %.
ALLOWED_SHARE = 0.1
# For what does not grow with the network: the stack and the malloc arena of the communication thread, what MPI keeps of
# its own buffers of 4 MiB, and code that a single process never runs.
ALLOWED_BYTES = 8 * MIB


class GradientMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)

    def growth(self, what, *options, ranks=None, environment=None):
        """Bytes of memory that a rank has gained, and those of its parameters."""
        job = jobs.run([jobs.program("gradient_memory_program"), *options, "--quiet", "--output", self.folder],
                       ranks=ranks, environment={"OMP_NUM_THREADS": "1"} | (environment or {}))
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        records = [json.loads(line) for line in job.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([record["rank"] for record in records], list(range(ranks or 1)), job)
        print(f"gradient memory, {what}:", *records, sep="\n  ")
        gained = [record["pss_anonymous_bytes"] + record["pss_shared_bytes"] for record in records]
        return sum(gained) / len(gained), records[0]["parameter_bytes"]

    def excess(self, what, *options, **where):
        """Bytes that a rank has gained beyond the plain process, and the most that are allowed."""
        plain, parameter_bytes = self.growth("plain", "--synchronized", 0)
        # Parameters and gradients are seen: otherwise there is nothing to compare with.
        self.assertGreater(plain, 1.95 * parameter_bytes)
        self.assertLess(plain, 2.5 * parameter_bytes)
        gained, _ = self.growth(what, *options, **where)
        print(f"  {(gained - plain) / parameter_bytes:+.1%} of the parameters")
        return gained - plain, ALLOWED_SHARE * parameter_bytes + ALLOWED_BYTES

    def test_two_ranks_over_shared_memory(self):
        excess, allowed = self.excess("shared memory", ranks=RANKS)
        self.assertLessEqual(excess, allowed)

    def test_two_ranks_over_mpi(self):
        excess, allowed = self.excess("mpi", ranks=RANKS, environment={"LIBTRAIN_SHARED_MEMORY": "off"})
        self.assertLessEqual(excess, allowed)

    def test_a_group_of_one(self):
        excess, allowed = self.excess("one rank")
        self.assertLessEqual(excess, allowed)

    def test_a_second_copy_is_seen(self):
        excess, allowed = self.excess("a second copy", "--second-copy", 1, ranks=RANKS)
        self.assertGreater(excess, 3 * allowed)


if __name__ == "__main__":
    jobs.require_programs("gradient_memory_program")
    unittest.main()
