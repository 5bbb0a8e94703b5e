"""What becomes of a training in a folder in which there is one already, or in which there can be none."""

import os
import re
import signal
import subprocess
import unittest

from trainings import RESULT, STEPS, TIME_LIMIT_S, Training, checkpoint_jobs, jobs, resumed_at

USAGE, ENVIRONMENT = 2, 3


def names(folder):
    return sorted(name for name in os.listdir(folder) if name != "lock")


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.whole = Training(cls)
        job = cls.whole.run()
        if job.exit_code != 0:
            raise AssertionError(job)
        cls.result = job.stdout

    def copy(self):
        """A training of its own that has finished."""
        training = Training(self)
        subprocess.run(["cp", "-r", self.whole.output, training.output], check=True)
        return training

    def test_a_finished_training_is_neither_continued_nor_overwritten(self):
        training = self.copy()
        before = names(training.checkpoints)
        job = training.run()
        self.assertEqual((job.exit_code, job.stdout, job.left_over), (0, self.result, ()), job)
        self.assertIn(f"has finished after {STEPS} steps: nothing is trained. Set another --output", job.stderr)
        self.assertEqual((names(training.checkpoints), training.samples()), (before, []))

    def test_a_training_of_another_configuration_is_refused(self):
        for options, difference in ((("--batch-size", 4), "--batch-size is 4 and was 8"),
                                    (("--seed", 5), "--seed is 5 and was 0"),
                                    (("--epochs", 3), "epochs is 3 and was 2")):
            with self.subTest(options=options):
                training = self.copy()
                before = names(training.checkpoints)
                job = training.run(*options)
                jobs.require_refusal(self, job, USAGE, training.output, difference, "--resume none")
                self.assertEqual((names(training.checkpoints), training.samples()), (before, []))

    def test_none_starts_anew_and_loses_nothing(self):
        training = self.copy()
        before = names(training.checkpoints)
        job = training.run("--resume", "none")
        self.assertEqual((job.exit_code, job.stdout, resumed_at(job)), (0, self.result, 0), job)
        former = training.output / "checkpoints.1"
        self.assertIn(f"The checkpoints of the earlier run in '{os.path.realpath(training.checkpoints)}' are now in "
                      f"'{os.path.realpath(former)}'", job.stderr)
        self.assertEqual(names(former), before)
        self.assertEqual(training.samples(), self.whole.samples())

    def test_a_path_continues_from_there_with_any_configuration(self):
        step = 30  # of the end of the first epoch
        for path in (lambda training: training.checkpoints / f"step-{STEPS:08d}", lambda training: training.checkpoints,
                     lambda training: training.output):
            training = self.copy()
            job = training.run("--resume", path(training), "--epochs", 3)
            self.assertEqual((job.exit_code, resumed_at(job)), (0, STEPS), job)
            self.assertIn("epochs is 3 and was 2", job.stderr)
            self.assertEqual(training.newest(), STEPS + step)
        other = Training(self)
        job = other.run("--resume", self.whole.checkpoints / f"step-{STEPS - 5:08d}")
        self.assertEqual((job.exit_code, job.stdout, resumed_at(job)), (0, self.result, STEPS - 5), job)

    def test_a_path_without_a_checkpoint_is_refused(self):
        training = Training(self)
        for path in (training.folder / "nothing", training.folder):
            job = training.run("--resume", path)
            jobs.require_refusal(self, job, ENVIRONMENT, f"--resume: there is no checkpoint in '{path}'")
            self.assertFalse(training.checkpoints.exists())

    def test_a_rank_that_cannot_write_its_share_is_named_and_costs_one_checkpoint(self):
        sharded = ("--optimizer", "sharded")
        undisturbed = Training(self, *sharded).finish()
        training = Training(self, *sharded)
        root = os.path.realpath(training.checkpoints)
        disk = checkpoint_jobs.environment(root=f"{root}/step-00000010", at=2, action="ENOSPC")
        added = {name: value for name, value in disk.items() if os.environ.get(name) != value}
        of_rank_1 = ["bash", "-c", '''[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] || unset FAULTY_DISK_ROOT
            exec "$@"''', "rank"]
        job = jobs.run([*of_rank_1, *training.command()], environment={"OMP_NUM_THREADS": "1"} | added, ranks=2,
                       time_limit=TIME_LIMIT_S)
        self.assertEqual((job.exit_code, RESULT.search(job.stdout)[0]), (0, undisturbed), job)
        self.assertEqual(len(re.findall("A checkpoint was not written, and the training goes on: Rank 1: .*"
                                        "No space left on device", job.stderr)), 1, job)
        self.assertEqual(training.newest(), STEPS)
        self.assertNotIn("partial", " ".join(names(training.checkpoints)))

    def test_the_second_of_two_at_once_is_refused(self):
        training, second = Training(self), Training(self)
        second.output = training.output

        def start_second(process):
            training.wait_for_note("held")
            job = second.run()
            jobs.require_refusal(self, job, ENVIRONMENT, "Another run", "--output")
            self.assertEqual(second.samples(), [])
            training.go()

        job = training.run("--hold-at", "step 8", meanwhile=start_second)
        self.assertEqual((job.exit_code, job.stdout), (0, self.result), job)


