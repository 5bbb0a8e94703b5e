"""Tests of tests/support/jobs.py: what a test program does where a Python package is missing."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """import sys
sys.path.insert(0, {support!r})
import jobs
jobs.PYTHON = jobs.Path({python!r})
jobs.require_packages("json", {package!r})
print("ran with", sys.executable)
"""


class RequirePackages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.environment = Path(folder.name) / "environment"

    def make_environment(self, *modules):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.environment], check=True)
        (packages,) = self.environment.glob("lib/python*/site-packages")
        for module in modules:
            (packages / f"{module}.py").touch()

    def run_program(self, package):
        """Exit code and output of a program that needs `package`."""
        program = self.environment.with_suffix(".py")
        program.write_text(PROGRAM.format(support=str(ROOT / "tests/support"), package=package,
                                          python=str(self.environment / "bin/python")))
        done = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return done.returncode, done.stdout

    def test_goes_on_where_all_are_there(self):
        self.assertEqual(self.run_program("csv"), (0, f"ran with {sys.executable}\n"))

    def test_goes_on_with_the_environment_that_has_them(self):
        self.make_environment("libtrain_no_such_package")
        self.assertEqual(self.run_program("libtrain_no_such_package"),
                         (0, f"ran with {self.environment / 'bin/python'}\n"))

    def test_fails_where_the_environment_lacks_one(self):
        self.make_environment()
        exit_code, output = self.run_program("libtrain_no_such_package")
        self.assertEqual(exit_code, 1)
        self.assertIn("/bin/python has no libtrain_no_such_package: run scripts/setup.sh --repair", output)

    def test_skips_where_there_is_no_environment(self):
        self.assertEqual(self.run_program("libtrain_no_such_package"),
                         (77, "not run: this environment has no Python with libtrain_no_such_package\n"))


class Programs(unittest.TestCase):
    def test_never_end_as_if_they_had_passed(self):
        for path in sorted((ROOT / "tests").rglob("*.py")):
            if path != Path(__file__).resolve():
                self.assertIsNone(re.search(r"\bexit\((0|None)?\)\n(?!\s*#)", path.read_text()), path)


if __name__ == "__main__":
    unittest.main()
