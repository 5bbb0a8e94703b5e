"""Tests of bench/compare_tokenizer.py, and of the text that it makes."""

import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_tokenizer
import make_texts
from comparison import ProgramFailed


def records(ids, offsets=1, tokens=7):
    return {kind: {"kind": kind, "median_s": seconds, "load_s": 1, "peak_rss_bytes": 1e9, "texts": 1, "bytes": 2,
                   "tokens": tokens, "sum": 3}
            for kind, seconds in (("ids", ids), ("offsets", offsets))}


class Table(unittest.TestCase):
    def test_compares_within_a_round_and_judges_by_the_median(self):
        text = compare_tokenizer.table({"libtrain": [records(1), records(2), records(4)],
                                        "tokenizers": [records(20), records(60), records(60, offsets=3.9)]}, 4)
        _, _, theirs, ratios, goals = [line.split() for line in text.splitlines()]
        self.assertEqual(["tokenizers", "60.000", "(20.000-60.000)"], theirs[:3])
        self.assertEqual(["tokenizers/libtrain", "20.0", "(15.0-30.0)"], ratios[:3])  # 20, 30 and 15
        self.assertEqual(["goal", ">=", "4", "met", ">=", "4", "missed", "-", "-"], goals)


class Rounds(unittest.TestCase):
    def run_with(self, found):
        """Runs two rounds with programs that write what `found` says for their names."""
        ran = []

        def program(command, _options):
            ran.append(command[0])
            return found[command[0]]

        former = compare_tokenizer.records_of
        compare_tokenizer.records_of = program
        try:
            return ran, compare_tokenizer.run_rounds(types.SimpleNamespace(program="ours", python="theirs", rounds=2))
        finally:
            compare_tokenizer.records_of = former

    def test_swap_the_order(self):
        ran, results = self.run_with({"ours": records(1), "theirs": records(2)})
        self.assertEqual(["ours", "theirs", "theirs", "ours"], ran)
        self.assertEqual([2, 2], compare_tokenizer.values_of(results["tokenizers"], "ids s"))

    def test_of_different_ids_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "tokens of ids differ"):
            self.run_with({"ours": records(1, tokens=8), "theirs": records(2)})


class MadeTexts(unittest.TestCase):
    def test_are_the_same_for_the_same_seed(self):
        texts = []
        for seed in (1, 1, 2):
            with tempfile.TemporaryDirectory() as folder:
                options = types.SimpleNamespace(folder=pathlib.Path(folder), megabytes=0.05, seed=seed)
                training = make_texts.write_texts(options)
                text = (options.folder / "texts.txt").read_text(encoding="utf-8")
            self.assertTrue(text.startswith("\n".join(training) + "\n"))
            self.assertGreater(len(text.encode()), 50000)
            texts.append(text)
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])


if __name__ == "__main__":
    unittest.main()
