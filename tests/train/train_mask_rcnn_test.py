"""train_mask_rcnn learns from pictures in COCO's format, on any number of ranks, killed or not; segment finds what it has
learnt, and both refuse what they cannot use.
"""

import json
import os
import shutil
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("PIL", "pycocotools", "safetensors")

import numpy
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

USAGE, ENVIRONMENT = 2, 3
LOSSES = {"loss", "loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"}
PICTURES = jobs.ROOT / "examples/segment/shapes"
WEIGHTS = jobs.ROOT / "examples/segment/shapes.safetensors"


def make_shapes(folder, *options):
    job = jobs.run([jobs.program("make_shapes"), "--output", folder, *options])
    assert job.exit_code == 0, job
    return folder


class OnShapes(unittest.TestCase):
    def setUp(self):
        self.output = jobs.temporary_directory(self) / "output"

    def run_it(self, *options, recipe="shapes", ranks=2, time_limit=120, meanwhile=None):
        command = [jobs.program("train_mask_rcnn"), "--data", self.data, "--recipe", recipe, "--output", self.output,
                   "--threads", 1, "--quiet", *options]
        return jobs.run(command, ranks=ranks, time_limit=time_limit, meanwhile=meanwhile)

    def require_success(self, job):
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)

    def records(self, event):
        lines = (self.output / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def segment(self, *arguments, exit_code=0):
        job = jobs.run([jobs.program("segment"), *arguments], time_limit=120)
        self.assertEqual(job.exit_code, exit_code, job)
        return job

    def found(self, *arguments):
        return json.loads(self.segment("--json", "--precision", "float32", *arguments).stdout)


class Training(OnShapes):
    @classmethod
    def setUpClass(cls):
        # Of several shapes, some covered, and with crowds, so that pictures and batches differ in all respects.
        cls.data = make_shapes(jobs.temporary_directory(cls) / "shapes", "--train", 60, "--val", 7, "--size", 96,
                               "--vary-size", "--crowds")

    def test_an_evaluation_over_ranks_is_that_of_all_pictures(self):
        job = self.run_it("--weights", WEIGHTS, "--iter", 3, "--log-iters", 1, "--learning-rate", "1e-6")
        self.require_success(job)
        steps = self.records("step")
        self.assertEqual(len(steps), 3)
        for step in steps:
            self.assertLessEqual(LOSSES, set(step))
            self.assertAlmostEqual(step["loss"], sum(step[name] for name in LOSSES - {"loss"}), delta=1e-5)
        evaluation = self.records("evaluation")[-1]
        summary = self.records("summary")[-1]
        self.assertEqual(summary["steps"], 3)
        self.assertGreater(summary["train_perf_fps"], 0)
        self.assertGreater(summary["dfps"], 0)

        # One process, another program: the same weights on the same pictures.
        annotations = self.data / "annotations/instances_val2017.json"
        truth = COCO(str(annotations))
        ids = {image["file_name"]: image["id"] for image in truth.loadImgs(truth.getImgIds())}
        numbers = {category["name"]: category["id"] for category in truth.loadCats(truth.getCatIds())}
        rows = self.found("--weights", self.output / "model.safetensors", "--score-threshold", "0.05",
                          self.data / "val2017")
        self.assertEqual(len(rows), 7)
        for kind, name in (("bbox", "bbox"), ("segm", "segm")):
            results = []
            for row in rows:
                for box, label, score, mask in zip(row["boxes"], row["labels"], row["scores"], row["masks"],
                                                   strict=True):
                    result = {"image_id": ids[Path(row["image"]).name], "category_id": numbers[label], "score": score}
                    if kind == "bbox":
                        result["bbox"] = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
                    else:
                        result["segmentation"] = mask
                    results.append(result)
            file = self.output / f"{kind}.json"
            file.write_text(json.dumps(results))
            job = jobs.run([jobs.program("coco_evaluate"), "--ground-truth", annotations, "--detections", file, "--type",
                            kind, "--json"])
            self.assertEqual(job.exit_code, 0, job)
            stats = json.loads(job.stdout)["stats"]
            self.assertGreater(stats[1], 0.3)
            for key, value in zip(("ap", "ap50", "ap75"), stats):
                self.assertAlmostEqual(evaluation[f"{name}_{key}"], value, delta=1e-6, msg=(kind, key))

        # And the same program again, which needs no pictures to learn.
        weights = jobs.temporary_directory(self) / "weights.safetensors"
        shutil.move(self.output / "model.safetensors", weights)
        shutil.rmtree(self.output)
        for ranks in 1, 2:
            self.assert_equal_precision(self.evaluate(weights, "--train", "none", ranks=ranks), evaluation)
            self.assertEqual(sorted(path.name for path in self.output.iterdir()),
                             ["detections.json", "logs", "metrics.jsonl"])

    def evaluate(self, weights, *options, **how):
        shutil.rmtree(self.output, ignore_errors=True)
        self.require_success(self.run_it("--weights", weights, "--test-only", *options, **how))
        (evaluation,) = self.records("evaluation")
        return evaluation

    def assert_equal_precision(self, found, expected):
        values = {name for name in expected if name.startswith(("bbox_", "segm_"))}
        self.assertGreaterEqual(len(values), 8)
        for name in values:
            self.assertAlmostEqual(found[name], expected[name], delta=1e-6, msg=name)

    def test_labels_may_be_the_ids_of_categories(self):
        plain = self.evaluate(WEIGHTS)
        numbers = {1: 2, 2: 5, 3: 9}
        folder = jobs.temporary_directory(self) / "copy"
        shutil.copytree(self.data, folder)
        for split in "train", "val":
            file = folder / f"annotations/instances_{split}2017.json"
            content = json.loads(file.read_text())
            for each in content["categories"]:
                each["id"] = numbers[each["id"]]
            for each in content["annotations"]:
                each["category_id"] = numbers[each["category_id"]]
            file.write_text(json.dumps(content))
        self.data = folder
        # The same network, with outputs that are never largest for the numbers in between.
        spread = {name: tensor for name, tensor in load_file(WEIGHTS).items()}
        for name in ("box_predictor.cls_score", "box_predictor.bbox_pred", "mask_predictor.mask_fcn_logits"):
            for kind in "weight", "bias":
                tensor = spread[f"roi_heads.{name}.{kind}"]
                by_class = tensor.reshape(4, -1)
                wide = numpy.full((10, by_class.shape[1]), -1000 if kind == "bias" else 0, numpy.float32)
                wide[[0, *numbers.values()]] = by_class
                spread[f"roi_heads.{name}.{kind}"] = wide.reshape(-1, *tensor.shape[1:])
        file = jobs.temporary_directory(self) / "spread.safetensors"
        save_file(spread, file)
        self.assert_equal_precision(self.evaluate(file, "--labels-are-ids"), plain)
        found = json.loads((self.output / "detections.json").read_text())
        self.assertEqual({each["category_id"] for each in found}, set(numbers.values()))

        shutil.rmtree(self.output)
        self.require_success(self.run_it("--iter", 1, "--labels-are-ids"))
        with safe_open(self.output / "model.safetensors", "np") as file:
            self.assertEqual(json.loads(file.metadata()["category_ids"]), [1, 2, 3, 4, 5, 6, 7, 8, 9])
            self.assertEqual(json.loads(file.metadata()["classes"])[4:6], ["square", "no category 6"])
            self.assertEqual(file.get_tensor("roi_heads.box_predictor.cls_score.weight").shape[0], 10)

    def test_sixteen_bits_are_trained_in_the_layout_for_them(self):
        exact = self.first_losses()
        rounded = self.first_losses("--precision", "bfloat16")
        self.assertAlmostEqual(rounded["loss"], exact["loss"], delta=0.05 * exact["loss"])
        self.assertNotEqual(rounded["loss"], exact["loss"])
        summary = self.records("summary")[-1]
        self.assertEqual((summary["precision"], summary["channels_last"]), ("bfloat16", True))
        job = self.run_it("--channels-last", "yes")
        jobs.require_refusal(self, job, USAGE, "--channels-last", "auto, true, false")

    def test_a_run_of_so_many_steps_continues_on_other_ranks_with_the_precision_that_was_chosen(self):
        options = "--iter", 10, "--skip-test"
        self.require_success(self.run_it(*options, "--precision", "auto"))
        precision = self.records("summary")[-1]["precision"]
        job = self.run_it(*options, "--precision", precision, ranks=1)
        self.require_success(job)
        self.assertEqual(self.records("summary")[-1]["steps"], 10, job)
        job = self.run_it(*options, "--precision", "bfloat16" if precision == "float32" else "float32")
        jobs.require_refusal(self, job, USAGE, "precision is")

    def test_weights_say_what_they_are_of(self):
        self.require_success(self.run_it("--iter", 1, "--skip-test", "--min-size", 64, "--max-size", 100))
        with safe_open(self.output / "model.safetensors", "np") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "model": "tiny", "classes": '["circle","square","triangle"]',
                                               "category_ids": "[1,2,3]", "min_size": "64", "max_size": "100",
                                               "norm": "batch", "norm_epsilon": "[1e-05]"})
        self.assertEqual(self.records("evaluation"), [])

    def test_images_are_scaled_at_random_and_objects_are_pasted(self):
        plain = self.first_losses()
        jittered = self.first_losses("--min-scale", 0.5, "--max-scale", 1.5)
        pasted = self.first_losses("--copy-paste", 1)
        for changed in (jittered, pasted):
            self.assertTrue(LOSSES <= changed.keys())
            self.assertNotEqual(changed["loss"], plain["loss"])
        self.assertEqual(self.first_losses("--copy-paste", 1)["loss"], pasted["loss"])

    def first_losses(self, *options):
        shutil.rmtree(self.output, ignore_errors=True)
        self.require_success(self.run_it("--iter", 1, "--log-iters", 1, "--skip-test", *options))
        return self.records("step")[0]

    def test_weights_are_where_the_training_begins(self):
        trained = self.first_losses("--weights", WEIGHTS)
        self.assertLess(trained["loss_classifier"], 0.7)
        # As many classes, but not these. Another seed than that of the training from which the weights are: its new
        # predictors would be those with which it began.
        renewed = self.first_losses("--weights", WEIGHTS, "--new-classes", "--seed", 5)
        self.assertGreater(renewed["loss_classifier"], 1.0)
        self.assertGreater(renewed["loss_mask"], 0.6)
        self.assertLess(renewed["loss_objectness"], 0.5 * self.first_losses()["loss_objectness"])

    def test_a_backbone_is_taken_from_the_file_of_its_resnet_alone(self):
        body = {name.removeprefix("backbone.body."): tensor for name, tensor in load_file(WEIGHTS).items()
                if name.startswith("backbone.body.")}
        body["fc.weight"] = numpy.zeros((7, 5), numpy.float32)
        file = jobs.temporary_directory(self) / "body.safetensors"
        save_file(body, file)
        self.assertNotEqual(self.first_losses("--backbone-weights", file), self.first_losses())
        # A deeper ResNet has all tensors of this one, and more.
        body["layer3.1.conv1.weight"] = numpy.zeros((64, 64, 3, 3), numpy.float32)
        save_file(body, file)
        shutil.rmtree(self.output)
        jobs.require_refusal(self, self.run_it("--iter", 1, "--backbone-weights", file), USAGE, "body.safetensors",
                             "'layer3.1.conv1.weight'")

    def test_rates_follow_the_recipe(self):
        job = self.run_it("--model", "tiny", "--iter", 6, "--log-iters", 1, "--skip-test", "--images-per-rank", 2,
                          "--warmup-iters", 2, "--decay-iters", "3,5", "--min-size", 64, recipe="nvidia")
        self.require_success(job)
        rate = 0.04 * 4 / 32
        for step, factor in zip(self.records("step"), (1 / 3, 2 / 3, 1, 0.1, 0.1, 0.01), strict=True):
            self.assertAlmostEqual(step["learning_rate"], rate * factor, delta=1e-6 * rate)

    def test_archives_of_the_pictures_give_the_same_training(self):
        archives = jobs.temporary_directory(self) / "archives"
        for split in "train2017", "val2017":
            job = jobs.run([jobs.program("libtrain-pack"), "--input", self.data, "--coco", split, "--output", archives,
                            "--format", "tar"])
            self.assertEqual(job.exit_code, 0, job)
        self.require_success(self.run_it("--iter", 2, "--log-iters", 1))
        expected = [step["loss"] for step in self.records("step")]
        shutil.rmtree(self.output)
        self.data = archives
        self.require_success(self.run_it("--iter", 2, "--log-iters", 1))
        self.assertEqual([step["loss"] for step in self.records("step")], expected)


