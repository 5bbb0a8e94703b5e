"""The examples at the smallest and oddest values of their options: a run ends well, with finite results, or is refused
in one sentence of libtrain's with exit code 2, 3 or 4; never with NaN for a result, and never with C++ frames.
"""

import json
import math
import shutil
import struct
import sys
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import idx_files
import jobs

USAGE, ENVIRONMENT = 2, 3
def write_png(file, grey):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes([grey, 255 - grey, 0]) * 40 for _ in range(40))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 40, 40, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def numbers_in(value):
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers_in(each)]
    if isinstance(value, list):
        return [number for each in value for number in numbers_in(each)]
    return [value] if isinstance(value, float) else []


class OddOptions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.digits = idx_files.write_some(cls.folder / "digits")
        cls.two = idx_files.write(cls.folder / "two", train=[0, 1], test=[1])
        cls.one = idx_files.write(cls.folder / "one", train=[1], test=[1])
        cls.pictures = cls.folder / "pictures"
        cls.config = cls.folder / "run.json"
        cls.config.write_text('{"epochs": 1, "batch-size": 64, "seed": 7, "timeout": 60.5}')
        for split in ("train", "val"):
            for number in range(4):
                write_png(cls.pictures / split / f"class{number % 2}" / f"{number}.png", 60 * number)

    def start(self, row):
        output, (name, data, words, ranks, *_) = row
        output = () if "--output" in words else ("--output", output)
        quick = ("--threads", "1") if "--threads" not in words else ()
        return jobs.run([jobs.program(name), "--data", data, "--quiet", *words, *quick, *output],
                        ranks=ranks if ranks > 1 else None, environment={"OMP_WAIT_POLICY": "passive"})

    def require(self, rows, judge):
        """Calls judge(job, its output folder, what it expects) for every (program, data, options, ranks, ...)."""
        rows = [(jobs.temporary_directory(self) / "output", row) for row in rows]
        with ThreadPoolExecutor(2) as pool:
            for row, job in zip(rows, pool.map(self.start, rows)):
                output, (name, data, words, ranks, *expected) = row
                with self.subTest(program=name, data=data.name, options=words, ranks=ranks):
                    self.assertEqual((job.timed_out, job.left_over), (False, ()), job)
                    self.assertNotRegex(job.stderr, r"frame #\d|Exception raised from|terminate called", job)
                    judge(job, output, *expected)

    def require_well(self, job, output):
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        lines = (output / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        self.assertEqual(records[-1]["event"], "summary")
        for record in records:
            # NaN is written as null, as nothing of these is meant to be; the slowest rank may be none.
            absent = [key for key, value in record.items() if value is None]
            self.assertEqual(absent, [], record)
            self.assertTrue(all(map(math.isfinite, numbers_in(record))), record)
        rates = [record["learning_rate"] for record in records if "learning_rate" in record]
        if rates and float(records[0]["config"].get("learning-rate", 1)) > 0:
            self.assertGreater(max(rates), 0, "nothing was learnt")

    def require_refused(self, job, _output, exit_code, *words):
        jobs.require_refusal(self, job, exit_code, *words)

    def test_small_and_large_values_train(self):
        most = 2**63 - 1
        rows = [("digits", self.digits, ("--epochs", epochs), ranks) for epochs in (1, 2, 3) for ranks in (1, 2)]
        rows += [(name, self.digits, ("--epochs", epochs, "--batch-size", batch), 1)
                 for name in ("digits", "custom_loop") for epochs, batch in ((1, 63), (2, 64), (1, 65), (1, 10**6))]
        rows += [
            ("digits", self.one, ("--epochs", "2", "--batch-size", "1"), 1),
            ("digits", self.two, ("--epochs", "1", "--batch-size", "1", "--check-replicas", "1"), 2),
            ("digits", self.two, ("--epochs", "1"), 3),
            ("custom_loop", self.one, ("--epochs", "1", "--batch-size", "1", "--batches-per-step", "1"), 1),
            ("custom_loop", self.digits, ("--epochs", "1", "--batches-per-step", "100000"), 1),
            ("custom_loop", self.two, ("--epochs", "2"), 3),
            ("custom_loop", self.digits, ("--epochs", "1", "--seed", str(2**64 - 1), "--threads", "3"), 1),
            ("custom_loop", self.digits, ("--epochs", "1", "--seed", "010", "--threads", "0000001"), 1),
            ("custom_loop", self.digits, ("--epochs", "1", "--timeout", "604800"), 2),
            ("digits", self.digits, ("--epochs", "1", "--check-replicas", str(most)), 1),
            ("digits", self.digits, ("--config", self.config), 2),
            ("first_program", self.digits, (), 1),
            ("first_program", self.digits, (), 3),
            ("images", self.pictures, ("--epochs", "1", "--size", "32", "--model", "resnet18", "--classes", "2",
                                       "--batch-size", "1000000", "--workers", "0"), 1),
            ("images", self.pictures, ("--epochs", "1", "--size", "33", "--model", "resnet18", "--learning-rate", "0",
                                       "--batch-size", "2"), 2),
        ]
        self.require(rows, self.require_well)

    def test_results_that_are_no_numbers_are_refused(self):
        small = ("--epochs", "2", "--size", "32", "--model", "resnet18", "--classes", "2", "--batch-size", "2")
        self.require([("images", self.pictures, (*small, "--learning-rate", rate), ranks, USAGE, "hold NaN or infinity")
                      for rate, ranks in (("1e30", 1), ("1e37", 2))], self.require_refused)

    def test_a_rate_of_one_rank_only_is_refused(self):
        output = jobs.temporary_directory(self) / "output"
        job = jobs.run(["sh", "-c", 'exec "$@" --learning-rate "0.$OMPI_COMM_WORLD_RANK"', "sh", jobs.program("images"),
                        "--data", self.pictures, "--epochs", "1", "--size", "32", "--model", "resnet18", "--classes", "2",
                        "--batch-size", "2", "--threads", "1", "--output", output], ranks=2)
        jobs.require_refusal(self, job, USAGE, "The configuration of the training", "--learning-rate = 0.0",
                             "--learning-rate = 0.1", "Give all ranks the same options.")

    def test_garbage_is_refused_in_a_sentence(self):
        # Every way in which a number can be wrong: tests/train/command_line_test.cpp.
        rows = []
        for option, values in {"--epochs": ("0", "1.5"), "--batch-size": ("-3",), "--check-replicas": ("-1",),
                               "--seed": ("-1", str(2**64)), "--threads": ("0", "4097"), "--timeout": ("nan", "1s"),
                               "--output": ("",), "--data": ("",), "--rank": ("0x0",)}.items():
            rows += [("digits", self.digits, (f"{option}={value}",), 1, USAGE, option) for value in values]
        for value in ("nan", "-0.1"):
            rows.append(("images", self.pictures, ("--model", "resnet18", "--classes", "2", "--size", "32",
                                                   "--batch-size", "2", f"--learning-rate={value}"), 1, USAGE,
                         "--learning-rate"))
        rows += [("digits", self.digits, ("--config", self.folder / "absent.json"), ranks, ENVIRONMENT, "absent.json")
                 for ranks in (1, 2)]
        rows.append(("digits", self.digits, ("--output", self.digits / "train-labels-idx1-ubyte"), 1, ENVIRONMENT,
                     "train-labels-idx1-ubyte"))
        self.require(rows, self.require_refused)

    def test_a_reader_that_goes_away_does_not_end_a_run(self):
        output = jobs.temporary_directory(self) / "output"
        for redirection in ('"$@" 2>&1 | true; exit "${PIPESTATUS[0]}"', '"$@" 2>&1 >/dev/null | head -c 1 >/dev/null; '
                            'exit "${PIPESTATUS[0]}"', 'exec "$@" <&- 2>&-', 'exec "$@" <&- >/dev/null 2>&-'):
            with self.subTest(redirection):
                job = jobs.run(["bash", "-c", redirection, "bash", jobs.program("digits"), "--data", self.digits,
                                "--epochs", "2", "--threads", "1", "--resume", "none", "--output", output])
                # Results that were to be printed and were not are an error, after the training.
                self.assertIn(job.exit_code, (0, ENVIRONMENT), job)
                records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual(records[-1]["event"], "summary")
                shutil.rmtree(output)

    def test_what_libtorch_throws_is_its_first_sentence(self):
        one_value = "Expected more than 1 value per channel when training"  # batch norm of one picture of 1 x 1
        self.require([("first_program", self.two, (), 3, 1, one_value)], self.require_refused)


if __name__ == "__main__":
    jobs.require_programs("custom_loop", "digits", "first_program", "images")
    unittest.main()
