"""Tests of scripts/plot_runs.py without matplotlib: what it reads, and what it would draw."""

import contextlib
import io
import math
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import plot_runs

RUN = """{"event":"run","time":100.0,"run_id":"a","config":{"lr":"0.1"}}
{"event":"step","time":101.0,"run_id":"a","step":1,"epoch":1,"loss":2.0,"note":"x","ok":true}
{"event":"step","time":103.5,"run_id":"a","step":2,"epoch":1,"loss":null}
{"event":"step","time":104.0,"run_id":"a","step":3,"epoch":2,"loss":1.0}
{"event":"alert","time":104.0,"run_id":"a","step":3,"kind":"slow_rank","message":"Rank 1 <is> slow."}
{"event":"evaluation","time":105.0,"run_id":"a","epoch":2,"accuracy":0.5}
{"event":"summary","time":106.0,"run_id":"a","loss":1.0}
"""


class Reading(unittest.TestCase):
    def read(self, content):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "metrics.jsonl").write_text(content, encoding="utf-8")
            with contextlib.redirect_stderr(io.StringIO()) as self.errors:
                return plot_runs.read_runs(Path(folder))

    def test_curves_are_the_numbers_of_steps_epochs_and_evaluations(self):
        (run,) = self.read(RUN)
        self.assertEqual(set(run.curves), {"step/loss", "evaluation/accuracy"})
        self.assertEqual((run.config, run.summary), ({"lr": "0.1"}, {"loss": 1.0}))
        self.assertEqual(run.alerts, ["step 3: Rank 1 <is> slow."])

    def test_a_value_that_was_not_finite_is_a_gap(self):
        places, values, label = plot_runs.points(self.read(RUN)[0], "step/loss", None)
        self.assertEqual((places, label), ([1, 2, 3], "step"))
        self.assertEqual([values[0], values[2]], [2.0, 1.0])
        self.assertTrue(math.isnan(values[1]))

    def test_other_axes(self):
        (run,) = self.read(RUN)
        self.assertEqual(plot_runs.points(run, "step/loss", "time")[0], [1.0, 3.5, 4.0])
        self.assertEqual(plot_runs.points(run, "evaluation/accuracy", None), ([2], [0.5], "epoch"))

    def test_steps_that_begin_anew_are_counted_on(self):
        (run,) = self.read("".join(f'{{"event":"step","epoch":{epoch},"step":{step},"loss":1.0}}\n'
                                   for epoch in (1, 2) for step in (0, 1)))
        self.assertEqual(plot_runs.points(run, "step/loss", None)[::2], ([1, 2, 3, 4], "record"))

    def test_runs_of_a_file_are_told_apart(self):
        runs = self.read(RUN + RUN.replace('"run_id":"a"', '"run_id":"b"'))
        self.assertEqual([run.name[-4:] for run in runs], [" (a)", " (b)"])

    def test_damaged_lines_are_named_and_left_out(self):
        (run,) = self.read('{"event":"st\n[]\n' + RUN)
        self.assertEqual(len(run.curves["step/loss"]), 3)
        self.assertRegex(self.errors.getvalue(), "line 1 is left out(.|\n)*line 2 is left out")

    def test_smoothing_passes_over_gaps(self):
        self.assertEqual(plot_runs.smoothed([1.0, math.nan, 3.0, 5.0], 2), [1.0, 1.0, 3.0, 4.0])
        self.assertEqual(plot_runs.smoothed([1.0, 2.0], 1), [1.0, 2.0])

    def test_the_table_begins_with_what_differs_and_escapes(self):
        first, second = self.read(RUN), self.read(RUN.replace('"lr":"0.1"', '"lr":"<2>"'))
        table = plot_runs.table(first + second)
        self.assertLess(table.index("&lt;2&gt;"), table.index("loss"))
        self.assertNotIn("<2>", table)


if __name__ == "__main__":
    unittest.main()
