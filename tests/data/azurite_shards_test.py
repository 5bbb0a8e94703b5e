"""A data loader over tar, TFRecord and Parquet shards in Azure Blob Storage, against the Azurite emulator: it gives the
samples of the same shards on the local disk, through an outage and from its cache.

Runs itself with the project's Python, which has pyarrow. Exit code 77, and a line that says so, where that or Azurite
cannot be had; ctest then reports the test as skipped.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import azurite_jobs
import loader_jobs
from azurite_jobs import PATIENCE_S, jobs
from loader_jobs import path_of

jobs.require_packages("pyarrow")

import pyarrow.parquet

sys.path.insert(0, str(Path(__file__).resolve().parent / "sources"))
from parquet_images_peer_test import table_of

IMAGES = 48
SHARDS = 4
FORMATS = ("tar", "tfrecord", "parquet")
READING = ("--shards", "--batch-size", 2)


class Shards(azurite_jobs.AzuriteLoaderTest):
    @classmethod
    def fill(cls):
        cls.pictures = cls.shared / "pictures"
        loader_jobs.make_pictures(cls.pictures, IMAGES)
        cls.write_parquet(cls.shared / "parquet")
        for kind in ("tar", "tfrecord"):
            loader_jobs.make_shards(cls.pictures, cls.shared / kind, kind, SHARDS)
        for kind in FORMATS:
            cls.put_folder(cls.shared / kind, f"{kind}/")
        cls.keep()

    @classmethod
    def write_parquet(cls, folder):
        """An image in each row group, so that some are still to be read as long as the epoch lasts."""
        folder.mkdir()
        for shard in range(SHARDS):
            numbers = range(shard, IMAGES, SHARDS)
            table = table_of([(cls.pictures / path_of(number)).read_bytes() for number in numbers], numbers)
            pyarrow.parquet.write_table(table, folder / f"train-{shard}.parquet", row_group_size=1)

    def start_all(self, words_of):
        """A loader for each format, told the words of it, which waits for the first epoch to begin."""
        return {kind: self.start(*READING, "--wait", *words_of(kind), path=f"data/{kind}") for kind in FORMATS}

    def local_epochs(self, count):
        """For each format what a run of so many epochs gets of the local shards, all pictures being in each epoch."""
        def run(kind):
            return self.local(*READING, "--epochs", count, data=self.shared / kind)

        with ThreadPoolExecutor(len(FORMATS)) as pool:
            steps_of = dict(zip(FORMATS, pool.map(run, FORMATS)))
        for kind, steps in steps_of.items():
            labels = [label for samples in steps.values() for label, _ in samples]
            self.assertEqual(sorted(labels), sorted([*range(IMAGES)] * count), kind)
        return steps_of

    def expect_warnings(self, loaders):
        for kind, loader in loaders.items():
            loader.errors.expect(rf"warning: .*'az://data/{kind}/[^']*'.*Trying again", PATIENCE_S)

    def require_cached_end(self, loader, kind, expected):
        """That all files of the set were in the cache before the first epoch, and nothing was asked for later."""
        self.assertEqual(self.require_good_end(loader, expected), "")
        ends = [record for record in map(json.loads, loader.lines.seen) if "ended" in record]
        files = len(list((self.shared / kind).iterdir()))
        self.assertEqual([end["fetched_files"] for end in ends], [files] * 2, kind)

    def test_an_outage_changes_nothing_and_is_not_seen_by_a_cache(self):
        direct = self.start_all(lambda kind: ("--pause-after", 1))
        cached = self.start_all(lambda kind: ("--epochs", 2, "--cache", self.folder / kind))
        for loader in [*direct.values(), *cached.values()]:
            loader.expect_images(IMAGES)
        for loader in direct.values():
            loader.begin_epoch()
        for loader in direct.values():
            loader.expect_step(1)
        self.server.kill()
        for loader in direct.values():
            loader.go_on()
        for loader in cached.values():
            loader.begin_epoch()
            loader.begin_epoch()
        expected = self.local_epochs(2)
        for kind, loader in cached.items():
            self.require_cached_end(loader, kind, expected[kind])
        self.expect_warnings(direct)
        self.server.start()
        for kind, loader in direct.items():
            first = {key: samples for key, samples in expected[kind].items() if key[0] == 0}
            self.require_good_end(loader, first)


if __name__ == "__main__":
    azurite_jobs.run_tests(loader_jobs.PROGRAM, "libtrain-pack")
