"""A data loader over a folder of Azure Blob Storage, against the Azurite emulator: it prints what it prints of the same
folder on the local disk, through outages, from its cache, and where blobs go or change under it.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import json
import shutil

import azurite_jobs
import loader_jobs
from azurite_jobs import ENVIRONMENT, PATIENCE_S
from loader_jobs import path_of

IMAGES = 61


class FolderTest(azurite_jobs.AzuriteLoaderTest):
    @classmethod
    def fill(cls):
        cls.pictures = cls.shared / "pictures"
        loader_jobs.make_pictures(cls.pictures, IMAGES)
        cls.put_folder(cls.pictures, "train/")
        cls.keep()

    @classmethod
    def content(cls, number):
        return (cls.pictures / path_of(number)).read_bytes()

    def start(self, *words, container="data"):
        return super().start(*words, path=f"{container}/train")

    def start_waiting(self, *words, container="data"):
        """A loader that has listed the images and waits for the first epoch to begin."""
        loader = self.start("--wait", *words, container=container)
        loader.expect_images(IMAGES)
        return loader

    def local(self, *words, data=None):
        return super().local(*words, data=data or self.pictures)

    def require_refusal(self, loader, *says):
        exit_code, output, errors = loader.finish()
        self.assertEqual(exit_code, ENVIRONMENT, errors)
        self.require_no_secret(output, errors)
        reports = [line for line in errors.splitlines() if line.startswith("libtrain: error: ")]
        self.assertEqual(len(reports), 1, errors)
        for word in says:
            self.assertIn(word, reports[0])

    def expect_warning(self, loader):
        loader.errors.expect(r"warning: File 'az://data/train/\d+/picture\.\w+'.*Trying again", PATIENCE_S)


class Outages(FolderTest):
    def test_a_server_that_is_killed_and_comes_back_changes_nothing(self):
        loader = self.start("--batch-size", 2, "--pause-after", 1)
        loader.expect_step(1)
        self.server.kill()
        loader.go_on()
        self.expect_warning(loader)
        self.server.start()
        self.require_good_end(loader, self.local("--batch-size", 2))

    def test_nor_where_half_of_the_samples_are_in_the_cache(self):
        # In the second epoch this rank reads another half of the samples than in the first one.
        words = ("--epochs", 2, "--rank", 0, "--world-size", 2, "--batch-size", 4)
        expected = self.local(*words)
        loader = self.start_waiting(*words, *self.cache())
        loader.begin_epoch()
        loader.expect_end(0)
        self.server.kill()
        loader.begin_epoch()
        self.expect_warning(loader)
        self.server.start()
        self.require_good_end(loader, expected)

    def test_a_second_epoch_needs_the_cache_alone(self):
        loader = self.start_waiting("--epochs", 2, *self.cache())
        loader.begin_epoch()
        loader.expect_end(0)
        self.server.kill()
        loader.begin_epoch()
        errors = self.require_good_end(loader, self.local("--epochs", 2))
        self.assertNotIn("warning", errors)
        first, second = (record for record in map(json.loads, loader.lines.seen) if "ended" in record)
        new = {name: second[name] - first[name] for name in first}
        self.assertEqual(new, {"ended": 1, "cache_hits": IMAGES, "cache_misses": 0, "cache_bypasses": 0,
                               "fetched_files": 0})
        self.assertEqual(first["fetched_files"], IMAGES)


class UnderTheReader(FolderTest):
    NUMBER = 30

    def setUp(self):
        super().setUp()
        self.blob = f"train/{path_of(self.NUMBER)}"

    def own_container(self, name):
        self.server.make_container(name)
        self.put_folder(self.pictures, "train/", name)
        return name

    def change(self, container):
        """Replaces the blob by another picture, of another length, as the time of change is in whole seconds."""
        other = self.content(self.NUMBER + 4)
        self.assertNotEqual(len(other), len(self.content(self.NUMBER)))
        self.server.put(container, self.blob, other)

    def test_a_blob_that_is_deleted_is_named(self):
        container = self.own_container("deleted")
        for name, words in (("direct", ()), ("cached", self.cache())):
            with self.subTest(name):
                self.server.put(container, self.blob, self.content(self.NUMBER))
                loader = self.start_waiting(*words, container=container)
                self.server.delete(container, self.blob)
                loader.begin_epoch()
                self.require_refusal(loader, f"'az://{container}/{self.blob}'", "does not exist")

    def test_a_blob_that_is_changed_before_it_is_opened_is_read_as_it_is_then(self):
        container = self.own_container("changed")
        data = shutil.copytree(self.pictures, self.folder / "changed")
        (data / path_of(self.NUMBER)).write_bytes(self.content(self.NUMBER + 4))
        loader = self.start_waiting(container=container)
        self.change(container)
        loader.begin_epoch()
        self.require_good_end(loader, self.local(data=data))

    def test_a_blob_that_is_changed_before_the_cache_has_it_is_named(self):
        container = self.own_container("changed-first")
        loader = self.start_waiting(*self.cache(), container=container)
        self.change(container)
        loader.begin_epoch()
        self.require_refusal(loader, f"'az://{container}/{self.blob}' has changed since it was listed")

    def test_a_blob_that_is_changed_once_the_cache_has_it_stays_what_it_was(self):
        container = self.own_container("changed-later")
        loader = self.start_waiting("--epochs", 2, *self.cache(), container=container)
        loader.begin_epoch()
        loader.expect_end(0)
        self.change(container)
        loader.begin_epoch()
        self.require_good_end(loader, self.local("--epochs", 2))


if __name__ == "__main__":
    azurite_jobs.run_tests(loader_jobs.PROGRAM)
