"""Tests of bench/compare_mask_rcnn.py."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_mask_rcnn


def records(*seconds):
    return [{"median_s": each, "peak_rss_bytes": 1e9} for each in seconds]


class Table(unittest.TestCase):
    def test_compares_within_a_round(self):
        results = {"same settings": records(1, 2, 4), "torchvision": records(2, 2, 2)}
        lines = [line.split() for line in compare_mask_rcnn.table(results, (1.2, None)).splitlines()]
        # Two times, as fast, and half as fast.
        self.assertEqual(lines[1], ["same", "settings", "2.0000", "(1.0000-4.0000)", "1.00", "(0.50-2.00)", ">=", "1.2",
                                    "missed", "1000"])
        self.assertEqual(lines[2][-2:], ["-", "1000"])

    def test_judges_each_setting_by_its_own_goal(self):
        results = {"same settings": records(1), "torchvision": records(1.5), "default": records(1)}
        lines = compare_mask_rcnn.table(results, (1.2, 1.8)).splitlines()
        self.assertIn(">= 1.2 met", lines[1])
        self.assertIn(">= 1.8 missed", lines[3])


class Rounds(unittest.TestCase):
    def test_swap_the_order_and_leave_out_defaults_without_a_goal(self):
        ran = []

        def program(command, _options, _folder):
            ran.append(" ".join(str(word) for word in command))
            return records(1)[0]

        for name, replacement in ("record_of", program), ("fastest_precision", lambda: "bf16"):
            self.addCleanup(setattr, compare_mask_rcnn, name, getattr(compare_mask_rcnn, name))
            setattr(compare_mask_rcnn, name, replacement)
        options = types.SimpleNamespace(program="ours", python="theirs", workload="step", rounds=2)
        compare_mask_rcnn.run_rounds(options, "folder")
        one_round = ["ours", f"theirs {compare_mask_rcnn.PEER}", "ours --channels-last --precision bf16"]
        self.assertEqual(ran, one_round + one_round[::-1])
        ran.clear()
        options.workload = "nms_2000"
        compare_mask_rcnn.run_rounds(options, "folder")
        self.assertEqual(ran, one_round[:2] + one_round[1::-1])


if __name__ == "__main__":
    unittest.main()
