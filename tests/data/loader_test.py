"""A data loader over an image folder in processes of several ranks: the same samples and pixels whatever the number of
ranks and workers, also where a run stops and goes on as another one, and where files are damaged.
"""

import json
import shutil
import unittest

import loader_jobs
from loader_jobs import flat, joined, path_of, run_rank, run_ranks, steps_of
import jobs

IMAGES = 61
GLOBAL_BATCH = 18
WORLD_SIZES = (1, 2, 3, 6)
SEED = 7
EPOCH = 2
USAGE, ENVIRONMENT = 2, 3


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class LoaderTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = jobs.temporary_directory(cls)
        cls.pictures = folder / "pictures"
        loader_jobs.make_pictures(cls.pictures, IMAGES)
        cls.whole = joined([steps_of(cls.run_one("--epoch", EPOCH, "--remainder", "exact").stdout)])

    @classmethod
    def run_one(cls, *words, data=None):
        """A single rank, which must end well."""
        job = run_rank("--data", data or cls.pictures, "--seed", SEED, "--batch-size", GLOBAL_BATCH, *words)
        if job.exit_code != 0 or job.reports():
            raise AssertionError(str(job))
        return job

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def run_all(self, world_size, *words, data=None, batch_size=None, state=None):
        def words_of(rank):
            own_state = ["--state", self.folder / f"{state}.{rank}"] if state else []
            return ["--data", data or self.pictures, "--seed", SEED, "--epoch", EPOCH,
                    "--batch-size", batch_size or GLOBAL_BATCH // world_size, *own_state, *words]

        return run_ranks(world_size, words_of)

    def ranks(self, world_size, *words, **options):
        """What each rank got; all of them must end well."""
        ended = self.run_all(world_size, *words, **options)
        for job in ended:
            self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        return [steps_of(job.stdout) for job in ended]


class WorldSizes(LoaderTest):
    def test_one_rank_gets_every_sample_once(self):
        self.assertEqual([len(samples) for samples in self.whole], [18, 18, 18, 7])
        self.assertEqual(sorted(label for label, _ in flat(self.whole)), list(range(IMAGES)))

    def test_any_number_of_ranks_gets_the_same_steps_together(self):
        for world_size in WORLD_SIZES[1:]:
            with self.subTest(world_size=world_size):
                ranks = self.ranks(world_size, "--remainder", "exact")
                self.assertTrue(all(ranks))
                self.assertEqual(joined(ranks), self.whole)

    def test_padding_repeats_the_first_samples(self):
        for world_size, repeated in ((2, 1), (3, 2), (6, 5)):
            with self.subTest(world_size=world_size):
                ranks = self.ranks(world_size, "--remainder", "pad")
                self.assertEqual(flat(joined(ranks)), flat(self.whole) + flat(self.whole)[:repeated])
                self.assertEqual(len({sum(map(len, steps.values())) for steps in ranks}), 1)

    def test_another_epoch_has_another_order_and_other_pictures(self):
        other = flat(joined([steps_of(self.run_one("--epoch", EPOCH + 1, "--remainder", "exact").stdout)]))
        whole = flat(self.whole)
        self.assertNotEqual([label for label, _ in other], [label for label, _ in whole])
        # Two crops may coincide.
        self.assertLess(len(set(other) & set(whole)), 5)


class Workers(LoaderTest):
    def test_any_number_gives_the_same_output(self):
        outputs = {self.run_one("--epochs", 2, "--workers", workers).stdout for workers in (0, 1, 4)}
        self.assertEqual(len(outputs), 1)


class Resuming(LoaderTest):
    def state(self, name, rank):
        return json.loads((self.folder / f"{name}.{rank}").read_text())

    def test_at_another_world_size_and_batch_size_repeats_and_loses_nothing(self):
        for stop, position in ((0, 0), (2, 36), (4, IMAGES)):
            with self.subTest(stop=stop):
                before = self.ranks(3, "--remainder", "exact", "--stop-after", stop, state="before")
                for rank in range(3):
                    state = self.state("before", rank)
                    self.assertEqual([state[key] for key in ("format", "seed", "epoch", "position", "dataset_size")],
                                     [1, SEED, EPOCH, position, IMAGES])
                for rank in range(2):
                    shutil.copy(self.folder / "before.0", self.folder / f"after.{rank}")
                after = self.ranks(2, "--remainder", "exact", "--resume", state="after", batch_size=5)
                self.assertEqual(flat(joined(before)) + flat(joined(after)), flat(self.whole))
                self.assertEqual([len(samples) for samples in joined(after)],
                                 [min(10, IMAGES - begin) for begin in range(position, IMAGES, 10)])
                self.assertEqual(self.state("after", 1)["position"], IMAGES)


    def test_with_other_pictures_of_the_same_number_and_classes_is_refused(self):
        self.ranks(1, "--stop-after", 1, state="before")
        data = self.folder / "other"
        shutil.copytree(self.pictures, data)
        job = self.resume(data)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)  # a copy elsewhere is the same data
        with open(data / path_of(30), "ab") as picture:
            picture.write(b"x")
        jobs.require_refusal(self, self.resume(data), USAGE, "The loader's state was saved for other data", f"{IMAGES} samples",
                             "Resume with the same data")

    def resume(self, data):
        return run_rank("--data", data, "--seed", SEED, "--batch-size", 5, "--state", self.folder / "before.0",
                        "--resume")


