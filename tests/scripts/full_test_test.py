"""Tests of scripts/full_test.sh, with stand-ins for the scripts that it calls."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = {"setup.sh": "exit 0", "fuzz.sh": "echo fuzzed for $1 s",
             "test.sh": 'echo "tests of ${LIBTRAIN_PRESET:-release}: $*"; false; exit ${FAIL-0}'}


class FullTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scripts = Path(folder.name) / "scripts"
        self.scripts.mkdir()
        for name in ("full_test.sh", "lib.sh"):
            shutil.copy(ROOT / "scripts" / name, self.scripts)
        for name, command in STAND_INS.items():
            (self.scripts / name).write_text(f"#!/usr/bin/env bash\n{command}\n")
            (self.scripts / name).chmod(0o755)

    def run_parts(self, *parts, **environment):
        own = {name: value for name, value in os.environ.items() if name != "LIBTRAIN_PRESET"}  # of who runs this test
        done = subprocess.run([self.scripts / "full_test.sh", *parts], env=own | environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def test_every_part_runs_and_the_table_tells_which_failed(self):
        exit_code, output = self.run_parts("push", "tsan", "fuzz", FAIL="7", LIBTRAIN_FUZZ_SECONDS="3")
        self.assertEqual(exit_code, 1)
        self.assertIn("tests of release: -C full\n", output)
        self.assertIn("tests of tsan: \n", output)
        self.assertIn("fuzzed for 3 s\n", output)
        results = re.findall(r"^(\S+) +(passed|failed) +\d+ s$", output, re.MULTILINE)
        self.assertEqual(results, [("push", "failed"), ("tsan", "failed"), ("fuzz", "passed")])
        self.assertTrue(output.endswith("\nfull: 2 of 3 parts failed\n"), output)

    def test_success_is_told(self):
        exit_code, output = self.run_parts("push", "asan")
        self.assertEqual(exit_code, 0, output)
        self.assertTrue(output.endswith("\nfull: 0 of 2 parts failed\n"), output)

    def test_an_unknown_part_is_a_usage_error(self):
        exit_code, output = self.run_parts("push", "no-such-part")
        self.assertEqual(exit_code, 2)
        self.assertIn("usage: scripts/test.sh --full", output)
        self.assertNotIn("==", output)

    def test_the_help_names_every_part(self):
        exit_code, output = self.run_parts("--help")
        self.assertEqual(exit_code, 0)
        (parts,) = re.findall(r"^parts=\((.*)\)$", (ROOT / "scripts/full_test.sh").read_text(), re.MULTILINE)
        for part in parts.split():
            self.assertRegex(output, rf"(?m)^  .*\b{part}\b")


if __name__ == "__main__":
    unittest.main()