class Refusals(OnShapes):
    def setUp(self):
        super().setUp()
        self.data = make_shapes(jobs.temporary_directory(self) / "shapes", "--train", 9, "--val", 2, "--size", 64)
        self.annotations = self.data / "annotations/instances_train2017.json"

    def try_it(self, *options):
        return self.run_it("--iter", 1, "--warmup-iters", 0, *options)

    def refuse(self, *options, exit_code, words):
        jobs.require_refusal(self, self.try_it(*options), exit_code, *words)

    def change(self, function):
        content = json.loads(self.annotations.read_text())
        function(content)
        self.annotations.write_text(json.dumps(content))

    def test_options_that_have_no_effect_or_no_sense_are_named(self):
        self.refuse("--min-scale", 2, exit_code=USAGE, words=("--min-scale is 2", "--max-scale is 1"))
        self.refuse("--copy-paste", 2, exit_code=USAGE, words=("copy-paste",))
        self.refuse("--trainable-stages", 2, exit_code=USAGE, words=("--trainable-stages", "tiny"))
        self.refuse("--test-only", exit_code=USAGE, words=("--test-only", "--weights"))

    def test_malformed_annotations_are_named_or_left_out(self):
        def damage(content):
            del content["annotations"][2]["bbox"]

        self.change(damage)
        self.refuse(exit_code=ENVIRONMENT, words=("instances_train2017.json", "annotation 3", "bbox"))
        self.require_success(self.try_it("--skip-malformed"))

    def test_objects_without_a_mask_are_named(self):
        def leave_out(content):
            content["annotations"][4]["segmentation"] = []

        self.change(leave_out)
        self.refuse(exit_code=ENVIRONMENT, words=("have no segmentation", "annotation 5", "train2017"))

    def test_pictures_of_another_size_are_named(self):
        def enlarge(content):
            for image in content["images"]:
                image["width"] += 1

        self.change(enlarge)
        self.refuse(exit_code=ENVIRONMENT, words=("train2017/", "64 x 64", "65 x 64"))

    def test_splits_of_different_categories_are_refused(self):
        self.change(lambda content: content["categories"].append({"id": 9, "name": "star"}))
        self.refuse(exit_code=USAGE, words=("--train and --val", "categories"))

    def test_splits_with_other_names_for_the_same_ids_are_refused(self):
        self.change(lambda content: content["categories"].reverse() or content["categories"][0].update(name="star"))
        self.refuse(exit_code=USAGE, words=("--train and --val", "categories"))

    def test_missing_files_and_wrong_words_are_named(self):
        self.refuse("--model", "resnet18", exit_code=USAGE, words=("--model", "resnet50, resnet101, tiny"))
        self.refuse("--decay-epochs", "5,3", exit_code=USAGE, words=("--decay-epochs", "5,3"))
        self.refuse("--train", "train2018", exit_code=ENVIRONMENT, words=("instances_train2018.json",))
        self.refuse("--images-per-rank", 5, exit_code=USAGE, words=("10",))
        self.annotations.write_text("[]")
        self.refuse(exit_code=ENVIRONMENT, words=("instances_train2017.json",))

    def test_weights_of_other_classes_are_refused_unless_they_are_left_out(self):
        self.change(lambda content: content["categories"].append({"id": 9, "name": "star"}))
        shutil.copy(self.annotations, self.data / "annotations/instances_val2017.json")
        shutil.rmtree(self.data / "val2017")
        shutil.copytree(self.data / "train2017", self.data / "val2017")
        self.refuse("--weights", WEIGHTS, exit_code=USAGE, words=("shapes.safetensors", "on other categories"))
        self.require_success(self.try_it("--weights", WEIGHTS, "--new-classes"))


    def test_weights_of_as_many_other_classes_or_another_model_are_refused(self):
        for split in "train", "val":
            self.annotations = self.data / f"annotations/instances_{split}2017.json"
            self.change(lambda content: content["categories"][0].update(name="disc"))
        self.refuse("--weights", WEIGHTS, exit_code=USAGE, words=("shapes.safetensors", "on other categories"))
        self.refuse("--weights", WEIGHTS, "--test-only", exit_code=USAGE, words=("on other categories",))
        self.refuse("--weights", WEIGHTS, "--model", "resnet50", exit_code=USAGE, words=("--model tiny, not resnet50",))
        self.refuse("--weights", WEIGHTS, "--norm-epsilon", 0, exit_code=USAGE, words=("--norm-epsilon 1e-05, not 0",))


