"""Tests of bench/compare_start_up.py."""

import os
import pathlib
import subprocess
import sys
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_start_up
import comparison
from comparison import ProgramFailed


def python(program):
    return [sys.executable, "-u", "-c", program]


class SecondsToFirstStep(unittest.TestCase):
    def test_end_when_the_line_comes_not_when_the_program_ends(self):
        # The program ends only when its own clock says that a second has passed since the line.
        program = ("import time; print('connecting'); print('first step, 0.1 s'); begin = time.monotonic()\n"
                   "while time.monotonic() < begin + 1: pass")
        begin = time.perf_counter()
        seconds = compare_start_up.seconds_to_first_step(python(program), {})
        whole = time.perf_counter() - begin
        self.assertGreater(seconds, 0)
        self.assertLess(seconds, whole - 0.1)

    def test_count_with_the_given_environment(self):
        program = "import os; print(os.environ['WHAT'])"
        self.assertGreater(compare_start_up.seconds_to_first_step(python(program), {"WHAT": "first step"}), 0)

    def test_of_a_program_that_fails_are_an_error_with_its_last_words(self):
        with self.assertRaisesRegex(ProgramFailed, r"ended with 3:\n.*first step\n.*no more"):
            compare_start_up.seconds_to_first_step(
                python("import sys; print('first step'); print('no more'); sys.exit(3)"), {})

    def test_of_a_program_that_never_takes_it_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "ended with 0 and without a first step"):
            compare_start_up.seconds_to_first_step(python("print('done')"), {})


class Variables(unittest.TestCase):
    def test_let_python_keep_compiled_modules(self):
        environment = {"PYTHONDONTWRITEBYTECODE": "1"} | comparison.variables(types.SimpleNamespace(threads=2))
        program = "import sys; print(sys.dont_write_bytecode, bool(sys.pycache_prefix))"
        done = subprocess.run(python(program), env={**os.environ, **environment}, capture_output=True, text=True)
        self.assertEqual("False True\n", done.stdout)


class Table(unittest.TestCase):
    def test_shows_minimum_and_median_and_compares_run_by_run(self):
        seconds = {"libtrain": [1.0, 3.0, 2.0], "pytorch_ddp": [10.0, 10.0, 5.0]}
        results = {name: [{"first step": each} for each in runs] for name, runs in seconds.items()}
        lines = compare_start_up.table(results).splitlines()
        self.assertEqual(["libtrain", "1.00", "2.00"], lines[1].split())
        self.assertEqual(["pytorch_ddp", "5.00", "10.00"], lines[2].split())
        self.assertEqual("libtrain/pytorch_ddp, run by run: 0.300 (0.100-0.400)", lines[3])


if __name__ == "__main__":
    unittest.main()
