"""Tests of bench/compare_coco_evaluation.py."""

import json
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_coco_evaluation
from comparison import ProgramFailed


def records(bbox, segm=1, read=1, peak=1e9, stats=(0.5, -1)):
    return {kind: {"type": kind, "median_s": seconds, "read_s": read, "peak_rss_bytes": peak, "stats": list(stats)}
            for kind, seconds in (("bbox", bbox), ("segm", segm))}


def lines_of(ours, theirs, goal=None):
    lines = compare_coco_evaluation.table({"libtrain": ours, "pycocotools": theirs}, goal).splitlines()
    return [line.split() for line in lines]


class Table(unittest.TestCase):
    def test_compares_within_a_round(self):
        _, libtrain, pycocotools, ratios = lines_of([records(1), records(2), records(4)],
                                                    [records(20), records(60), records(60)])
        self.assertEqual(["libtrain", "2.000", "(1.000-4.000)"], libtrain[:3])
        self.assertEqual(["pycocotools", "60.000", "(20.000-60.000)"], pycocotools[:3])
        self.assertEqual(["pycocotools/libtrain", "20.0", "(15.0-30.0)"], ratios[:3])  # 20, 30 and 15

    def test_judges_the_evaluations_by_the_median_ratio(self):
        *_, goals = lines_of([records(1, segm=1)], [records(15, segm=14.9)], 15)
        self.assertEqual(["goal", ">=", "15", "met", ">=", "15", "missed", "-", "-"], goals)


class Rounds(unittest.TestCase):
    def run_with(self, found):
        """Runs two rounds with programs that write what `found` says for their names."""
        ran = []

        def program(command, _options):
            name = command[0]
            ran.append(name)
            return found[name]

        former = compare_coco_evaluation.records_of
        compare_coco_evaluation.records_of = program
        try:
            options = types.SimpleNamespace(program="ours", python="theirs", threads=2, rounds=2)
            return ran, compare_coco_evaluation.run_rounds(options)
        finally:
            compare_coco_evaluation.records_of = former

    def test_swap_the_order(self):
        ran, results = self.run_with({"ours": records(1), "theirs": records(2)})
        self.assertEqual(["ours", "theirs", "theirs", "ours"], ran)
        self.assertEqual([1, 1], compare_coco_evaluation.values_of(results["libtrain"], "bbox s"))

    def test_of_different_numbers_are_an_error(self):
        for stats in ((0.5 + 1e-11, -1), (0.5, float("nan"))):
            with self.assertRaisesRegex(ProgramFailed, "numbers of bbox differ"):
                self.run_with({"ours": records(1, stats=stats), "theirs": records(2)})

    def test_are_saved(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "records.jsonl"
            compare_coco_evaluation.save({"libtrain": [records(1), records(2)]}, file)
            saved = [json.loads(line) for line in file.read_text().splitlines()]
            self.assertEqual([("bbox", 0), ("segm", 0), ("bbox", 1), ("segm", 1)],
                             [(each["type"], each["round"]) for each in saved])


if __name__ == "__main__":
    unittest.main()
