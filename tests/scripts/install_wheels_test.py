"""Tests of scripts/install_wheels.py: what counts as installed, without a network."""

import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import install_wheels


class InstalledBytes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = Path(folder.name)
        self.info = self.site / "scikit_learn-1.9.1.dist-info"
        self.info.mkdir()
        self.module = self.site / "sklearn.py"
        self.module.write_text("x = 1\n")
        (self.info / "INSTALLER").write_text("pip\n")
        self.write_record(f"sklearn.py,sha256=a,6\n{self.info.name}/INSTALLER,sha256=b,4\n{self.info.name}/RECORD,,\n")

    def write_record(self, text):
        (self.info / "RECORD").write_text(text)

    def size(self, name="scikit-learn", version="1.9.1"):
        return install_wheels.installed_bytes(self.site, name, version)

    def test_counts_the_bytes_of_a_whole_package_under_any_spelling(self):
        self.assertEqual(self.size(), 10)
        self.assertEqual(self.size("Scikit.Learn"), 10)
        self.assertEqual(self.size(version=None), 10)

    def test_refuses_another_version_or_package(self):
        self.assertIsNone(self.size(version="1.9"))
        self.assertIsNone(self.size(name="scikit"))

    def test_refuses_a_missing_record(self):
        (self.info / "RECORD").unlink()
        self.assertIsNone(self.size())

    def test_refuses_the_record_that_the_wheel_brought_before_pip_finished(self):
        self.write_record("sklearn.py,sha256=a,6\n")
        self.assertIsNone(self.size())

    def test_refuses_a_truncated_file(self):
        self.module.write_text("x")
        self.assertIsNone(self.size())

    def test_refuses_a_missing_file(self):
        self.module.unlink()
        self.assertIsNone(self.size())

    def test_refuses_a_record_that_is_no_table(self):
        self.write_record("sklearn.py\n")
        self.assertIsNone(self.size())


class ReadPins(unittest.TestCase):
    def read(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            return install_wheels.read_pins(file.name)

    def test_skips_comments_and_blank_lines(self):
        self.assertEqual(self.read("# tools\n\ncmake==3.31.10  # build\nJinja2==3.1.6\n"),
                         [("cmake", "3.31.10"), ("Jinja2", "3.1.6")])

    def test_refuses_an_unpinned_line(self):
        with self.assertRaisesRegex(install_wheels.SetupError, "torch>=2"):
            self.read("torch>=2\n")


class CheckSpace(unittest.TestCase):
    def test_refuses_a_disk_that_is_too_small_in_one_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            installation = install_wheels.Installation(folder)
            installation.check_space(install_wheels.INSTALLED_BYTES)
            with unittest.mock.patch("shutil.disk_usage") as usage:
                usage.return_value.free = 1_000_000_000
                with self.assertRaisesRegex(install_wheels.SetupError, r"needs 8\.0 GB .* has 1\.0 GB"):
                    installation.check_space(0)


if __name__ == "__main__":
    unittest.main()
