"""train_resnet learns the same on 1, 2 and 4 ranks, undisturbed or killed, and ResNet-50 learns its images by heart."""

import sys
import unittest

import train_resnet_test
from train_resnet_test import jobs


class EqualRanks(train_resnet_test.OnDigits):
    def test_ranks_agree_within_a_point(self):
        accuracies = {}
        for ranks in (1, 2, 4):
            self.setUp()
            accuracies[ranks] = self.accuracy(self.learn(ranks))
        self.assertLessEqual(max(accuracies.values()) - min(accuracies.values()), 0.01 + 1e-9, accuracies)
        self.assertGreaterEqual(min(accuracies.values()), self.ACCURACY, accuracies)


class Overfitting(train_resnet_test.TrainResnet):
    def test_resnet50_learns_512_images_by_heart(self):
        data = jobs.temporary_directory(self) / "digits"
        for split in "train", "val":
            train_resnet_test.digit_images.write(data / split, "train", range(10), 52)
        job = self.run_it("--data", data, "--quiet", "--batch-size", 16, "--epochs", 15, "--learning-rate", 0.4,
                          "--schedule", "cosine", "--min-scale", 1, "--hflip", 0,
                          model=("--model", "resnet50", "--train-size", 64, "--val-size", 64, "--resize", 64),
                          time_limit=1500)
        self.require_success(job)
        self.assertLess(self.records("epoch")[-1]["loss"], 0.1)


if __name__ == "__main__":
    jobs.require_programs("train_resnet")
    unittest.main()
