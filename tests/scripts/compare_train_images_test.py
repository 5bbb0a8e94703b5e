"""Tests of bench/compare_train_images.py."""

import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_train_images
from compare_train_images import EVALUATION, GOALS, IMAGES, MEMORY
from comparison import ProgramFailed

OPTIONS = types.SimpleNamespace(workload="step", same_settings=None, model="resnet50", ranks=1, threads=2, workers=1,
                                batch_size=8, image_size=224, data=None)


def options(**changed):
    return types.SimpleNamespace(**vars(OPTIONS) | changed)


def record(rate, peak_mb=1000, **more):
    measured = {"images_per_s": rate, "peak_rss_bytes": peak_mb * 1e6}
    return {"precision": "float32", "channels_last": False} | measured | more


def lines_of(ours, theirs, goals, measures=(IMAGES, MEMORY)):
    lines = compare_train_images.table({"libtrain": ours, "pytorch": theirs}, measures, goals).splitlines()
    return [line.split() for line in lines]


class Table(unittest.TestCase):
    def test_compares_within_a_round(self):
        ours = [record(10), record(24), record(30)]
        theirs = [record(5), record(8), record(20)]
        _, libtrain, pytorch, ratios = lines_of(ours, theirs, {})
        self.assertEqual(["libtrain", "24.0", "(10.0-30.0)", "1000", "(1000-1000)", "float32"], libtrain)
        self.assertEqual(["pytorch", "8.0", "(5.0-20.0)", "1000", "(1000-1000)", "float32"], pytorch)
        # 2, 3 and 1.5 within a round.
        self.assertEqual(["libtrain/pytorch", "2.00", "(1.50-3.00)", "1.00", "(1.00-1.00)"], ratios)

    def test_judges_rates_by_the_least_and_memory_by_the_most_that_is_wanted(self):
        for rate, peak, verdicts in ((11, 700, ("met", "met")), (9, 701, ("missed", "missed"))):
            *_, goals = lines_of([record(rate, peak)], [record(10)], {IMAGES: 1.10, MEMORY: 0.70})
            self.assertEqual(["goal", ">=", "1.10", verdicts[0], "<=", "0.70", verdicts[1]], goals)

    def test_has_the_measures_of_the_workload(self):
        ours, theirs = [record(1, evaluation_images_per_s=30)], [record(1, evaluation_images_per_s=20)]
        head, *_, ratios, goals = lines_of(ours, theirs, {EVALUATION: 1.7}, (EVALUATION, MEMORY))
        self.assertEqual("images/s of evaluation peak MB of a rank", " ".join(head))
        self.assertEqual(["libtrain/pytorch", "1.50", "(1.50-1.50)", "1.00", "(1.00-1.00)"], ratios)
        self.assertEqual(["goal", ">=", "1.70", "missed", "-"], goals)

    def test_names_the_settings_of_each(self):
        ours = [record(2) | {"precision": "bfloat16", "channels_last": True}]
        _, libtrain, pytorch, _ = lines_of(ours, [record(1)], {})
        self.assertEqual((["bfloat16,", "channels_last"], "float32"), (libtrain[-2:], pytorch[-1]))


class Goals(unittest.TestCase):
    def test_are_for_the_sizes_of_the_workload(self):
        self.assertEqual(GOALS["step", None], compare_train_images.goals_of(options()))
        self.assertEqual(GOALS["step", "bfloat16"], compare_train_images.goals_of(options(same_settings="bfloat16")))
        for changed in ({"model": "resnet18"}, {"ranks": 2}, {"batch_size": 4}, {"image_size": 32}):
            with self.subTest(**changed):
                self.assertEqual({}, compare_train_images.goals_of(options(**changed)))


