"""A training that is asked to stop: all ranks stop after the same step with a checkpoint, the job ends with exit code
5, and the same command continues it as if nothing had happened.
"""

import contextlib
import itertools
import os
import signal
import time
import unittest

from trainings import STEPS, Gate, Training, jobs, resumed_at

STOPPED = 5
WITHIN_S = 20
OPTIONS = ("--optimizer", "adamw", "--average", 0.9)
EVERY = 5  # steps between checkpoints


class Stop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.expected = {}

    def undisturbed(self, ranks):
        if ranks not in self.expected:
            training = Training(self, *OPTIONS, ranks=ranks)
            self.expected[ranks] = training.finish(), training.numbers()
        return self.expected[ranks]

    def require_same_end(self, training):
        """The same command, once more, goes to the end."""
        training.new_notes()
        self.assertEqual((training.finish(), training.numbers()), self.undisturbed(training.ranks))

    def send(self, training, process, number, target):
        """Sends the signal, and waits until the ranks that get it have noticed it."""
        if target == "mpirun":
            os.kill(process.pid, number)
            training.wait_for_note("asked")
            return
        ranks = range(training.ranks) if target == "all" else [target]
        for rank in ranks:
            os.kill(training.process(rank), number)
        training.wait_for_note("asked", ranks)

    def require_stop(self, training, number, target, held_at, gate=None):
        """Stops the training while all ranks are held, and, with a gate, a checkpoint is being written."""
        times = {}

        def stop(process):
            training.wait_for_note("held")
            if gate:
                gate.wait()
            self.send(training, process, number, target)
            times["sent"] = time.time()
            training.go()
            if gate:
                gate.open()

        before = training.newest()
        training.new_notes()
        job = training.run("--hold-at", held_at, environment=gate and gate.environment, meanwhile=stop)
        self.assertEqual((job.exit_code, job.left_over), (STOPPED, ()), job)
        self.assertLess(job.ended - times["sent"], WITHIN_S, job)
        self.assertEqual(resumed_at(job), before, job)
        step = training.newest()
        where, held_step = held_at.split()
        self.assertIn(step, (int(held_step), int(held_step) + (where == "step")), job)
        ranks = [0, 1] if target in ("all", "mpirun") else [target]
        reasons = ", ".join(f"{signal.Signals(number).name} on rank {rank}" for rank in ranks)
        self.assertIn(f"The run has stopped at step {step}, in epoch {1 + (step - 1) // 30} of 2 ({reasons}), with a "
                      f"checkpoint in '{os.path.realpath(training.checkpoints)}'.", job.stderr)
        self.assertEqual(job.reports(), [], job)

    def test_any_signal_to_any_process_at_any_time(self):
        # One training is stopped in a step, in the writing of a checkpoint, in an evaluation, and so on.
        signals = [(signal.SIGTERM, 0), (signal.SIGTERM, "all"), (signal.SIGUSR1, "mpirun"), (signal.SIGUSR1, 1),
                   (signal.SIGUSR1, "all")]
        training = Training(self, *OPTIONS)
        places = itertools.cycle(("step", "checkpoint", "evaluation"))
        # Thrice each signal, and each time at another place.
        for stop, (place, (number, target)) in enumerate(zip(places, signals * 3)):
            begin = stop // 3 * 10
            gate = Gate(training, begin + EVERY) if place == "checkpoint" else None
            held_at = {"step": f"step {begin + 3}", "checkpoint": f"step {begin + EVERY + 1}",
                       "evaluation": f"evaluation {begin + 10}"}[place]
            with self.subTest(signal=signal.Signals(number).name, target=target, place=place, step=begin):
                self.require_stop(training, number, target, held_at, gate)
        self.require_same_end(training)

    def test_the_best_checkpoint_is_kept_if_its_evaluation_was_cut_short(self):
        whole, training = [Training(self, *OPTIONS, "--best", "accuracy") for _ in range(2)]
        whole.finish()
        best = whole.numbers()["summary", None, "best_step"]
        self.assertLess(best, STEPS - 3 * EVERY, "it would be kept as one of the last")
        self.require_stop(training, signal.SIGTERM, "all", f"evaluation {best}")
        training.new_notes()
        training.finish()
        self.assertEqual(training.numbers(), whole.numbers())
        training.wait_for_checkpoint(best)

    def test_a_process_without_a_launcher(self):
        training = Training(self, *OPTIONS, ranks=None)

        def stop(process):
            training.wait_for_note("held")
            process.terminate()
            training.wait_for_note("asked")
            training.go()

        job = training.run("--hold-at", "step 7", meanwhile=stop)
        self.assertEqual((job.exit_code, job.left_over), (STOPPED, ()), job)
        self.assertIn("(SIGTERM on rank 0)", job.stderr)
        self.assertIn(training.newest(), (7, 8))
        self.require_same_end(training)

    def require_sudden_end(self, training, end, newest, *options, gate=None):
        """`end(process)` ends the job while all ranks are held, or at the gate; older checkpoints remain."""
        times = {}

        def wait_and_end(process):
            if "--hold-at" in options:
                training.wait_for_note("held")
            if gate:
                gate.wait()
            training.wait_for_checkpoint(newest)
            end(process)
            times["end"] = time.time()

        before = training.newest()
        training.new_notes()
        job = training.run(*options, environment=gate and gate.environment, meanwhile=wait_and_end)
        self.assertNotIn(job.exit_code, (0, STOPPED), job)
        self.assertLess(job.ended - times["end"], WITHIN_S, job)
        self.assertEqual((resumed_at(job), training.newest(), job.left_over), (before, newest, ()), job)

    def test_a_sudden_end_leaves_the_last_complete_checkpoint(self):
        training = Training(self, *OPTIONS)
        for target, held_at, newest, at_gate in (
                (1, "step 8", 5, False), ("mpirun", "step 13", 10, False), (0, "step 16", 10, True),
                ("all", "evaluation 20", 15, False)):
            with self.subTest(target=target, held_at=held_at):
                gate = Gate(training, newest + EVERY) if at_gate else None

                def signal_twice(process):
                    self.send(training, process, signal.SIGUSR1, target)
                    with contextlib.suppress(ProcessLookupError):  # the first rank's end ends the others
                        self.send(training, process, signal.SIGUSR1, target)

                self.require_sudden_end(training, signal_twice, newest, "--hold-at", held_at, gate=gate)
        # In the midst of a checkpoint. mpirun kills its ranks; a terminal sends Ctrl-C to all processes.
        ends = {"SIGTERM to mpirun": lambda process: process.terminate(),
                "Ctrl-C": lambda process: os.killpg(process.pid, signal.SIGINT),
                "SIGKILL to the rank that writes": lambda _: os.kill(training.process(0), signal.SIGKILL),
                "SIGKILL to another rank": lambda _: os.kill(training.process(1), signal.SIGKILL)}
        for newest, (name, end) in zip(range(20, STEPS, EVERY), ends.items()):
            with self.subTest(end=name):
                self.require_sudden_end(training, end, newest, gate=Gate(training, newest + EVERY))
        self.require_same_end(training)

    def test_torchrun_ends_after_its_ranks_have_stopped(self):
        torchrun = jobs.ROOT / ".deps/bin/torchrun"
        if not torchrun.exists():
            self.skipTest("this environment has no torchrun")
        training = Training(self, *OPTIONS)
        command = [torchrun, "--no-python", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", 2,
                   "--max-restarts", 3, "--monitor-interval", 0.2, *training.command("--hold-at", "step 8")]

        def stop(process):
            training.wait_for_note("held")
            process.terminate()
            training.wait_for_note("asked")
            training.go()

        job = jobs.run(command, environment={"OMP_NUM_THREADS": "1"}, time_limit=120, meanwhile=stop)
        self.assertEqual((job.exit_code != 0, job.left_over), (True, ()), job)
        self.assertIn("(SIGTERM on rank 0, SIGTERM on rank 1)", job.stderr)
        self.assertIn(training.newest(), (8, 9), job)
        self.require_same_end(training)

    def test_a_limit_in_minutes(self):
        training = Training(self, *OPTIONS, "--epochs", 100000)
        steps = [0]
        for _ in range(2):
            job = training.run("--max-minutes", 0.04, "--checkpoint-every", 0)
            self.assertEqual((job.exit_code, job.left_over), (STOPPED, ()), job)
            self.assertIn("(--max-minutes on rank ", job.stderr)
            self.assertEqual(resumed_at(job), steps[-1], job)
            steps.append(training.newest())
        self.assertLess(steps[1], steps[2])


if __name__ == "__main__":
    jobs.require_programs("resume_program", "checkpoint_program", "libfaulty_disk.so")
    unittest.main()
