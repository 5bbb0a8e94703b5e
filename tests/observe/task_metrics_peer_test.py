"""libtrain's metrics of tasks beside scikit-learn's and scipy's, on random samples.

Runs itself with the project's Python, which has both. LIBTRAIN_TEST_SEED repeats a failure.
"""

import os
import random
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("sklearn", "scipy")

import numpy as np
import scipy.stats
from sklearn import metrics

TRIALS = 12
TOLERANCE = 1e-12


class TaskMetricsPeer(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("LIBTRAIN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"LIBTRAIN_TEST_SEED={seed}")
        self.rng = np.random.default_rng(seed)

    def expect(self, words, rows, expected):
        text = "".join(" ".join(repr(float(value)) if words[0] == "numbers" else str(int(value)) for value in row) + "\n"
                       for row in rows)
        job = subprocess.run([jobs.program("task_metrics_program"), *map(str, words)], input=text, text=True,
                             capture_output=True, timeout=60)
        self.assertEqual(job.returncode, 0, job.stderr)
        np.testing.assert_allclose([float(line) for line in job.stdout.split()], expected, rtol=0, atol=TOLERANCE)

    def test_one_class_for_each_sample(self):
        for trial in range(TRIALS):
            classes = [2, 2, 3, 7, 40][trial % 5]
            size = self.rng.integers(1, 400)
            labels = self.rng.integers(0, self.rng.integers(1, classes + 1), size)
            guesses = np.where(self.rng.random(size) < 0.6, labels, self.rng.integers(0, classes, size))
            self.expect(["classes", classes], np.stack([labels, guesses], 1), [
                metrics.accuracy_score(labels, guesses),
                metrics.f1_score(labels, guesses, labels=[1], average="macro", zero_division=0),
                metrics.f1_score(labels, guesses, average="macro", zero_division=0),
                metrics.matthews_corrcoef(labels, guesses)])

    def test_several_classes_for_each_sample(self):
        for trial in range(TRIALS):
            classes = [2, 5, 30][trial % 3]
            size = self.rng.integers(1, 200)
            targets = (self.rng.random((size, classes)) < self.rng.random(classes)).astype(int)
            guesses = np.where(self.rng.random((size, classes)) < 0.8, targets, 1 - targets)
            guesses[:, 0] = targets[:, 0] = 0
            self.expect(["several", classes], np.concatenate([targets, guesses], 1), [
                metrics.accuracy_score(targets, guesses),
                metrics.f1_score(targets, guesses, average="micro", zero_division=0),
                metrics.f1_score(targets, guesses, average="macro", zero_division=0)])

    def test_numbers(self):
        for trial in range(TRIALS):
            size = self.rng.integers(3, 500)
            # With ties in every second trial, as the scores of STS-B have them.
            targets = self.rng.normal(2.5, 1, size) if trial % 2 else self.rng.integers(0, 6, size) + 0.0
            targets[:2] = [0, 1]
            guesses = targets * self.rng.normal() + self.rng.normal(0, 1, size)
            guesses = guesses if trial % 4 < 2 else np.round(guesses)
            guesses[:2] = [5, 6]
            self.expect(["numbers"], np.stack([targets, guesses], 1), [
                scipy.stats.pearsonr(targets, guesses)[0], scipy.stats.spearmanr(targets, guesses)[0],
                metrics.mean_squared_error(targets, guesses)])


if __name__ == "__main__":
    jobs.require_programs("task_metrics_program")
    unittest.main()
