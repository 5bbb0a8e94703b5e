"""LibTorch's idle threads spin for as long as libtrain has chosen, unless the user has: libgomp itself says so."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

NAMES = ("_", "OLDPWD", "SHLVL", "PWD", "HOSTNAME")


class OpenMpWaiting(unittest.TestCase):
    def spin_count(self, *variables):
        """What libgomp tells when it is loaded."""
        job = jobs.run(["env", "-i", "OMP_DISPLAY_ENV=verbose", *variables, jobs.program("fault_program"), "--help"])
        self.assertEqual(job.exit_code, 0, job)
        found = re.search(r"GOMP_SPINCOUNT = '(\d+)'", job.stderr)
        self.assertIsNotNone(found, job)
        return int(found[1])

    def test_is_short_where_any_of_the_variables_is_there(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertEqual(self.spin_count("A=1", f"{name}=/somewhere", "Z=1"), 1000)

    def test_is_libgomps_own_where_there_is_no_place(self):
        self.assertGreater(self.spin_count("A=1"), 1000)

    def test_is_what_the_user_says(self):
        self.assertEqual(self.spin_count("PWD=/", "GOMP_SPINCOUNT=7"), 7)
        self.assertEqual(self.spin_count("PWD=/", "OMP_WAIT_POLICY=passive"), 0)
        self.assertGreater(self.spin_count("PWD=/", "OMP_WAIT_POLICY=active"), 1_000_000)


if __name__ == "__main__":
    jobs.require_programs("fault_program")
    unittest.main()
