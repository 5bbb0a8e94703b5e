"""Tests of scripts/demo_table.py."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import demo_table

SUMMARY = ('{"event": "summary", "ranks": 2, "epochs": 5, "seconds": 3.26, "samples_per_s": 12345.6, "loss": 0.10429,'
           ' "accuracy": 0.9722}')


class Table(unittest.TestCase):
    def test_shows_the_last_summary_in_aligned_columns(self):
        older = SUMMARY.replace('"ranks": 2', '"ranks": 7')
        self.assertEqual(demo_table.table(['{"event": "run"}', older, SUMMARY, ""]),
                         "ranks  epochs  seconds  images/s    loss  held-out accuracy\n"
                         "    2       5      3.3    12,346  0.1043             97.22%")

    def test_refuses_a_run_without_a_summary(self):
        with self.assertRaisesRegex(ValueError, "no summary"):
            demo_table.table(['{"event": "run"}'])

    def test_names_what_a_summary_lacks(self):
        with self.assertRaisesRegex(ValueError, "no value for loss, accuracy"):
            demo_table.table(['{"event": "summary", "ranks": 2, "epochs": 5, "seconds": 3, "samples_per_s": 1}'])


if __name__ == "__main__":
    unittest.main()
