"""bench_data_loader and its peer, on a handful of photographs: they do what they are compared for."""

import json
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

PYTHON = jobs.ROOT / ".deps/bin/python"
IMAGES = 16
SIDE = 224
PICTURES = ("random_resized_crop", "decode_then_crop", "shards", "restart_shards")
READS = ("tar_read", "tar_plain_read", "tfrecord_read", "tfrecord_read_unchecked", "tfrecord_plain_read")
RATES = {"samples_per_s": ("samples", "median_s"), "samples_per_core_s": ("samples", "median_core_s"),
         "bytes_per_s": ("bytes", "median_s"), "bytes_per_core_s": ("bytes", "median_core_s")}
RESTART_EVERY_4_MCUS = b"\xff\xdd\x00\x04\x00\x04"


def run(*command):
    return jobs.run(command, time_limit=250)


def records_in(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def members(path):
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


class DataLoader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="libtrain-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.data = cls.folder / "data"
        json_file = cls.folder / "records.jsonl"
        cls.job = run(PYTHON, jobs.ROOT / "bench/compare_data_loader.py", "--rounds=1", f"--images={IMAGES}",
                      f"--data={cls.data}", f"--program={jobs.program('bench_data_loader')}", f"--json={json_file}")
        if cls.job.exit_code != 0:
            raise AssertionError(str(cls.job))
        cls.records = {(each["implementation"], each["workload"], each["threads"], each["processes"]): each
                       for each in records_in(json_file)}

    def test_every_workload_leaves_a_record(self):
        self.assertEqual({("libtrain", name, 1, 1) for name in PICTURES + READS} |
                         {("libtrain", "random_resized_crop", 2, 1), ("libtrain", "random_resized_crop", 1, 2),
                          ("pytorch", "random_resized_crop", 1, 1)},
                         set(self.records))
        for each in self.records.values():
            self.assertEqual(("loader", 0, 1), (each["event"], each["round"], each["iterations"]))

    def test_rates_follow_from_what_was_done_and_how_long_it_took(self):
        for each in self.records.values():
            for rate, (amount, seconds) in RATES.items():
                with self.subTest(workload=each["workload"], rate=rate):
                    self.assertGreater(each[seconds], 0)
                    self.assertAlmostEqual(1, each[rate] * each[seconds] / each[amount], places=9)

    def test_both_implementations_make_pictures_of_the_same_kind(self):
        for key, each in self.records.items():
            if key[1] in PICTURES:
                with self.subTest(key=key):
                    self.assertEqual([IMAGES, 3, SIDE, SIDE], each["shape"])
                    self.assertEqual(("float16", True, IMAGES * each["processes"]),
                                     (each["dtype"], each["channels_last"], each["samples"]))

    def test_libtrains_ways_make_the_same_pictures(self):
        means = [each["mean"] for (implementation, name, *_), each in self.records.items()
                 if implementation == "libtrain" and name in PICTURES]
        self.assertEqual(len(PICTURES) + 2, len(means))  # also by two threads, and by two processes
        for mean in means:
            self.assertAlmostEqual(means[0], mean, places=7)

    def test_bytes_are_those_of_the_photographs(self):
        photographs = sum(file.stat().st_size for file in self.data.glob("photographs/*/*.jpg"))
        for implementation, name in (("libtrain", "random_resized_crop"), ("pytorch", "random_resized_crop"),
                                     ("libtrain", "shards")):
            self.assertEqual(photographs, self.records[implementation, name, 1, 1]["bytes"])

    def test_reads_go_through_whole_files(self):
        archive = self.data / "shards/photographs.tar"
        contents = sum(map(len, members(archive).values()))
        for name, size in (("tar_read", contents), ("tar_plain_read", archive.stat().st_size),
                           ("tfrecord_plain_read", (self.data / "records/photographs.tfrecord").stat().st_size)):
            each = self.records["libtrain", name, 1, 1]
            self.assertEqual(each["bytes"] * IMAGES, each["samples"] * size, name)

    def test_only_restart_shards_have_restart_markers(self):
        plain, marked = (members(self.data / folder / "photographs.tar") for folder in ("shards", "restart_shards"))
        self.assertEqual(2 * IMAGES, len(plain))
        self.assertEqual(sorted(plain), sorted(marked))
        for name in plain:
            if name.endswith(".jpg"):
                self.assertNotIn(RESTART_EVERY_4_MCUS, plain[name])
                self.assertIn(RESTART_EVERY_4_MCUS, marked[name])
            else:
                self.assertEqual(plain[name], marked[name])

    def test_the_table_stands_beside_the_goals(self):
        for line in ("random resized crop / PyTorch's loader", "random resized crop / decode, then crop",
                     "restart-marked shards / random resized crop", "2 threads / 1", "tar / plain reading",
                     "TFRecord / plain reading"):
            self.assertRegex(self.job.stdout, rf"(?m)^{line} .* (met|missed)$")

    def test_the_program_measures_alone(self):
        json_file = self.folder / "alone.jsonl"
        job = run(jobs.program("bench_data_loader"), f"--data={self.data}", "--workload=shards,tar_read", "--rounds=3",
                  "--threads=2", f"--json={json_file}")
        self.assertEqual(0, job.exit_code, job)
        self.assertEqual([("shards", 2, 3), ("tar_read", 2, 3)],
                         [(each["workload"], each["threads"], each["iterations"]) for each in records_in(json_file)])
        self.assertRegex(job.stdout, r"(?m)^shards +\d")

    def test_the_peer_measures_alone(self):
        json_file = self.folder / "peer.jsonl"
        job = run(PYTHON, jobs.ROOT / "bench/peers/data_loader.py", f"--data={self.data}", "--rounds=1", "--threads=2",
                  f"--json={json_file}")
        self.assertEqual(0, job.exit_code, job)
        [each] = records_in(json_file)
        self.assertEqual(("pytorch", 2, IMAGES), (each["implementation"], each["threads"], each["samples"]))
        self.assertRegex(job.stdout, r"(?m)^random_resized_crop +\d")

    def test_an_unknown_workload_and_missing_photographs_are_told(self):
        self.assertEqual(2, run(jobs.program("bench_data_loader"), f"--data={self.data}", "--workload=x").exit_code)
        job = run(jobs.program("bench_data_loader"), f"--data={self.folder / 'nothing'}")
        self.assertEqual(3, job.exit_code, job)
        self.assertIn("nothing/photographs", job.stderr)

    def test_a_form_with_other_images_is_told(self):
        other = self.folder / "other"
        made = run(PYTHON, jobs.ROOT / "bench/make_photographs.py", other / "photographs", "--images=8")
        self.assertEqual(0, made.exit_code, made)
        (other / "shards").symlink_to(self.data / "shards")
        job = run(jobs.program("bench_data_loader"), f"--data={other}", "--workload=shards", "--rounds=1")
        self.assertEqual(3, job.exit_code, job)
        self.assertIn(f"other/shards' has {IMAGES} images", job.stderr)


if __name__ == "__main__":
    jobs.require_programs("bench_data_loader")
    unittest.main()
