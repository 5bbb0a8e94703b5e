"""A training that is killed in the middle of an epoch, again and again, ends with the bits of one that nothing has
disturbed, whoever starts it again.
"""

import unittest

from trainings import RESULT, STEPS, Training, jobs, resumed_at

KILLED_AT = (8, 23, 44)  # in both epochs
EVERY = 5  # steps between checkpoints
ADAMW = ("--optimizer", "adamw")
WAYS = {
    "sgd, accumulation": ("--accumulate", 2, "--batch-size", 4),
    "adamw": ADAMW,
    "adamw, average, bfloat16": (*ADAMW, "--average", 0.9, "--precision", "bfloat16"),
    "sharded, average": ("--optimizer", "sharded", "--average", 0.9),
}


class Resume(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.undisturbed = {}

    def new(self, *options, ranks=2):
        """A training, and one that was not disturbed."""
        key = options, ranks
        if key not in self.undisturbed:
            whole = Training(type(self), *options, ranks=ranks)
            job = whole.run()
            self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
            whole.result = RESULT.search(job.stdout)[0]
            self.undisturbed[key] = whole
        return Training(self, *options, ranks=ranks), self.undisturbed[key]

    def require_same(self, training, job, whole):
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        self.assertIn(whole.result, job.stdout)
        self.assertEqual(training.numbers(), whole.numbers())
        self.assertEqual(training.samples(), whole.samples())

    def require_killed_and_resumed(self, training, whole):
        kill = ("--kill-at", ",".join(map(str, KILLED_AT)))
        for killed_at in KILLED_AT:
            before = training.newest()
            job = training.run(*kill)
            self.assertNotIn(job.exit_code, (0, 5), job)
            self.assertEqual((resumed_at(job), job.left_over), (before, ()), job)
            # One more may have been under way.
            newest = (killed_at - 1) // EVERY * EVERY
            self.assertIn(training.newest(), (newest - EVERY, newest), job)
        self.require_same(training, training.run(*kill), whole)

    def test_a_killed_training_ends_as_an_undisturbed_one(self):
        for name, options in WAYS.items():
            with self.subTest(way=name):
                training, whole = self.new(*options)
                self.assertTrue(whole.result.endswith(f"after {STEPS} steps"), whole.result)
                self.require_killed_and_resumed(training, whole)

    def test_a_killed_process_without_a_launcher(self):
        self.require_killed_and_resumed(*self.new("--batch-size", 16, ranks=None))

    def test_two_ranks_continue_in_the_order_of_four(self):
        training, whole = self.new(ranks=4)
        job = training.run("--kill-at", 23)
        self.assertNotIn(job.exit_code, (0, 5), job)
        newest = training.newest()
        training.ranks = 2
        training.new_notes()
        job = training.run()
        self.assertEqual((job.exit_code, resumed_at(job), job.left_over), (0, newest, ()), job)
        self.assertIn("The run had 4 ranks and continues with 2", job.stderr)
        self.assertEqual(training.samples(), whole.samples(after=newest))
        self.assertGreater(len(training.samples()), 0)

    def test_torchrun_starts_killed_ranks_again(self):
        torchrun = jobs.ROOT / ".deps/bin/torchrun"
        if not torchrun.exists():
            self.skipTest("this environment has no torchrun")
        training, whole = self.new(*ADAMW)
        command = [torchrun, "--no-python", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", 2,
                   "--max-restarts", 3, "--monitor-interval", 0.2,
                   *training.command("--kill-at", ",".join(map(str, KILLED_AT)))]
        job = jobs.run(command, environment={"OMP_NUM_THREADS": "1"}, time_limit=120)
        self.assertEqual(len(list(training.notes.glob("killed.*"))), len(KILLED_AT), job)
        self.require_same(training, job, whole)


if __name__ == "__main__":
    jobs.require_programs("resume_program", "checkpoint_program")
    unittest.main()
