"""The scripts that compare libtrain with PyTorch and pycocotools, at their smallest sizes: both sides do the same work and
leave their records.
"""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs
from programs_test import QUICK, BenchTest

PYTHON = jobs.ROOT / ".deps/bin/python"
BENCH = jobs.ROOT / "bench"


class Comparisons(BenchTest):
    def run_script(self, script, *words):
        return jobs.run([PYTHON, BENCH / script, *words], time_limit=400, environment=QUICK)

    def compare(self, name, program, *words):
        return self.run_script(f"compare_{name}.py", "--program", jobs.program(program), "--mpirun", jobs.mpirun(1)[0],
                               "--json", self.json, *words)

    def test_all_reduce(self):
        job = self.compare("all_reduce", "bench_all_reduce", "--rounds=1", "--sizes=4KiB", "--iterations=2", "--warmup=1")
        names = {each["implementation"] for each in self.records(job, "all_reduce", bytes=4096)}
        self.assertEqual(names, {"libtrain", "mpi", "floor", "gloo"})

    def test_start_up(self):
        for workload, program in ("network", "bench_start_up"), ("texts", "train_text_classification"):
            job = self.compare("start_up", program, "--runs=1", f"--workload={workload}", "--size=tiny")
            records = self.records(job, "start_up", implementation="libtrain")
            self.assertTrue(records[0]["workload"].startswith(workload), records)
            self.json.unlink()

    def test_checkpoint(self):
        job = self.run_script("compare_checkpoint.py", "--program", jobs.program("bench_checkpoint"), "--runs=1", "--folder",
                              self.folder, "--json", self.json)
        names = {each["implementation"] for each in self.records(job, "checkpoint")}
        self.assertEqual(names, {"libtrain", "dd", "torch_save"})

    def test_train_step(self):
        for words in (("--workload=mlp", "--batch=2"), ("--workload=mask_rcnn", "--batch=1", "--image-size=32")):
            with self.subTest(workload=words[0]):
                job = self.compare("train_step", "bench_train_step", "--rounds=1", "--iterations=1", "--warmup=0", *words)
                kinds = {(each["implementation"], each["synchronized"]) for each in self.records(job, "train_step")}
                self.assertEqual(len(kinds), 4, kinds)
                self.json.unlink()

    def test_train_step_of_the_peer_for_gpus(self):
        job = self.run_script("peers/gpu_train_step.py", "--device", "cpu", "--workload", "mlp", "--ranks", "2", "--batch",
                              "2", "--iterations", "1", "--warmup", "0", "--precision", "bf16", "--json", self.json)
        self.assertEqual(job.exit_code, 0, job)
        kinds = [(each["implementation"], each["synchronized"]) for each in self.records(job, "train_step")]
        self.assertEqual(kinds, [("pytorch", False), ("pytorch", True)])

    def test_train_images(self):
        sizes = ("--rounds=1", "--model=resnet18", "--image-size=32", "--batch-size=2", "--warmup=1", "--steps=1")
        job = self.compare("train_images", "train_resnet", *sizes, "--iterations=1", "--same-settings=float32")
        self.require_peers(self.records(job, "train_images", workers=None))
        job = self.compare("train_images", "train_resnet", *sizes, "--workload=pipeline", "--images=16",
                           "--val-images=8")
        records = self.records(job, "train_images", ranks=2, workers=1, evaluation_images=8)
        self.require_peers(records)
        for each in records:
            self.assertGreater(each["evaluation_images_per_s"], 0)

    def require_peers(self, records):
        """A record of each program, with measured rates."""
        self.assertEqual([each["implementation"] for each in records], ["libtrain", "pytorch"])
        for each in records:
            self.assertGreater(each["images_per_s"], 0)

    def test_start_of_training_images(self):
        job = self.compare("train_images", "train_resnet", "--workload=start", "--rounds=1", "--model=resnet18",
                           "--image-size=32", "--batch-size=2")
        records = self.records(job, "train_images", ranks=2)
        self.assertEqual([each["implementation"] for each in records], ["libtrain", "pytorch"])
        for each in records:
            self.assertTrue(0 < each["first_step_begin_s"] < each["first_step_end_s"], each)

    def test_coco_annotations(self):
        file = self.folder / "annotations.json"
        made = self.run_script("make_coco_file.py", file, "--megabytes", "0.2")
        self.assertEqual(made.exit_code, 0, made)
        job = self.run_script("peers/coco_annotations.py", "--file", file, "--iterations", "1", "--program",
                              jobs.program("bench_coco_annotations"), "--json", self.json)
        ours, theirs = self.records(job, "loader", workload="coco_annotations")
        self.assertEqual((ours["implementation"], theirs["implementation"]), ("libtrain", "pycocotools"))
        self.assertEqual(ours["annotations"], theirs["annotations"])

    def test_mask_rcnn(self):
        for workload in "nms_2000", "roi_align":
            job = self.run_script("compare_mask_rcnn.py", "--program", jobs.program("bench_mask_rcnn"),
                                  f"--workload={workload}", "--rounds=1", "--iterations=1", "--json", self.json)
            records = self.records(job, "mask_rcnn", workload=workload)
            self.assertEqual([each["implementation"] for each in records][:2], ["libtrain", "torchvision"])
            self.json.unlink()

    def test_roberta(self):
        for workload in "step", "mixed":
            job = self.run_script("compare_roberta.py", "--program", jobs.program("bench_roberta"), "--size=tiny",
                                  "--texts=2", f"--workload={workload}", "--rounds=1", "--iterations=1",
                                  "--json", self.json)
            records = self.records(job, "roberta", workload=workload, iterations=1)
            self.assertEqual([each["implementation"] for each in records], ["libtrain", "libtrain", "transformers"])
            self.json.unlink()

    def test_coco_loader(self):
        job = self.run_script("compare_coco_loader.py", "--program", jobs.program("bench_coco_loader"), "--images=6",
                              "--min-size=100", "--max-size=140", "--rounds=1", "--iterations=2", "--workers=2",
                              "--json", self.json)
        records = self.records(job, "loader", workload="coco_images", threads=2, iterations=2, samples=6)
        self.assertEqual([each["implementation"] for each in records], ["libtrain", "torchvision"])
        ours, theirs = records
        self.assertEqual((ours["bytes"], ours["pixels"]), (theirs["bytes"], theirs["pixels"]))
        self.assertEqual(ours["pixels"], 6 * 100 * 133)

    def test_coco_evaluation(self):
        job = self.run_script("compare_coco_evaluation.py", "--program", jobs.program("bench_coco_evaluation"),
                              "--images=20", "--detections=5", "--rounds=1", "--json", self.json)
        records = self.records(job, "coco_evaluation", images=20, detections=100)
        self.assertEqual([(each["implementation"], each["type"]) for each in records],
                         [("libtrain", "bbox"), ("libtrain", "segm"), ("pycocotools", "bbox"), ("pycocotools", "segm")])
        for ours, theirs in zip(records[:2], records[2:]):
            self.assertGreater(ours["stats"][0], 0)
            for a, b in zip(ours["stats"], theirs["stats"], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-12)

    def test_tokenizer(self):
        job = self.run_script("compare_tokenizer.py", "--program", jobs.program("bench_tokenizer"), "--megabytes=0.1",
                              "--vocabulary-size=1000", "--rounds=1", "--json", self.json)
        records = self.records(job, "tokenizer", threads=1)
        self.assertEqual([(each["implementation"], each["kind"]) for each in records],
                         [(name, kind) for name in ("libtrain", "tokenizers") for kind in ("ids", "offsets")])
        self.assertGreater(records[0]["tokens"], 10000)
        self.assertEqual(len({each["sum"] for each in records}), 1)


if __name__ == "__main__":
    jobs.require_programs("bench_all_reduce", "bench_checkpoint", "bench_coco_annotations", "bench_coco_evaluation",
                          "bench_coco_loader", "bench_mask_rcnn", "bench_roberta", "bench_start_up", "bench_tokenizer",
                          "bench_train_step", "train_resnet", "train_text_classification")
    unittest.main()