class DamagedFiles(LoaderTest):
    # In the second and third steps, and with three ranks the first three on a rank each.
    TEXT, EMPTY, CUT_PNG, CUT_JPEG = 30, 22, 47, 48
    LENGTHS = {EMPTY: 0, CUT_PNG: 60, CUT_JPEG: 100}

    def damaged_copy(self, *numbers):
        data = self.folder / "damaged"
        shutil.copytree(self.pictures, data)
        for number in numbers:
            content = (data / path_of(number)).read_bytes()
            self.assertGreater(len(content), 100)
            (data / path_of(number)).write_bytes(
                b"no image" if number == self.TEXT else content[:self.LENGTHS[number]])
        return data

    def test_the_first_one_in_the_order_ends_the_epoch_and_is_named(self):
        data = self.damaged_copy(self.TEXT)
        job, = self.run_all(1, "--remainder", "exact", data=data)
        jobs.require_refusal(self, job, ENVIRONMENT, f"'{data / path_of(self.TEXT)}', byte offset 0",
                             "expected the first bytes of a JPEG or a PNG")
        step, = (step for step, samples in enumerate(self.whole) if self.TEXT in dict(samples))
        self.assertEqual(joined([steps_of(job.stdout)]), self.whole[:step])

    def test_others_take_their_places_alike_at_any_world_size(self):
        damaged = {self.TEXT, self.EMPTY, self.CUT_PNG}
        data = self.damaged_copy(*damaged)
        results = []
        for world_size in WORLD_SIZES:
            with self.subTest(world_size=world_size):
                output = self.folder / f"output{world_size}"
                ranks = self.ranks(world_size, "--remainder", "exact", "--max-bad", 3, "--output", output, data=data)
                results.append(joined(ranks))
                self.assertEqual(results[-1], results[0])
                met_by = self.require_list(output / "bad_samples.jsonl", data, damaged, ranks)
                self.assertEqual(len(met_by), min(world_size, 3))
        for found, wanted in zip(flat(results[0]), flat(self.whole), strict=True):
            if wanted[0] in damaged:
                self.assertNotIn(found[0], damaged)
            else:
                self.assertEqual(found, wanted)

    def require_list(self, file, data, damaged, ranks):
        """A line for each damaged picture, by the rank that met it; returns these ranks."""
        places = [[(rank, label) for rank, steps in enumerate(ranks) for label, _ in steps.get((EPOCH, step), [])]
                  for step in range(len(self.whole))]
        wanted = {}
        for (label, _), (rank, replacement) in zip(flat(self.whole), flat(places), strict=True):
            if label in damaged:
                wanted[label] = {"rank": rank, "epoch": EPOCH, "index": label, "path": str(data / path_of(label)),
                                 "offset": 0, "replacement": replacement}
        found = {}
        for record in map(json.loads, file.read_text().splitlines()):
            self.assertIn(f"'{data / path_of(record['index'])}', byte offset ", record.pop("reason"))
            self.assertNotIn(record["index"], found)
            found[record["index"]] = record
        self.assertEqual(found, wanted)
        return {record["rank"] for record in wanted.values()}

    def test_one_too_many_ends_the_run(self):
        data = self.damaged_copy(self.TEXT, self.EMPTY, self.CUT_PNG, self.CUT_JPEG)
        file = self.folder / "output/bad_samples.jsonl"
        job, = self.run_all(1, "--max-bad", 3, "--output", file.parent, data=data)
        jobs.require_refusal(self, job, ENVIRONMENT, f"more than 3 of {IMAGES} samples are bad (listed in '{file}')",
                             str(data))
        self.assertEqual({json.loads(line)["index"] for line in file.read_text().splitlines()},
                         {self.TEXT, self.EMPTY, self.CUT_PNG, self.CUT_JPEG})


class SmallFolders(LoaderTest):
    def require_refusal_before_the_first_step(self, ended, exit_code, *says):
        for job in ended:
            jobs.require_refusal(self, job, exit_code, *says)
            self.assertEqual(job.stdout, "", job)

    def two_pictures(self):
        data = self.folder / "two"
        for number in range(2):
            shutil.copytree(self.pictures / f"{number:03d}", data / f"{number:03d}")
        return data

    def test_an_empty_one_is_refused(self):
        data = self.folder / "empty"
        data.mkdir()
        self.require_refusal_before_the_first_step(
            self.run_all(2, data=data), ENVIRONMENT,
            f"Image folder '{data}': expected a folder of images for each class, found 0 files and no folder.")

    def test_fewer_images_than_ranks_are_refused_where_a_rank_would_have_none(self):
        data = self.two_pictures()
        self.require_refusal_before_the_first_step(
            self.run_all(3, "--remainder", "uneven", data=data), USAGE,
            "A data set of 2 samples leaves some of 3 ranks without any in an epoch", "at most 2 ranks")
        self.require_refusal_before_the_first_step(
            self.run_all(3, "--remainder", "drop", data=data), USAGE,
            "An epoch would have no step: 3 ranks with a batch size of 6 need 18 samples")

    def test_fewer_images_than_ranks_are_padded(self):
        ranks = self.ranks(3, data=self.two_pictures())
        labels = [[label for label, _ in flat(joined([steps]))] for steps in ranks]
        self.assertEqual([len(of_rank) for of_rank in labels], [1, 1, 1])
        self.assertEqual(set(flat(labels)), {0, 1})
        self.assertEqual(ranks[2], ranks[0])


if __name__ == "__main__":
    jobs.require_programs(loader_jobs.PROGRAM)
    unittest.main()
