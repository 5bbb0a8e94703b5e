"""Tests of bench/compare_coco_loader.py."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_coco_loader
from comparison import ProgramFailed


def record(rate, **more):
    return {"samples_per_core_s": rate, "samples_per_s": 2 * rate, "samples": 8, "batch": 2, "pixels": 1000,
            "objects": 20, "mean": 0.1, "object_pixels": 100} | more


def lines_of(ours, theirs, goal=None):
    results = {"libtrain": [record(each) for each in ours], "torchvision": [record(each) for each in theirs]}
    return [line.split() for line in compare_coco_loader.table(results, goal).splitlines()]


class Table(unittest.TestCase):
    def test_compares_within_a_round(self):
        _, libtrain, torchvision, ratios = lines_of([30, 60, 90], [10, 10, 45])
        self.assertEqual(["libtrain", "60.0", "(30.0-90.0)", "120.0", "(60.0-180.0)"], libtrain)
        self.assertEqual(["torchvision", "10.0", "(10.0-45.0)"], torchvision[:3])
        self.assertEqual(["times", "as", "fast", "3.00", "(2.00-6.00)", "3.00", "(2.00-6.00)"], ratios)  # 3, 6 and 2

    def test_judges_the_rate_per_core_by_the_median_ratio(self):
        self.assertEqual(["goal", ">=", "3.0", "met", "-"], lines_of([30], [10], 3.0)[-1])
        self.assertEqual(["goal", ">=", "3.0", "missed", "-"], lines_of([29], [10], 3.0)[-1])


class Rounds(unittest.TestCase):
    def run_with(self, ours, theirs):
        ran = []

        def program(command, _options):
            ran.append(command[0])
            return ours if command[0] == "ours" else theirs

        former = compare_coco_loader.record_of
        compare_coco_loader.record_of = program
        self.addCleanup(setattr, compare_coco_loader, "record_of", former)
        options = types.SimpleNamespace(program="ours", python="theirs", rounds=2)
        return ran, compare_coco_loader.run_rounds(options)

    def test_swap_the_order(self):
        ran, results = self.run_with(record(2), record(1))
        self.assertEqual(["ours", "theirs", "theirs", "ours"], ran)
        self.assertEqual([2, 2], compare_coco_loader.rates(results["libtrain"], "images/core s"))

    def test_of_different_batches_are_an_error(self):
        for name, value, message in (("objects", 19, "objects are 19, torchvision's 20"), ("pixels", 999, "pixels"),
                                     ("samples", 7, "samples"), ("mean", 0.2, "mean 0.200"),
                                     ("object_pixels", 97, "97 pixels")):
            with self.subTest(name=name), self.assertRaisesRegex(ProgramFailed, message):
                self.run_with(record(2, **{name: value}), record(1))

    def test_masks_may_differ_along_their_outlines(self):
        self.run_with(record(2, object_pixels=98), record(1))


if __name__ == "__main__":
    unittest.main()
