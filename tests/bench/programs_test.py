"""The benchmarks at their smallest sizes: each ends well and leaves its records, and refuses what it cannot measure."""

import json
import math
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

USAGE, ENVIRONMENT = 2, 3
QUICK = {"OMP_NUM_THREADS": "1"}
SMALL_STEPS = ("--batch", "2", "--image-size", "32", "--iterations", "1", "--warmup", "0")


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.json = self.folder / "records"

    def run_bench(self, name, *words, ranks=None):
        return jobs.run([jobs.program(name), *words, "--output", self.folder / "output"], ranks=ranks, environment=QUICK)

    def records(self, job, event, **fields):
        """The records of an event that have these fields, after a job that must have ended well."""
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        records = [json.loads(line) for line in self.json.read_text().splitlines()]
        for record in records:
            self.assertTrue(all(math.isfinite(each) for each in record.values() if isinstance(each, float)), record)
        return [each for each in records if each["event"] == event and fields.items() <= each.items()]


class Programs(BenchTest):
    def test_all_reduce(self):
        for ranks in (None, 2, 3):
            with self.subTest(ranks=ranks):
                self.json = self.folder / f"records{ranks}"
                job = self.run_bench("bench_all_reduce", "--sizes", "4,4KiB", "--iterations", "1", "--warmup", "0",
                                     "--peers", "mpi,floor" if ranks else "floor", "--json", self.json, ranks=ranks)
                ours = self.records(job, "all_reduce", implementation="libtrain", ranks=ranks or 1, wrong=0)
                self.assertEqual([each["bytes"] for each in ours], [4, 4096])

    def test_synchronizer(self):
        job = self.run_bench("bench_synchronizer", "--parameters", "1,4", "--buckets", "1,2", "--iterations", "1",
                             "--warmup", "0", "--json", self.json)
        cases = {(each["parameters"], each["buckets"]) for each in self.records(job, "synchronizer_overhead")}
        self.assertEqual(cases, {(1, 1), (4, 1), (4, 2)})

    def test_train_step(self):
        for workload in ("resnet18", "mask_rcnn", "mlp", "roberta", "tensors100"):
            with self.subTest(workload=workload):
                job = self.run_bench("bench_train_step", "--workload", workload, *SMALL_STEPS, "--json", self.json,
                                     ranks=2)
                steps = self.records(job, "train_step", workload=workload, ranks=2)
                self.assertEqual([each["synchronized"] for each in steps], [False, True])

    def test_train_step_with_odd_options(self):
        for words in (("--fresh-starts", "1"), ("--bucket-bytes", "1"), ("--overlap", "none"), ("--batch", "1")):
            with self.subTest(options=words):
                job = self.run_bench("bench_train_step", "--workload", "mlp", "--iterations", "1", "--warmup", "0", *words)
                self.assertEqual((job.exit_code, job.reports()), (0, []), job)

    def test_train_step_in_other_types_and_layouts(self):
        for precision, sgd, workload in (("bf16", "torch", "resnet18"), ("fp16", "fused", "mlp")):
            with self.subTest(precision=precision):
                job = self.run_bench("bench_train_step", "--workload", workload, *SMALL_STEPS, "--precision", precision,
                                     "--channels-last", "yes", "--sgd", sgd, "--steps-at-once", "2", "--json",
                                     self.json, ranks=2)
                steps = self.records(job, "train_step", precision=precision, channels_last=True, sgd=sgd, device="cpu",
                                     steps_at_once=2)
                self.assertEqual([each["synchronized"] for each in steps], [False, True])

    def test_trainer(self):
        for ranks in (None, 2):
            job = self.run_bench("bench_trainer", "--rounds", "1", "--warmup", "1", "--steps", "12", "--json", self.json,
                                 ranks=ranks)
            self.assertEqual(len(self.records(job, "trainer_step", ranks=ranks or 1)), 1)

    def test_checkpoint(self):
        for words, key in (((), "load_s"), (("--steps", "2", "--every", "1"), "training_s")):
            job = self.run_bench("bench_checkpoint", *words)
            self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
            record = json.loads(job.stdout.splitlines()[-1])
            self.assertGreater(record[key], 0)
            self.assertGreater(record["bytes"], 200e6)

    def test_start_up(self):
        for ranks in (None, 2):
            job = self.run_bench("bench_start_up", ranks=ranks)
            self.assertEqual((job.exit_code, job.reports()), (0, []), job)
            self.assertIn("first step", job.stdout)


class Refusals(BenchTest):
    def test_what_cannot_be_measured(self):
        for name, *words in (("bench_all_reduce", "--sizes", "0"), ("bench_all_reduce", "--sizes", "3"),
                             ("bench_all_reduce", "--iterations", "0"), ("bench_all_reduce", "--budget", "nan"),
                             ("bench_all_reduce", "--peers", "x"), ("bench_synchronizer", "--parameters", "0"),
                             ("bench_synchronizer", "--buckets", "5", "--parameters", "1,4"),
                             ("bench_train_step", "--workload", "x"), ("bench_train_step", "--iterations", "0"),
                             ("bench_train_step", "--bucket-bytes", "0"), ("bench_train_step", "--overlap", "x"),
                             ("bench_train_step", "--precision", "int8"), ("bench_train_step", "--sgd", "x"),
                             ("bench_train_step", "--channels-last", "x"),
                             ("bench_train_step", "--image-size", "40", "--workload", "mask_rcnn")):
            with self.subTest(program=name, options=words):
                job = self.run_bench(name, *words)
                jobs.require_refusal(self, job, USAGE)
                self.assertTrue(words[0] in job.reports()[0] or f"'{words[1]}'" in job.reports()[0], job)

    def test_a_file_for_records_that_cannot_be_opened_is_known_before_the_measurement(self):
        for name, words in (("bench_all_reduce", ("--sizes", "4", "--iterations", "1")), ("bench_synchronizer", ()),
                            ("bench_train_step", SMALL_STEPS)):
            with self.subTest(program=name):
                job = self.run_bench(name, *words, "--json", self.folder / "missing/records")
                jobs.require_refusal(self, job, ENVIRONMENT, "missing/records")
                self.assertNotIn("median", job.stdout)


if __name__ == "__main__":
    jobs.require_programs("bench_all_reduce", "bench_start_up", "bench_synchronizer", "bench_train_step")
    unittest.main()
