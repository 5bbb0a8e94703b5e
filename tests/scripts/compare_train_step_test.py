"""Tests of bench/compare_train_step.py."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_train_step
from comparison import ProgramFailed


def round_of(local_ms, synchronized_ms, **more):
    """The records of one round; the fastest steps take half of the medians."""
    return {kind: {"median_s": ms * 1e-3, "min_s": ms * 5e-4, "parameters": 1000, **more}
            for kind, ms in ((False, local_ms), (True, synchronized_ms))}


def printed(results):
    options = types.SimpleNamespace(workload="mlp", batch=64, ranks=2, threads=1, rounds=2, iterations=30)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        compare_train_step.print_table(results, options)
    return output.getvalue().splitlines()


class Table(unittest.TestCase):
    def test_compares_steps_of_a_program_and_programs_within_a_round(self):
        lines = printed({"libtrain": [round_of(100, 110), round_of(200, 240)],
                         "pytorch_ddp": [round_of(100, 150), round_of(150, 300)]})
        self.assertEqual(["libtrain", "150.0", "(100.0-200.0)", "175.0", "(110.0-240.0)", "1.150", "(1.100-1.200)",
                          "1.150", "(1.100-1.200)"], lines[2].split())
        self.assertEqual("libtrain/DDP, synchronized step: 0.767 (0.733-0.800)", lines[4])
        self.assertEqual("libtrain/DDP, local step: 1.167 (1.000-1.333)", lines[5])
        self.assertEqual(6, len(lines))

    def test_tells_of_first_steps_where_they_were_measured(self):
        ours = round_of(100, 110, first_step_s=0.13, second_step_s=0.12, tenth_step_s=0.1, bucket_allocation_s=0.02)
        theirs = round_of(100, 110, first_step_s=0.15, second_step_s=0.12, tenth_step_s=0.1)
        lines = printed({"libtrain": [ours], "pytorch_ddp": [theirs]})
        self.assertEqual(
            "libtrain, first step / tenth step: local 1.300 (1.300-1.300), 30.0 (30.0-30.0) ms more; "
            "synchronized 1.300 (1.300-1.300), 30.0 (30.0-30.0) ms more; allocating buckets 20.0 (20.0-20.0) ms",
            lines[6])
        self.assertEqual(
            "pytorch_ddp, first step / tenth step: local 1.500 (1.500-1.500), 50.0 (50.0-50.0) ms more; "
            "synchronized 1.500 (1.500-1.500), 50.0 (50.0-50.0) ms more",
            lines[7])


class Records(unittest.TestCase):
    def test_are_found_by_kind(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "records.jsonl"
            records = [{"event": "train_step", "synchronized": kind, "median_s": 1} for kind in (False, True)]
            file.write_text("".join(json.dumps(each) + "\n" for each in ({"event": "run"}, *records)), encoding="utf-8")
            self.assertEqual({False: records[0], True: records[1]}, compare_train_step.read_records(file))

    def test_that_are_missing_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "none.jsonl holds no local and synchronized"):
            compare_train_step.read_records(pathlib.Path("none.jsonl"))

    def test_of_networks_of_different_sizes_are_an_error(self):
        compare_train_step.require_same_network(round_of(1, 1), round_of(2, 2))
        with self.assertRaisesRegex(ProgramFailed, "has 1000 parameters, the peer's 999"):
            compare_train_step.require_same_network(round_of(1, 1), round_of(1, 1, parameters=999))


if __name__ == "__main__":
    unittest.main()
