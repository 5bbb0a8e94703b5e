"""train_resnet: its recipes, what it learns from image files on any number of ranks, and what it refuses."""

import json
import math
import os
import re
import resource
import shutil
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import digit_images
import jobs

jobs.require_packages("PIL", "numpy", "safetensors")
from safetensors.numpy import load_file

USAGE, ENVIRONMENT = 2, 3
SMALL = ("--model", "resnet8", "--train-size", 32, "--val-size", 32, "--resize", 32)


class TrainResnet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = jobs.temporary_directory(cls) / "few"
        digit_images.write(cls.data / "train", "train", range(10), 4)
        digit_images.write(cls.data / "val", "t10k", range(10), 2)

    def setUp(self):
        self.output = jobs.temporary_directory(self) / "output"

    # By default the program measures at each start which precision is faster on this machine.
    def run_it(self, *options, ranks=2, model=SMALL, precision=("--precision", "float32"), time_limit=120,
               meanwhile=None):
        command = [jobs.program("train_resnet"), *model, *precision, "--output", self.output, "--threads", 1, *options]
        return jobs.run(command, ranks=ranks, time_limit=time_limit, meanwhile=meanwhile)

    def require_success(self, job):
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)

    def records(self, event):
        lines = (self.output / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def copy(self):
        folder = jobs.temporary_directory(self) / "copy"
        shutil.copytree(self.data, folder)
        return folder


class Benchmark(TrainResnet):
    def test_measures_images_per_second_without_data(self):
        for options in (), ("--fp16-allreduce", "--channels-last", "true"):
            job = self.run_it("--batch-size", 4, "--num-warmup-batches", 2, "--num-batches-per-iter", 3, "--num-iters",
                              4, *options, precision=())
            self.require_success(job)
            self.assertIn("No --data: images per second are measured with synthetic images", job.stderr)
            self.assertEqual(len(re.findall(r"(?m)^iteration \d+: [\d.]+ images/s per rank$", job.stderr)), 4, job)
            shown = re.search(r"(?m)^images/s per rank: ([\d.]+) \+-([\d.]+); on 2 ranks: ([\d.]+) \+-([\d.]+)$",
                              job.stderr)
            self.assertIsNotNone(shown, job)
            self.assertAlmostEqual(float(shown[3]), 2 * float(shown[1]), delta=0.11)
            summary = self.records("summary")[-1]
            self.assertEqual(summary["steps"], 2 + 3 * 4)
            self.assertAlmostEqual(summary["images_per_s"], float(shown[3]), delta=0.051)
            # It is no training: nothing of it is kept, and nothing of it continued.
            self.assertEqual(sorted(path.name for path in self.output.iterdir()), ["logs", "metrics.jsonl"])

    def test_measures_from_the_first_step_without_a_warm_up(self):
        job = self.run_it("--batch-size", 4, "--num-warmup-batches", 0, "--num-batches-per-iter", 2, "--num-iters", 3)
        self.require_success(job)
        self.assertEqual(len(re.findall(r"(?m)^iteration \d+: ", job.stderr)), 3, job)
        self.assertEqual(self.records("summary")[-1]["steps"], 2 * 3)

    def test_steps_reuse_the_memory_of_the_first_ones(self):
        def page_faults(iterations):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
            job = jobs.run([jobs.program("train_resnet"), "--batch-size", 8, "--model", "resnet18", "--train-size", 96,
                            "--num-warmup-batches", 1, "--num-batches-per-iter", 5, "--num-iters", iterations,
                            "--output", self.output, "--precision", "float32", "--threads", 1, "--quiet"])
            self.require_success(job)
            shutil.rmtree(self.output)
            return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before

        # Twenty steps; with malloc as it is by default thirty have over 100,000.
        if not any(name.endswith("SAN_OPTIONS") for name in os.environ):  # they have a malloc of their own
            self.assertLess(page_faults(5) - page_faults(1), 2_000)


class Recipes(TrainResnet):
    # The rate for a global batch of 20 images, and its factors in steps 1, 3, 5 and 7 of 8, of which the first two are
    # the warm-up.
    RATES = {
        "goyal": (0.1 * 20 / 256, (0.75, 1, 0.1, 0.01)),
        "torchvision-v1": (0.1 * 20 / 256, (0.75, 1, 0.1, 0.01)),
        "torchvision-v2": (0.5 * 20 / 1024, (0.505, *((1 + math.cos(math.pi * step / 6)) / 2 for step in (1, 3, 5)))),
        "nvidia": (0.256 * 20 / 256, (0.5, *((1 + math.cos(math.pi * step / 6)) / 2 for step in (1, 3, 5)))),
        "lars": (11 * math.sqrt(20 / 3200), (0.5, *((1 - step / 6)**2 for step in (1, 3, 5)))),
    }

    def test_have_their_rates(self):
        for recipe, (rate, factors) in self.RATES.items():
            with self.subTest(recipe=recipe):
                shutil.rmtree(self.output, ignore_errors=True)
                job = self.run_it("--data", self.data, "--recipe", recipe, "--batch-size", 10, "--epochs", 4,
                                  "--warmup-epochs", 1, "--milestones", "2,3")
                self.require_success(job)
                self.assertIn(f"recipe {recipe},", job.stderr)
                self.assertEqual(self.records("run")[0]["config"]["milestones"], "2,3")
                for record, factor in zip(self.records("step"), factors, strict=True):
                    self.assertAlmostEqual(record["learning_rate"], rate * factor, delta=1e-9 * rate, msg=record)
                self.assertTrue((self.output / "model.safetensors").exists())
                evaluations = self.records("evaluation")
                self.assertEqual(len(evaluations), 4)
                for evaluation in evaluations:
                    # Shares of exactly 20 images.
                    for value in evaluation["accuracy"], evaluation["top5_accuracy"]:
                        self.assertAlmostEqual(value * 20, round(value * 20), delta=1e-9)
                    self.assertLessEqual(evaluation["accuracy"], evaluation["top5_accuracy"])

    def test_take_the_rate_of_a_rank(self):
        job = self.run_it("--data", self.data, "--batch-size", 5, "--epochs", 1, "--base-lr", "0.0125", "--accumulate",
                          2)
        self.require_success(job)
        self.assertIn("learning rate 0.05 for 20 images per step", job.stderr)

    def test_accumulated_batches_count(self):
        job = self.run_it("--data", self.data, "--batch-size", 5, "--accumulate", 4, "--epochs", 1)
        self.require_success(job)
        self.assertIn("learning rate 0.015625 for 40 images per step", job.stderr)
        self.assertEqual(self.records("summary")[-1]["steps"], 1)


class Settings(TrainResnet):
    """Two epochs on one rank, whose losses are the same to the last bit unless a setting changes the training."""

    def train(self, *options):
        shutil.rmtree(self.output, ignore_errors=True)
        job = self.run_it("--data", self.data, "--batch-size", 8, "--epochs", 2, "--warmup-epochs", 0, "--recipe",
                          "torchvision-v1", *options, ranks=1)
        self.require_success(job)
        return [epoch["loss"] for epoch in self.records("epoch")], (self.output / "model.safetensors").read_bytes()

    def test_reach_the_training(self):
        plain, _ = self.train()
        self.assertEqual(self.train()[0], plain)
        for setting in (("--optimizer", "lars", "--decay-all", "false"), ("--momentum", 0.5), ("--weight-decay", 0.1),
                        ("--decay-all", "false"), ("--label-smoothing", 0.1), ("--mixup", 0.2), ("--cutmix", 1),
                        ("--trivial-augment",), ("--random-erasing", 1), ("--repetitions", 4), ("--min-scale", 0.9),
                        ("--hflip", 0), ("--zero-init-residual",), ("--accumulate", 2)):
            with self.subTest(setting=setting):
                self.assertNotEqual(self.train(*setting)[0], plain)

    def test_the_average_is_what_is_written(self):
        plain, weights = self.train()
        losses, average = self.train("--ema", "0.9")
        self.assertEqual(losses, plain)
        self.assertNotEqual(average, weights)
        self.assertEqual(self.train("--ema", "0")[1], weights)


class Weights(TrainResnet):
    @classmethod
    def setUpClass(cls):
        cls.data = jobs.temporary_directory(cls) / "some"
        digit_images.write(cls.data / "train", "train", range(10), 40)
        digit_images.write(cls.data / "val", "t10k", range(10), 10)

    def setUp(self):
        super().setUp()
        self.weights = jobs.temporary_directory(self) / "weights.safetensors"
        self.train("--epochs", 5, "--learning-rate", 1.6)
        self.evaluation = self.records("evaluation")[-1]
        self.assertGreater(self.evaluation["accuracy"], 0.2)  # by chance it is 0.1
        shutil.copy(self.output / "model.safetensors", self.weights)
        shutil.rmtree(self.output)

    def train(self, *options):
        job = self.run_it("--data", self.data, "--batch-size", 8, "--warmup-epochs", 1, "--schedule", "cosine",
                          "--min-scale", 0.8, "--hflip", 0, *options)
        self.require_success(job)

    def test_are_evaluated_without_training(self):
        folder = self.copy()
        shutil.rmtree(folder / "train")
        for ranks in 1, 3:
            shutil.rmtree(self.output, ignore_errors=True)
            job = self.run_it("--data", folder, "--batch-size", 3, "--weights", self.weights, "--test-only",
                              ranks=ranks)
            self.require_success(job)
            (evaluation,) = self.records("evaluation")
            self.assertEqual(evaluation["step"], 0)
            for name in "accuracy", "top5_accuracy":
                self.assertAlmostEqual(evaluation[name], self.evaluation[name], delta=1e-12)
                self.assertEqual(self.records("summary")[-1][name], evaluation[name])
            self.assertRegex(job.stderr, r"(?m)^evaluation: accuracy [\d.]+, top5_accuracy [\d.]+$")
            self.assertEqual(sorted(path.name for path in self.output.iterdir()), ["logs", "metrics.jsonl"])

    def test_are_where_a_training_begins(self):
        self.train("--epochs", 1, "--weights", self.weights, "--learning-rate", "1e-12")
        self.assertEqual(self.tensor(self.output / "model.safetensors"), self.tensor(self.weights))

    def tensor(self, path):
        return load_file(path)["fc.weight"].astype("float16").tolist()

    def test_are_refused_for_other_classes_and_reported_for_other_sizes(self):
        folder = self.copy()
        for split in "train", "val":
            (folder / split / "9").rename(folder / split / "90")
        options = ("--weights", self.weights, "--test-only", "--batch-size", 4)
        jobs.require_refusal(self, self.run_it("--data", folder, *options), USAGE, "weights.safetensors", "other names")
        jobs.require_refusal(self, self.run_it(*options), USAGE, "--test-only", "--data")
        jobs.require_refusal(self, self.run_it("--data", folder, "--test-only"), USAGE, "--test-only", "--weights")
        job = self.run_it("--data", self.data, *options, model=(*SMALL[:-1], 40))
        self.require_success(job)
        self.assertIn("is for images of --val-size 32 and --resize 32, and is used with 32 and 40", job.stderr)


class Refusals(TrainResnet):
    def test_of_options(self):
        jobs.require_refusal(self, self.run_it("--data", self.data, model=("--model", "resnet51")), USAGE,
                             "Option --model is 'resnet51'", "resnet50, ")
        for options, part in ((("--schedule", "linear"), "Choose one of milestones, cosine"),
                              (("--milestones", "30;60"), "--milestones is '30;60'"),
                              (("--milestones", "60,30"), "ascending order"),
                              (("--optimizer", "adam"), "sgd, lars"),
                              (("--recipe", "lars", "--decay-all"), "--decay-all false"),
                              (("--recipe", "torchvision-v1", "--optimizer", "lars"), "--decay-all false"),
                              (("--precision", "fp16"), "auto, float32, bfloat16, float16"),
                              (("--batch-size", 0), "--batch-size"), (("--repetitions", 0), "--repetitions"),
                              (("--learning-rate", "nan"), "--learning-rate")):
            with self.subTest(options=options):
                words = (*options, *(() if "--batch-size" in options else ("--batch-size", 4)))
                jobs.require_refusal(self, self.run_it("--data", self.data, *words, precision=()), USAGE, part)
                self.assertFalse((self.output / "checkpoints").exists())

    def test_of_data(self):
        lacks_class = self.copy()
        shutil.rmtree(lacks_class / "val/3")
        empty_class = self.copy()
        for file in (empty_class / "train/3").iterdir():
            file.unlink()
        no_images = jobs.temporary_directory(self)
        for folder, code, parts in ((lacks_class, USAGE, ["different classes"]),
                                    (empty_class, ENVIRONMENT, ["copy/train'", "found none in '3'"]),
                                    (no_images, ENVIRONMENT, [f"{no_images.name}/train"])):
            with self.subTest(parts=parts):
                jobs.require_refusal(self, self.run_it("--data", folder, "--batch-size", 4), code, *parts)

    def test_of_fewer_images_than_a_step_needs(self):
        jobs.require_refusal(self, self.run_it("--data", self.data, "--batch-size", 21), USAGE, "2 ranks",
                             "batch size of 21", "42 samples", "has 40")

    def test_of_fewer_classes_than_the_data_have(self):
        jobs.require_refusal(self, self.run_it("--data", self.data, "--batch-size", 4, "--classes", 9), USAGE,
                             "--classes is 9", "10 classes")


class OnDigits(TrainResnet):
    """On digits of 32x32 pixels, from JPEG files."""

    OPTIONS = ("--quiet", "--batch-size", 8, "--epochs", 12, "--learning-rate", 1.6, "--warmup-epochs", 1, "--schedule",
               "cosine", "--weight-decay", "5e-4", "--min-scale", 0.8, "--hflip", 0, "--zero-init-residual", "false",
               "--label-smoothing", 0.1, "--ema", 0.9)
    ACCURACY = 0.97

    @classmethod
    def setUpClass(cls):
        cls.data = jobs.temporary_directory(cls) / "digits"
        digit_images.write(cls.data / "train", "train", range(10))
        digit_images.write(cls.data / "val", "t10k", range(10))

    def learn(self, ranks, **how):
        job = self.run_it("--data", self.data, *self.OPTIONS, ranks=ranks, time_limit=400, **how)
        self.assertEqual(job.left_over, (), job)
        return job

    def accuracy(self, job):
        self.require_success(job)
        evaluations = self.records("evaluation")
        self.assertEqual(evaluations[-1]["epoch"], 11)
        return evaluations[-1]["accuracy"]

    def kill_a_rank_after_epochs(self, count):
        def epochs():
            """the epochs before the kill"""
            return (self.output / "metrics.jsonl").exists() and len(self.records("epoch")) >= count

        def kill(_):
            jobs.wait_until(epochs, 200)
            ranks = [process for process in jobs.processes_of_this_program()
                     if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/train_resnet")]
            os.kill(ranks[0], signal.SIGKILL)

        return kill


class Learning(OnDigits):
    def test_reaches_the_accuracy_after_a_kill_on_another_number_of_ranks(self):
        job = self.learn(4, meanwhile=self.kill_a_rank_after_epochs(3))
        self.assertNotIn(job.exit_code, (0, 5), job)
        self.assertLess(len(self.records("epoch")), 12)
        job = self.learn(2)
        self.assertIn("The run had 4 ranks and continues with 2", job.stderr)
        self.assertGreaterEqual(self.accuracy(job), self.ACCURACY)


if __name__ == "__main__":
    jobs.require_programs("train_resnet")
    unittest.main()
