"""scripts/plot_runs.sh with the matplotlib that it installs: what is in its files."""

import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs
from plot_runs_test import RUN


class Drawing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Says what it installs, once.
        subprocess.run([jobs.ROOT / "scripts/plot_runs.sh", "--where"], stdout=subprocess.DEVNULL, check=True)

    def plot(self, *words):
        return subprocess.run([jobs.ROOT / "scripts/plot_runs.sh", *map(str, words)], capture_output=True, text=True,
                              check=False)

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        for name in ("one", "other"):
            (self.folder / name).mkdir()
            (self.folder / name / "metrics.jsonl").write_text(RUN, encoding="utf-8")

    def test_draws_runs_into_a_picture_and_a_page(self):
        done = self.plot(self.folder / "one", self.folder / "other/metrics.jsonl", "--output",
                         self.folder / "new/curves")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("2 values of 2 runs", done.stdout)
        self.assertEqual((self.folder / "new/curves.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        page = (self.folder / "new/curves.html").read_text(encoding="utf-8")
        for part in ("<svg", "step/loss", "evaluation/accuracy", "Rank 1 &lt;is&gt; slow.", str(self.folder / "one")):
            self.assertIn(part, page)

    def test_only_what_is_wanted(self):
        done = self.plot(self.folder / "one", "--values", "^evaluation/", "--output", self.folder / "curves")
        self.assertIn("1 values of 1 runs", done.stdout)

    def test_refuses_what_it_cannot_draw(self):
        for words, reason in (((self.folder / "absent",), "absent"),
                              ((self.folder / "one", "--values", "nothing"), "Check RUN and --values"),
                              ((self.folder / "one", "--values", "("), "regular expression")):
            done = self.plot(*words, "--output", self.folder / "curves")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
