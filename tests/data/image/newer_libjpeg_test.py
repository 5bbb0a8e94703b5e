"""JPEGs are decoded right with another libjpeg-turbo at run time than at build time.

The wheel of Pillow has a libjpeg-turbo 3.x under the soname of Debian's 2.1. Here the tests of data_tests that write
JPEGs run with it, the fast decoder of scans in use.
"""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "support"))
import jobs

SITE_PACKAGES = sorted((jobs.ROOT / ".deps/lib").glob("python3*/site-packages"))
FAST_SCAN = "FastScan.IsUsedWithTheLibjpegOfThisRun"


def suites():
    """Of the sources that write JPEGs."""
    names = {"FastScanCheck"}
    for source in (TESTS / "data/image").glob("*_test.cpp"):
        text = source.read_text()
        if "jpeg_writer.hpp" in text:
            names.update(re.findall(r"^TEST(?:_F)?\((\w+),", text, re.MULTILINE))
    return sorted(names - {"BrokenFastScan"})


class NewerLibjpeg(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        libraries = [path for folder in SITE_PACKAGES for path in folder.glob("pillow.libs/libjpeg-*.so.62*")]
        if len(libraries) != 1:
            raise AssertionError(f"expected Pillow's libjpeg in {jobs.ROOT}/.deps, found {libraries}: run scripts/setup.sh")
        cls.library = libraries[0].resolve()
        cls.folder = jobs.temporary_directory(cls)
        (cls.folder / "libjpeg.so.62").symlink_to(cls.library)

    def test_is_of_another_major_version(self):
        version = re.search(rb"libjpeg-turbo version (\d+)\.", self.library.read_bytes())
        self.assertIsNotNone(version, self.library)
        self.assertGreaterEqual(int(version[1]), 3)

    def test_decodes_as_that_library_does_by_itself(self):
        report = self.folder / "report.json"
        done = subprocess.run(
            [jobs.program("../tests/data_tests"), "--gtest_filter=" + ":".join(f"{name}.*" for name in suites()),
             f"--gtest_output=json:{report}", "--gtest_brief=1"], cwd=jobs.ROOT, capture_output=True, text=True,
            env=os.environ | {"LD_LIBRARY_PATH": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        tests = {f"{suite['name']}.{test['name']}": test for suite in json.loads(report.read_text())["testsuites"]
                 for test in suite["testsuite"]}
        self.assertEqual({name.split(".")[0] for name in tests}, set(suites()))
        self.assertEqual(Path(tests[FAST_SCAN]["libjpeg"]).resolve(), self.library, "another libjpeg was loaded")


if __name__ == "__main__":
    unittest.main()