class Records(unittest.TestCase):
    SUMMARY = {"event": "summary", "time": 40.0, "images_per_s": 12.5, "images_per_s_interval": 0.5, "steps": 8,
               "peak_rss_bytes": 1000, "precision": "bfloat16", "channels_last": True}

    def record(self, *records, val_images=0, **changed):
        return compare_train_images.libtrain_record([*records, self.SUMMARY], options(**changed), val_images)

    def test_have_what_train_resnet_measured_and_chose(self):
        found = self.record()
        self.assertEqual((12.5, 0.5, 1000), tuple(found[name] for name in (
            "images_per_s", "images_per_s_interval", "peak_rss_bytes")))
        self.assertEqual(("bfloat16", True), (found["precision"], found["channels_last"]))

    def test_have_the_median_of_the_evaluations_after_the_first(self):
        times = ((5, 9), (10, 12), (20, 21), (30, 33))  # of the last step, and of the evaluation after it
        records = [{"event": "step", "step": 4, "time": 1.0, "samples_per_s": 8.0}]
        for step, evaluation in times:
            records += [{"event": "step", "step": 8, "time": float(step), "samples_per_s": 8.0},
                        {"event": "evaluation", "time": float(evaluation)},
                        {"event": "epoch", "time": evaluation + 1.0}]
        self.assertEqual([4, 2, 1, 3], compare_train_images.evaluation_seconds(records))
        found = self.record(*records, val_images=100)
        self.assertEqual((50, 100), (found["evaluation_images_per_s"], found["evaluation_images"]))
        self.assertEqual(25, self.record(*records[:3], val_images=100)["evaluation_images_per_s"])

    def test_have_the_first_step_where_it_was_recorded_alone(self):
        found = self.record({"event": "step", "step": 1, "time": 10.0, "samples_per_s": 8.0}, ranks=2)
        self.assertEqual((8, 10), (found["first_step_began"], found["first_step_ended"]))
        self.assertEqual({"first_step_begin_s": 3, "first_step_end_s": 5, "other": 1},
                         compare_train_images.since_launch(
                             {"first_step_began": 8, "first_step_ended": 10, "other": 1}, launched=5))
        of_ten = self.record({"event": "step", "step": 10, "time": 9.0, "samples_per_s": 8.0})
        self.assertNotIn("first_step_began", of_ten)

    def test_that_are_missing_are_an_error(self):
        with self.assertRaisesRegex(ProgramFailed, "no summary"):
            compare_train_images.libtrain_record([], OPTIONS, 0)
        with self.assertRaisesRegex(ProgramFailed, "libtrain has measured no images/s of evaluation: the"):
            compare_train_images.require_measures(self.record(), options(measures=(IMAGES, EVALUATION)))

    def test_of_different_work_are_an_error(self):
        same = options(same_settings="bfloat16")
        ours = record(1) | {"evaluation_images": 64}
        compare_train_images.require_same_work(ours, ours, same)
        compare_train_images.require_same_work(ours, ours | {"precision": "bfloat16"}, OPTIONS)
        with self.assertRaisesRegex(ProgramFailed, "libtrain's evaluation_images is 64, PyTorch's 63"):
            compare_train_images.require_same_work(ours, ours | {"evaluation_images": 63}, OPTIONS)
        with self.assertRaisesRegex(ProgramFailed, "libtrain's precision is float32, PyTorch's bfloat16"):
            compare_train_images.require_same_work(ours, ours | {"precision": "bfloat16"}, same)

    def test_are_saved_with_their_rounds(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "records.jsonl"
            compare_train_images.save({"libtrain": [record(1), record(2)], "pytorch": [record(3)]}, file)
            self.assertEqual([record(1) | {"round": 0}, record(2) | {"round": 1}, record(3) | {"round": 0}],
                             compare_train_images.read_records(file))


class Rounds(unittest.TestCase):
    def order(self, workload, rounds):
        """What runs after what, and the rounds that count of libtrain."""
        ran = []

        def program(name):
            return lambda _options, _directory: ran.append(name) or record(len(ran))

        programs = compare_train_images.run_libtrain, compare_train_images.run_peer
        compare_train_images.run_libtrain, compare_train_images.run_peer = program("ours"), program("theirs")
        try:
            results = compare_train_images.run_rounds(options(workload=workload, rounds=rounds, measures=(IMAGES,)))
        finally:
            compare_train_images.run_libtrain, compare_train_images.run_peer = programs
        return ran, [each["images_per_s"] for each in results["libtrain"]]

    def test_swap_the_order(self):
        self.assertEqual((["ours", "theirs", "theirs", "ours"], [1, 4]), self.order("step", 2))

    def test_of_starts_have_one_before_that_does_not_count(self):
        self.assertEqual((["theirs", "ours", "ours", "theirs"], [3]), self.order("start", 1))


if __name__ == "__main__":
    unittest.main()