class Segment(OnShapes):
    def test_finds_the_shapes_in_the_pictures_of_the_repository(self):
        truth = COCO(str(PICTURES / "annotations/instances_val2017.json"))
        images = {image["file_name"]: image for image in truth.loadImgs(truth.getImgIds())}
        names = {category["id"]: category["name"] for category in truth.loadCats(truth.getCatIds())}
        objects, found, detections = 0, 0, 0
        for row in self.found("--weights", WEIGHTS, PICTURES):
            self.assertEqual(list(row), ["image", "boxes", "labels", "scores", "masks"])
            image = images[Path(row["image"]).name]
            detections += len(row["labels"])
            for box, score, mask in zip(row["boxes"], row["scores"], row["masks"], strict=True):
                self.assertTrue(0 <= box[0] < box[2] <= image["width"] and 0 <= box[1] < box[3] <= image["height"], row)
                self.assertTrue(0.5 <= score <= 1)
                self.assertEqual(mask["size"], [image["height"], image["width"]])
            for annotation in truth.loadAnns(truth.getAnnIds(image["id"])):
                objects += 1
                ious = coco_mask.iou(row["masks"], [truth.annToRLE(annotation)], [0])
                found += any(iou[0] >= 0.5 and label == names[annotation["category_id"]]
                             for iou, label in zip(ious, row["labels"]))
        self.assertGreaterEqual(found, 0.7 * objects, (found, objects))
        self.assertLessEqual(detections, 1.4 * objects, (detections, objects))

    def test_draws_each_picture_under_a_name_of_its_own(self):
        folder = jobs.temporary_directory(self)
        for below in "a", "b":
            (folder / "photos" / below).mkdir(parents=True)
            with Image.open(next((PICTURES / "val2017").iterdir())) as image:
                size = image.size
                image.convert("RGB").save(folder / "photos" / below / "same.jpg", quality=95)
        job = self.segment("--weights", WEIGHTS, "--output", folder / "drawn", folder / "photos")
        self.assertEqual(len(job.stdout.splitlines()), 2)
        self.assertEqual(sorted(path.name for path in (folder / "drawn").iterdir()), ["same-2.png", "same.png"])
        with Image.open(folder / "drawn/same.png") as drawn, Image.open(folder / "photos/a/same.jpg") as photo:
            self.assertEqual(drawn.size, (4 * size[0], 4 * size[1]))  # a small picture is enlarged
            plain = numpy.asarray(photo.resize(drawn.size, Image.Resampling.NEAREST), dtype=int)
            changed = (abs(numpy.asarray(drawn, dtype=int) - plain).max(axis=2) > 40).mean()
        self.assertTrue(0.02 < changed < 0.9, changed)

    def test_does_not_replace_what_it_is_given(self):
        folder = jobs.temporary_directory(self)
        photos = shutil.copytree(PICTURES / "val2017", folder / "photos")
        before = {path.name: path.read_bytes() for path in photos.iterdir()}
        photo = next(photos.iterdir())
        (folder / "link").symlink_to(photos)
        for output, given in ((photos, photos), (photos, photo), (photos, folder), (folder / "link", photos),
                              (photos, photos.as_uri())):
            with self.subTest(output=output, given=given):
                job = self.segment("--weights", WEIGHTS, "--output", output, given, exit_code=USAGE)
                self.assertIn(f"'{output}'", job.stderr)
                self.assertIn("--output", job.stderr)
                self.assertEqual({path.name: path.read_bytes() for path in photos.iterdir()}, before)
        self.segment("--weights", WEIGHTS, "--output", photos / "drawn", photo)
        self.segment("--json", "--weights", WEIGHTS, "--output", photos, photo)

    def test_finds_the_same_objects_in_bfloat16(self):
        arguments = ("--weights", WEIGHTS, "--score-threshold", "0.7", PICTURES / "val2017")
        rounded = json.loads(self.segment("--json", "--precision", "bfloat16", *arguments).stdout)
        differences = []
        for exact, other in zip(self.found(*arguments), rounded, strict=True):
            self.assertEqual(sorted(exact["labels"]), sorted(other["labels"]), exact["image"])
            for box in exact["boxes"]:
                differences.append(min(max(abs(a - b) for a, b in zip(box, each)) for each in other["boxes"]))
        self.assertGreater(len(differences), 5)
        self.assertLess(max(differences), 2, "pixels")
        self.assertGreater(max(differences), 0, "both are of one precision")

    def test_finds_objects_of_any_score_that_is_asked_for(self):
        scores = [score for row in self.found("--weights", WEIGHTS, "--score-threshold", "0.001", PICTURES / "val2017")
                  for score in row["scores"]]
        self.assertLess(min(scores), 0.05)

    def test_refuses_what_it_cannot_use(self):
        folder = jobs.temporary_directory(self)
        broken = folder / "broken.png"
        broken.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
        photo = next((PICTURES / "val2017").iterdir())
        job = self.segment("--json", "--weights", WEIGHTS, broken, photo, exit_code=ENVIRONMENT)
        self.assertEqual(len(json.loads(job.stdout)), 1)
        self.assertIn("broken.png", job.stderr)
        self.assertIn("1 of 2 images cannot be read. The others have been segmented.", job.stderr)
        for arguments, exit_code, words in (
            (("--weights", folder / "none.safetensors", photo), ENVIRONMENT, "none.safetensors"),
            (("--weights", jobs.ROOT / "examples/classify/digits.safetensors", photo), USAGE, "resnet8"),
            (("--weights", WEIGHTS, "--score-threshold", "2", photo), USAGE, "--score-threshold"),
            (("--weights", WEIGHTS, "--precision", "half", photo), USAGE, "--precision"),
            (("--weights", WEIGHTS, folder / "nothing"), ENVIRONMENT, "nothing"),
            (("--weights", WEIGHTS, "--output", broken, photo), ENVIRONMENT, "broken.png"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.segment(*arguments, exit_code=exit_code).stderr)


class Learning(OnShapes):
    """The recipe, whose goals are a box AP50 of 0.90 and a mask AP50 of 0.85 on 100 held-out pictures."""

    @classmethod
    def setUpClass(cls):
        cls.data = make_shapes(jobs.temporary_directory(cls) / "shapes")

    def learn(self, ranks, meanwhile=None):
        # Eight images a step on any number of ranks.
        return self.run_it("--images-per-rank", 8 // ranks, ranks=ranks, time_limit=1500, meanwhile=meanwhile)

    def precisions(self, job):
        self.require_success(job)
        last = self.records("evaluation")[-1]
        self.assertEqual(self.records("summary")[-1]["epochs"], 24)
        return last["bbox_ap50"], last["segm_ap50"]

    def test_reaches_the_precision_on_any_number_of_ranks(self):
        precisions = {}
        for ranks in 1, 2, 4:
            self.setUp()
            precisions[ranks] = self.precisions(self.learn(ranks))
            self.assertGreaterEqual(precisions[ranks][0], 0.90, precisions)
            self.assertGreaterEqual(precisions[ranks][1], 0.85, precisions)
        for values in zip(*precisions.values()):
            self.assertLessEqual(max(values) - min(values), 0.03, precisions)

    def test_reaches_the_precision_after_a_kill_on_another_number_of_ranks(self):
        def epochs():
            """ten epochs"""
            return (self.output / "metrics.jsonl").exists() and len(self.records("epoch")) >= 10

        def kill(_):
            jobs.wait_until(epochs, 900)
            ranks = [process for process in jobs.processes_of_this_program()
                     if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/train_mask_rcnn")]
            os.kill(ranks[0], signal.SIGKILL)

        self.assertNotIn(self.learn(2, meanwhile=kill).exit_code, (0, 5))
        self.assertLess(len(self.records("epoch")), 24)
        boxes, masks = self.precisions(self.run_it("--images-per-rank", 4, ranks=1, time_limit=1500))
        self.assertGreaterEqual(boxes, 0.90)
        self.assertGreaterEqual(masks, 0.85)


if __name__ == "__main__":
    jobs.require_programs("coco_evaluate", "libtrain-pack", "make_shapes", "segment", "train_mask_rcnn")
    unittest.main()
