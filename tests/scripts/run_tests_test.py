"""Tests of scripts/run_tests.py: ctest itself runs programs that skip, and tests/skips.txt is a list of the test's own."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import run_tests

# As GoogleTest 1.12 writes them with --gtest_brief=1.
PASSED = "[==========] 2 tests from 1 test suite ran. (0 ms total)\n[  PASSED  ] 2 tests.\n"
SKIPPED = ("/src/a_test.cpp:7: Skipped\nthere is no moon\n[==========] 2 tests from 1 test suite ran. (0 ms total)\n"
           "[  PASSED  ] 1 test.\n[  SKIPPED ] 1 test.\n")
EMPTY = "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n"
DISABLED = PASSED + "\n  YOU HAVE 2 DISABLED TESTS\n\n"
UNITTEST = """import unittest
class Case(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.skipTest("there's no sun")
    @unittest.skipUnless(False, "no stars")
    def test_c(self): pass
unittest.main()
"""


def unittest_output(*options):
    done = subprocess.run([sys.executable, "-c", UNITTEST, *options], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


class Skips(unittest.TestCase):
    """What is read from the output of a test program."""

    def test_of_googletest_give_their_reason(self):
        self.assertEqual(run_tests.skips_in(SKIPPED), ["there is no moon"])
        self.assertEqual(run_tests.skips_in(SKIPPED.replace("[  SKIPPED ]", "\033[0;32m[  SKIPPED ] \033[m")),
                         ["there is no moon"])

    def test_of_unittest_give_their_reason(self):
        self.assertEqual(run_tests.skips_in(unittest_output("-v")), ["there's no sun", "no stars"])

    def test_without_a_reason_count(self):
        self.assertEqual(run_tests.skips_in(unittest_output()), [run_tests.NO_REASON] * 2)
        self.assertEqual(run_tests.skips_in("[  PASSED  ] 1 test.\n[  SKIPPED ] 3 tests.\n"), [run_tests.NO_REASON] * 3)

    def test_are_programs_without_tests_and_disabled_tests(self):
        self.assertEqual(run_tests.skips_in(EMPTY), ["the program ran no test"])
        self.assertEqual(run_tests.skips_in("Ran 0 tests in 0.000s\n\nOK\n"), ["the program ran no test"])
        self.assertEqual(run_tests.skips_in(DISABLED), ["2 disabled"])

    def test_are_absent_where_all_ran(self):
        self.assertEqual(run_tests.skips_in(PASSED + "Ran 10 tests in 1.2s\n\nOK\n"), [])


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)

    def run_tests(self, tests, rules="", options=()):
        """Exit code and output for tests by name: each what its program prints and its exit code."""
        lines = []
        for name, (output, exit_code) in tests.items():
            (self.tree / name).write_text(output)
            lines += [f'add_test({name} "sh" "-c" "cat {self.tree / name}; exit {exit_code}")',
                      f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77)"]
        (self.tree / "CTestTestfile.cmake").write_text("\n".join(lines))
        (self.tree / "skips.txt").write_text(rules)
        output = io.StringIO()
        path = f"{ROOT / '.deps/bin'}:{os.environ['PATH']}"
        with (mock.patch.object(run_tests, "ALLOWED", self.tree / "skips.txt"),
              mock.patch.dict(os.environ, {"PATH": path}), contextlib.redirect_stdout(output)):
            exit_code = run_tests.main(self.tree, list(options))
        return exit_code, output.getvalue()

    def require_failed(self, exit_code, output, failed, total):
        self.assertNotEqual(exit_code, 0)
        self.assertIn(f"\n{100 * (total - failed) // total}% tests passed, {failed} tests failed out of {total}\n", output)
        self.assertNotIn("100% tests passed", output)

    def test_an_unlisted_skip_in_a_test_that_passed_fails_the_run(self):
        for output in (SKIPPED, EMPTY, DISABLED, unittest_output("-v"), unittest_output()):
            with self.subTest(output=output):
                exit_code, found = self.run_tests({"good": (PASSED, 0), "skips": (output, 0)})
                self.require_failed(exit_code, found, 1, 2)
                reason = run_tests.skips_in(output)[0]
                self.assertRegex(found, rf"does not allow here(.*\n)+  skips: {re.escape(reason)}")

    def test_a_skip_is_found_in_a_long_output(self):
        words = "what a test may print\n" * 20000
        for output, exit_code in ((SKIPPED + words, 0), (words + SKIPPED, 0), (words + "not run: no moon\n", 77)):
            self.require_failed(*self.run_tests({"good": (PASSED, 0), "skips": (output, exit_code)}), 1, 2)

    def test_an_unlisted_exit_code_77_fails_the_run(self):
        exit_code, found = self.run_tests({"good": (PASSED, 0), "skips": ("first\nnot run: no moon\n", 77)})
        self.require_failed(exit_code, found, 1, 2)
        self.assertIn("  skips: not run: no moon\n", found)

    def test_a_listed_skip_is_told_and_passes(self):
        exit_code, found = self.run_tests({"good": (PASSED, 0), "skips.one": (SKIPPED, 0), "other": ("no moon\n", 77)},
                                          "# why\n\nskips.* | no moon | true\nother | no moon | test -d \"$tree\"\n")
        self.assertEqual(exit_code, 0, found)
        self.assertRegex(found, r"tests/skips.txt allows here:\n  other: no moon\n  skips.one: there is no moon\n\n"
                                r"100% tests passed, 0 tests failed out of 3\n\nTotal Test time")

    def test_a_rule_covers_nothing_but_its_test_its_reason_and_its_condition(self):
        for rule in ("other | no moon | true", "skips | no sun | true", "skips | no moon | false"):
            with self.subTest(rule=rule):
                self.require_failed(*self.run_tests({"good": (PASSED, 0), "skips": (SKIPPED, 0)}, rule), 1, 2)

    def test_tests_that_failed_are_counted_once(self):
        exit_code, found = self.run_tests({"good": (PASSED, 0), "skips": (SKIPPED, 0), "both": (SKIPPED, 1)})
        self.require_failed(exit_code, found, 2, 3)
        self.assertEqual(self.run_tests({"bad": (PASSED, 1)})[0], 8)

    def test_other_uses_of_ctest_are_left_alone(self):
        exit_code, found = self.run_tests({"good": (PASSED, 0)}, options=["-N"])
        self.assertEqual(exit_code, 0)
        self.assertIn("Total Tests: 1", found)

    def test_a_damaged_list_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "skips.txt:1: expected 'test . reason . condition', found: skips"):
            self.run_tests({"skips": (SKIPPED, 0)}, "skips: no moon\n")


class List(unittest.TestCase):
    def test_its_conditions_are_commands(self):
        for rule in run_tests.read_rules(run_tests.ALLOWED):
            with self.subTest(rule=rule):
                subprocess.run(["bash", "-n", "-c", rule.condition], check=True)


if __name__ == "__main__":
    unittest.main()