class Disks(unittest.TestCase):
    """Single processes on small disks. A checkpoint takes half a megabyte."""

    OPTIONS = ("--optimizer", "adamw", "--width", 4000)

    @classmethod
    def setUpClass(cls):
        mount = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            raise unittest.SkipTest("this environment mounts no tmpfs")

    def run_on_disk(self, training, mounted, script, meanwhile=None, command=None):
        """Runs the bash script, in which `train` is the training and $disk the mounted folder, of 1500 KiB."""
        mounted.mkdir(parents=True)
        start = '''mount -t tmpfs -o size=1500k tmpfs "$disk"
            run=("$@")
            train() { "${run[@]}" "$@" >> "$log" 2>&1; echo "exit code $?"; }
            ''' + script
        log = training.folder / "log"
        job = jobs.run(["unshare", "--mount", "--map-root-user", "bash", "-c", start, "train",
                        *(command or training.command())],
                       environment={"disk": str(mounted), "log": str(log), "OMP_NUM_THREADS": "1"},
                       time_limit=TIME_LIMIT_S, meanwhile=meanwhile)
        self.assertEqual((job.exit_code, job.stderr, job.left_over), (0, "", ()), job)
        return job.stdout.splitlines(), log.read_text()

    def test_a_full_disk_is_warned_of_twice_and_harms_no_checkpoint(self):
        undisturbed = Training(self, *self.OPTIONS, ranks=None)
        training = Training(self, *self.OPTIONS, ranks=None)
        printed, log = self.run_on_disk(training, training.checkpoints, '''
            train; ls "$disk"
            mount -o remount,size=8m tmpfs "$disk"
            train''')
        self.assertEqual(printed, [f"exit code {ENVIRONMENT}", "lock", "step-00000005", "step-00000010", "exit code 0"],
                         log)
        self.assertEqual(len(re.findall("A checkpoint was not written, and the training goes on: .*step-000000.*"
                                        "No space left on device", log)), 2, log)
        self.assertEqual(len(re.findall("(?m)^libtrain: error: .*No space left on device.*Free", log)), 1, log)
        self.assertIn("Loaded the checkpoint of step 10 in ", log)
        self.assertEqual(log.splitlines()[-1], undisturbed.finish())

    def test_a_full_disk_of_all_ranks_is_warned_of_twice(self):
        training = Training(self, "--optimizer", "sharded", "--width", 4000)
        command = [*jobs.mpirun(2), *training.command()]
        printed, log = self.run_on_disk(training, training.checkpoints, 'train; ls "$disk"', command=command)
        self.assertEqual(printed[0], f"exit code {ENVIRONMENT}", log)
        self.assertEqual([name for name in printed[1:] if "partial" not in name],
                         ["lock", "step-00000005", "step-00000010"], log)
        self.assertEqual(len(re.findall("A checkpoint was not written, and the training goes on: ", log)), 2, log)

    def test_a_stop_that_cannot_be_saved_is_an_error(self):
        training = Training(self, *self.OPTIONS, ranks=None)

        def stop(process):
            training.wait_for_note("held")
            os.kill(training.process(0), signal.SIGTERM)
            training.wait_for_note("asked")
            training.go()

        printed, log = self.run_on_disk(training, training.checkpoints, 'train --hold-at "step 12"; ls "$disk"', stop)
        self.assertEqual(printed, [f"exit code {ENVIRONMENT}", "lock", "step-00000005", "step-00000010"], log)
        self.assertEqual(len(re.findall("(?m)^libtrain: error: .*No space left on device.*Free", log)), 1, log)

    def test_rank_0_writes_the_state_of_ranks_that_do_not_see_its_folder(self):
        sharded = ("--optimizer", "sharded")
        undisturbed = Training(self, *sharded).finish()
        training = Training(self, *sharded)
        training.checkpoints.mkdir(parents=True)
        of_rank_1 = ["bash", "-c", '''[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] || exec "$@"
            exec unshare --mount --map-root-user bash -c 'mount -t tmpfs tmpfs "$0" && exec "$@"' "$checkpoints" "$@"
            ''', "rank"]
        job = jobs.run([*of_rank_1, *training.command()], ranks=2, time_limit=TIME_LIMIT_S,
                       environment={"OMP_NUM_THREADS": "1", "checkpoints": str(training.checkpoints)})
        self.assertEqual((job.exit_code, RESULT.search(job.stdout)[0]), (0, undisturbed), job)
        self.assertEqual(job.stderr.count("Rank 1 does not see the folder"), 1, job)
        newest = training.checkpoints / f"step-{training.newest():08d}"
        self.assertEqual([name for name in names(newest) if "optimizer" in name], ["model-optimizer.safetensors"])

    def test_a_read_only_disk_is_named(self):
        for mounted in ("output", "checkpoints"):
            with self.subTest(mounted=mounted):
                training = Training(self, *self.OPTIONS, ranks=None)
                printed, log = self.run_on_disk(training, getattr(training, mounted), '''
                    mount -o remount,ro tmpfs "$disk"
                    train''')
                self.assertEqual(printed, [f"exit code {ENVIRONMENT}"], log)
                self.assertRegex(log, rf"(?m)^libtrain: error: .*{mounted}/.*Read-only file system")


if __name__ == "__main__":
    jobs.require_programs("resume_program", "checkpoint_program")
    unittest.main()
