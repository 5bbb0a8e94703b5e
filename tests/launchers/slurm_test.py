"""Jobs under a real Slurm, of one node: srun without and with MPI, sbatch, steps side by side, and lost ranks."""

import re
import sys
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support"), str(Path(__file__).resolve().parent)]
import digits
import jobs
import slurm

ENVIRONMENT, COMMUNICATION = 3, 4
PAIRS = 20


class SlurmJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm()
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()
        cls.losses = {}

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def digits(self, output, seed):
        return digits.command(self.folder / output, seed)

    def losses_in(self, output):
        return digits.losses_in(self.folder / output)

    def losses_alone(self, seed):
        if seed not in self.losses:
            job = self.slurm.run("srun", "-n", 2, *self.digits(f"alone-{seed}", seed), timeout=digits.TIME_LIMIT_S)
            self.assertEqual(job.returncode, 0, job)
            self.losses[seed] = self.losses_in(f"alone-{seed}")
            self.assertEqual(len(self.losses[seed]), 1)
        return self.losses[seed]

    def test_jobs_that_start_together_train_with_their_own_ranks(self):
        for pair in range(PAIRS):
            seeds = digits.seeds_of(pair)
            expected = [self.losses_alone(seed) for seed in seeds]
            both = [self.slurm.popen("srun", "-n", 2, *self.digits(f"{pair}-{seed}", seed)) for seed in seeds]
            for seed, losses, job in zip(seeds, expected, both):
                stdout, stderr = job.communicate(timeout=digits.TIME_LIMIT_S)
                self.assertEqual(job.returncode, 0, stdout + stderr)
                self.assertEqual(self.losses_in(f"{pair}-{seed}"), losses, f"pair {pair}: {stderr}")

    def test_steps_that_start_together_train_with_their_own_ranks(self):
        for pair in range(PAIRS):
            seeds = digits.seeds_of(pair)
            expected = [self.losses_alone(seed) for seed in seeds]
            steps = [" ".join(map(str, ["srun", "--overlap", "-n", 2, *self.digits(f"step-{pair}-{seed}", seed)]))
                     for seed in seeds]
            script = f"{steps[0]} & first=$!; {steps[1]} & second=$!; wait $first && wait $second"
            job = self.slurm.run("salloc", "-Q", "-n", 2, "bash", "-c", script, timeout=digits.TIME_LIMIT_S)
            self.assertEqual(job.returncode, 0, job)
            for seed, losses in zip(seeds, expected):
                self.assertEqual(self.losses_in(f"step-{pair}-{seed}"), losses, f"pair {pair}: {job}")

    def test_ranks_know_their_job_and_use_its_own_port(self):
        job = self.slurm.run("srun", "-n", 2, jobs.program("libtrain-info"))
        self.assertEqual(job.returncode, 0, job)
        name, = set(re.findall(r"job (Slurm job \d+, step 0) \(SLURM_JOB_ID, SLURM_STEP_ID\)", job.stdout))
        port, = set(re.findall(r"master \S+ port (\d+)", job.stdout))
        other = self.slurm.run("srun", "-n", 2, jobs.program("libtrain-info")).stdout
        self.assertNotIn(name, other)
        self.assertNotIn(f"port {port} ", other)

    def test_mpi_plugins(self):
        expected = self.losses_alone(0)
        for plugin in ("none", "pmi2"):
            with self.subTest(plugin=plugin):
                job = self.slurm.run("srun", f"--mpi={plugin}", "-n", 2, *self.digits(plugin, 0), "--dist-backend", "gloo",
                                     timeout=digits.TIME_LIMIT_S)
                self.assertEqual(job.returncode, 0, job)
                self.assertEqual(self.losses_in(plugin), expected)

    def test_pmix(self):
        job = self.slurm.run("srun", "--mpi=pmix", "-n", 2, *self.digits("pmix", 0), timeout=digits.TIME_LIMIT_S)
        self.assertEqual(job.returncode, 0, job)
        self.assertEqual(self.losses_in("pmix"), self.losses_alone(0))

    def test_sbatch(self):
        script = self.folder / "batch.sh"
        command = " ".join(map(str, self.digits("batch", 1)))
        script.write_text(f"#!/bin/sh\n#SBATCH --ntasks=2 --output={self.folder}/log\nsrun {command}\n")
        job = self.slurm.run("sbatch", "--wait", script, timeout=digits.TIME_LIMIT_S)
        self.assertEqual(job.returncode, 0, (self.folder / "log").read_text())
        self.assertEqual(self.losses_in("batch"), self.losses_alone(1))

    def test_a_batch_script_without_srun_is_told(self):
        script = self.folder / "batch.sh"
        command = " ".join(map(str, self.digits("batch", 1)))
        script.write_text(f"#!/bin/sh\n#SBATCH --ntasks=2 --output={self.folder}/log\n{command}\n")
        self.slurm.run("sbatch", "--wait", script, timeout=digits.TIME_LIMIT_S)
        self.assertIn("SLURM_NTASKS=2 asks for 2 processes, but neither srun nor mpirun has started this one",
                      (self.folder / "log").read_text())

    def start_faulty(self, *options):
        command = [jobs.program("fault_program"), "--output", self.folder / "output", "--timeout", 30, *options]
        return self.slurm.popen("srun", "-n", 2, *command)

    def test_scancel_ends_a_job(self):
        note = self.folder / "note"
        job = self.start_faulty("--fault", "hang-before", "--at-rank", 1, "--note", note)
        jobs.wait_until(note.exists)
        began = time.time()
        self.assertEqual(self.slurm.run("scancel", "--state=RUNNING", "-n", "fault_program").returncode, 0)
        job.communicate(timeout=digits.TIME_LIMIT_S)
        self.assertLess(time.time() - began, 15)
        self.assertNotEqual(job.returncode, 0)

    def test_a_rank_that_is_killed_ends_the_job(self):
        note = self.folder / "note"
        job = self.start_faulty("--fault", "kill", "--at-rank", 1, "--note", note)
        _, stderr = job.communicate(timeout=digits.TIME_LIMIT_S)
        self.assertTrue(note.exists(), stderr)
        self.assertNotEqual(job.returncode, 0, stderr)
        self.assertIn("rank 1", stderr)

    def test_a_rank_that_is_lost_during_the_rendezvous_is_named(self):
        program = " ".join(map(str, [jobs.program("fault_program"), "--output", self.folder / "output", "--timeout", 60,
                                     "--connect-timeout", 12]))
        lost = f"[ $SLURM_PROCID = 1 ] && exit 1; exec {program}"
        began = time.time()
        job = self.slurm.run("srun", "-n", 3, "bash", "-c", lost, timeout=digits.TIME_LIMIT_S)
        host = self.slurm.run("srun", "-n", 1, "printenv", "SLURMD_NODENAME").stdout.strip()
        self.assertIn(f"Still waiting for rank 1 of 3 on {host} at tcp://", job.stderr)
        self.assertIn(f"rank 1 of 3 on {host} did not connect to tcp://", job.stderr)
        self.assertLess(time.time() - began, 40)
        killed = self.slurm.run("srun", "-K", "-n", 3, "bash", "-c", lost, timeout=digits.TIME_LIMIT_S)
        self.assertNotEqual(killed.returncode, 0, killed)
        self.assertNotIn("Still waiting", killed.stderr)


if __name__ == "__main__":
    missing = slurm.missing_programs()
    if missing:
        jobs.skip(f"this machine has no Slurm: {', '.join(missing)}")
    jobs.require_programs("digits", "fault_program", "libtrain-info")
    unittest.main()
