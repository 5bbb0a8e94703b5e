"""Tests of bench/compare_data_loader.py."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_data_loader
from compare_data_loader import COMPARISONS, CONTESTANTS, CROPS, PYTORCH_CROPS, Program
from comparison import ProgramFailed


def record(rate):
    return {"samples": 64, "samples_per_s": rate, "samples_per_core_s": rate, "bytes_per_core_s": rate}


def lines_of(**rates):
    """The table where libtrain's random resized crop has these rates, round by round, and everything else others."""
    results = {each: [record(rate) for rate in rates["others"]] for each in CONTESTANTS}
    results[CROPS] = [record(rate) for rate in rates["crops"]]
    return compare_data_loader.table(results).splitlines()


def line_with(title, lines):
    return next(line for line in lines if line.startswith(title)).removeprefix(title).split()


class Table(unittest.TestCase):
    def test_compares_within_a_round_and_with_the_goal(self):
        lines = lines_of(crops=[400, 1000, 1000], others=[100, 200, 250])
        # 4, 5 and 4 within a round; the fastest of all rounds are 1000 and 250.
        self.assertEqual(["4.00", "(4.00-5.00)", "4.00", "4.50", "missed"],
                         line_with("random resized crop / PyTorch's loader", lines))
        self.assertEqual(["4.00", "(4.00-5.00)", "4.00", "1.15", "met"],
                         line_with("random resized crop / decode, then crop", lines))

    def test_judges_no_comparison_without_a_goal(self):
        lines = lines_of(crops=[100], others=[100])
        self.assertEqual(["1.00", "(1.00-1.00)", "1.00", "-"],
                         line_with("restart-marked shards / shards without", lines))

    def test_has_a_line_for_every_contestant_and_every_comparison(self):
        lines = lines_of(crops=[100], others=[100])
        self.assertEqual(["pytorch", "random_resized_crop", "1", "1", "100", "(100-100)", "100", "(100-100)", "0",
                          "(0-0)"],
                         next(line.split() for line in lines if line.startswith("pytorch")))
        self.assertEqual(len(CONTESTANTS), sum(line.startswith(("libtrain", "pytorch")) for line in lines))
        self.assertEqual(len(COMPARISONS), sum(" / " in line for line in lines))


class Pictures(unittest.TestCase):
    OURS = {"shape": [64, 3, 224, 224], "dtype": "float16", "channels_last": True, "samples": 64, "mean": 0.1}

    def test_of_one_kind_are_compared(self):
        compare_data_loader.require_same_pictures(self.OURS, self.OURS | {"mean": 0.12})

    def test_that_differ_are_an_error(self):
        for what, value in (("shape", [64, 224, 224, 3]), ("dtype", "float32"), ("channels_last", False),
                            ("samples", 63)):
            with self.subTest(what=what), self.assertRaisesRegex(ProgramFailed, f"libtrain's {what} is .*, PyTorch's "):
                compare_data_loader.require_same_pictures(self.OURS, self.OURS | {what: value})

    def test_that_are_not_normalised_alike_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "the mean 0.100, PyTorch's 0.450"):
            compare_data_loader.require_same_pictures(self.OURS, self.OURS | {"mean": 0.45})


class Rounds(unittest.TestCase):
    def program(self, code):
        program = Program([sys.executable, "-u", "-c", code])
        self.addCleanup(program.close)
        return program

    def test_are_asked_for_and_answered_line_by_line(self):
        program = self.program("import json, sys\n"
                               "for line in sys.stdin: print(json.dumps({'asked': line.split()}))")
        self.assertEqual({"asked": ["random_resized_crop", "1"]}, program.round(CROPS))
        self.assertEqual({"asked": ["random_resized_crop", "2"]}, program.round(CROPS._replace(threads=2)))

    def test_of_two_processes_are_taken_together(self):
        records = [{"mean": 0.5, "samples": 64, "bytes": 640, "median_s": seconds, "min_s": seconds,
                    "median_core_s": 1.5, "min_core_s": 1.5, "samples_per_s": 64 / seconds,
                    "samples_per_core_s": 64 / 1.5, "bytes_per_s": 640 / seconds, "bytes_per_core_s": 640 / 1.5}
                   for seconds in (1, 2)]
        programs = [self.program(f"for line in iter(input, ''): print('{json.dumps(each)}')") for each in records]
        self.assertEqual(records[0] | {"processes": 1}, compare_data_loader.round_of(programs, CROPS))
        self.assertEqual({"mean": 0.5, "samples": 128, "bytes": 1280, "median_s": 2, "min_s": 2, "median_core_s": 3,
                          "min_core_s": 3, "samples_per_s": 64, "samples_per_core_s": 128 / 3, "bytes_per_s": 640,
                          "bytes_per_core_s": 1280 / 3, "processes": 2},
                         compare_data_loader.round_of(programs, CROPS._replace(processes=2)))

    def test_of_a_program_that_ends_are_an_error_with_its_last_words(self):
        program = self.program("import sys; sys.exit('the disk is full')")
        with self.assertRaisesRegex(ProgramFailed, "ended or hung at random_resized_crop:\nthe disk is full"):
            program.round(PYTORCH_CROPS)

    def test_are_saved_with_their_numbers(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "records.jsonl"
            compare_data_loader.save({CROPS: [record(1), record(2)]}, file)
            lines = file.read_text(encoding="utf-8").splitlines()
            self.assertEqual([record(1) | {"round": 0}, record(2) | {"round": 1}], [json.loads(line) for line in lines])


if __name__ == "__main__":
    unittest.main()
