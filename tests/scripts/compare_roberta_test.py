"""Tests of bench/compare_roberta.py."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_roberta
from comparison import ProgramFailed


def records(*seconds, peak=1e9, parameters=7):
    return [{"median_s": each, "peak_rss_bytes": peak, "tokens": 10.0, "parameters": parameters} for each in seconds]


class Table(unittest.TestCase):
    def test_compares_within_a_round_and_judges_each_by_its_own_goal(self):
        results = {"same settings": records(1, 2, 4), "default": records(1, 1, 1, peak=0.7e9),
                   "transformers": records(2, 2, 2)}
        lines = compare_roberta.table(results, (1.1, 1.8)).splitlines()
        self.assertEqual(lines[1].split(), ["same", "settings", "10", "2.0000", "(1.0000-4.0000)", "1.00", "(0.50-2.00)",
                                            "1.1", "missed", "1000", "1.00", "0.75", "missed"])
        self.assertEqual(lines[2].split()[5:], ["(2.00-2.00)", "1.8", "met", "700", "0.70", "0.75", "met"])
        self.assertEqual(lines[3].split()[-4:], ["-", "1000", "1.00", "-"])

    def test_has_no_verdict_without_a_goal(self):
        results = {"same settings": records(1), "default": records(1), "transformers": records(2)}
        lines = compare_roberta.table(results, (None, 2.5)).splitlines()
        self.assertEqual(lines[1].split()[7], "-")
        self.assertIn("2.5 missed", lines[2])


class Rounds(unittest.TestCase):
    def test_swap_the_order(self):
        ran = []

        def program(command, _options, _folder):
            ran.append(" ".join(str(word) for word in command))
            return records(1)[0]

        for name, replacement in ("record_of", program), ("fastest_precision", lambda: "bf16"):
            self.addCleanup(setattr, compare_roberta, name, getattr(compare_roberta, name))
            setattr(compare_roberta, name, replacement)
        compare_roberta.run_rounds(types.SimpleNamespace(program="ours", python="theirs", rounds=2), "folder")
        one_round = ["ours", "ours --precision bf16", f"theirs {compare_roberta.PEER}"]
        self.assertEqual(ran, one_round + one_round[::-1])

    def test_refuse_other_models(self):
        results = {"same settings": records(1), "default": records(1), "transformers": records(1, parameters=8)}
        with self.assertRaisesRegex(ProgramFailed, "numbers of parameters"):
            compare_roberta.require_equal_models(results)


if __name__ == "__main__":
    unittest.main()
