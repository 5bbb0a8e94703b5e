"""Tests of bench/compare_all_reduce.py."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_all_reduce
from comparison import ProgramFailed


def round_of(**median_us):
    """The records of one round at 4 KiB; the fastest calls take half of the medians."""
    return {(4096, name): {"median_s": us * 1e-6, "min_s": us * 5e-7} for name, us in median_us.items()}


class Table(unittest.TestCase):
    def test_compares_within_a_round(self):
        rounds = [round_of(libtrain=10, gloo=500, mpi=20), round_of(libtrain=20, gloo=1200, mpi=30)]
        self.assertEqual([50, 60], [round(value) for value in
                                    compare_all_reduce.quotients(rounds, 4096, "gloo", "median_s")])
        line = compare_all_reduce.table(rounds, "median_s").splitlines()[1]
        self.assertEqual(["4096", "15.0", "850.0", "25.0", "-", "55.0", "(50.0-60.0)", "1.75", "(1.50-2.00)", "-"],
                         line.split())

    def test_gives_the_share_of_the_floor_in_percent(self):
        rounds = [round_of(libtrain=10, floor=7)]
        line = compare_all_reduce.table(rounds, "min_s").splitlines()[1]
        self.assertEqual(["4096", "5.0", "-", "-", "3.5", "-", "-", "70", "(70-70)"], line.split())

    def test_has_one_line_a_size_in_order(self):
        records = {(size, "libtrain"): {"median_s": 1e-6} for size in (1 << 20, 4096, 16)}
        lines = compare_all_reduce.table([records], "median_s").splitlines()[1:]
        self.assertEqual(["16", "4096", "1048576"], [line.split()[0] for line in lines])


class Records(unittest.TestCase):
    def test_are_found_by_size_and_implementation(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "records.jsonl"
            record = {"event": "all_reduce", "bytes": 4096, "implementation": "mpi"}
            file.write_text(json.dumps({"event": "run"}) + "\n" + json.dumps(record) + "\n", encoding="utf-8")
            self.assertEqual({(4096, "mpi"): record}, compare_all_reduce.read_records(file))

    def test_that_are_missing_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "none.jsonl holds no all_reduce record"):
            compare_all_reduce.read_records(pathlib.Path("none.jsonl"))


if __name__ == "__main__":
    unittest.main()
