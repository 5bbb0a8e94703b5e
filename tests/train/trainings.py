"""Trainings of resume_program, which are interrupted and continue."""

import json
import os
import re
import sys
import uuid
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "checkpoint")]
import checkpoint_jobs
import jobs

TIME_LIMIT_S = 120
STEPS = 60  # of a training on two ranks with the program's defaults
RESULT = re.compile(r"^weights \d+ optimizer \d+( average \d+)? after \d+ steps$", re.MULTILINE)


class Training:
    """One in a folder of its own, with these options in every run."""

    def __init__(self, test, *options, ranks=2):
        self.test, self.options, self.ranks = test, options, ranks
        self.folder = jobs.temporary_directory(test)
        self.output, self.checkpoints = self.folder / "output", self.folder / "output/checkpoints"
        self.new_notes()

    def new_notes(self):
        self.notes = self.folder / f"notes-{uuid.uuid4().hex[:8]}"

    def command(self, *options):
        return [jobs.program("resume_program"), "--output", self.output, "--notes", self.notes, *self.options, *options]

    def run(self, *options, environment=None, **how):
        return jobs.run(self.command(*options), environment={"OMP_NUM_THREADS": "1"} | (environment or {}),
                        **{"ranks": self.ranks, "time_limit": TIME_LIMIT_S} | how)

    def finish(self, *options, **how):
        """Continues until the end; returns what the program prints about its weights and all else that it has trained.
        """
        newest = self.newest()
        job = self.run(*options, **how)
        self.test.assertEqual((job.exit_code, resumed_at(job), job.left_over), (0, newest, ()), job)
        return RESULT.search(job.stdout)[0]

    def newest(self):
        """The step of the newest checkpoint, after all were verified; 0 if there is none."""
        steps = checkpoint_jobs.verified_steps(self.checkpoints) if self.checkpoints.exists() else []
        return steps[-1] if steps else 0

    def numbers(self):
        """Event, step, name and value of what metrics.jsonl says about the training, not about its speed. Of steps
        that were made twice, the later ones count."""
        names = re.compile("loss|learning_rate|accuracy|best|best_step|epoch|epochs|steps")
        records = map(json.loads, (self.output / "metrics.jsonl").read_text().splitlines())
        return {(record["event"], record.get("step"), name): value
                for record in records if record["event"] not in ("run", "alert")
                for name, value in record.items() if names.fullmatch(name)}

    def samples(self, after=0):
        """The numbers of the samples after a step, in the global order: by step, then by rank. Of steps that were made
        twice, the later ones count; of those with several batches, the last batch."""
        steps = {}
        for rank in range(self.ranks or 1):
            path = self.notes / f"samples.{rank}"
            for line in path.read_text().splitlines() if path.exists() else []:
                step, *numbers = map(int, line.split())
                steps[step, rank] = numbers
        return [number for step, rank in sorted(steps) if step > after for number in steps[step, rank]]

    def process(self, rank):
        return int((self.notes / f"process.{rank}").read_text())

    def wait_for_note(self, name, ranks=None):
        def is_there():
            return all((self.notes / f"{name}.{rank}").exists() for rank in ranks)

        ranks = range(self.ranks or 1) if ranks is None else ranks
        is_there.__doc__ = f"{name} of {ranks}"
        jobs.wait_until(is_there, 60)

    def wait_for_checkpoint(self, step):
        def is_there():
            return (self.checkpoints / f"step-{step:08d}").exists()

        is_there.__doc__ = f"a checkpoint of step {step}"
        jobs.wait_until(is_there, 60)

    def go(self):
        (self.notes / "go").touch()


def resumed_at(job):
    """The step from which the run has continued; 0 for one that has begun."""
    found = re.search(r"Loaded the checkpoint of step (\d+) in ", job.stderr)
    return int(found[1]) if found else 0


class Gate:
    """Interrupts the writing of a training's checkpoint of a step, in the midst of its files."""

    def __init__(self, training, step):
        self.path = training.folder / f"gate-{uuid.uuid4().hex[:8]}"
        root = os.path.realpath(training.checkpoints)
        disk = checkpoint_jobs.environment(root=f"{root}/step-{step:08d}", at=3, action="wait")
        self.environment = {name: value for name, value in disk.items() if os.environ.get(name) != value}
        self.environment["FAULTY_DISK_GATE"] = str(self.path)

    def wait(self):
        def is_reached():
            """a checkpoint that is being written"""
            return self.path.with_name(self.path.name + ".reached").exists()

        jobs.wait_until(is_reached, 60)

    def open(self):
        self.path.with_name(self.path.name + ".open").touch()
