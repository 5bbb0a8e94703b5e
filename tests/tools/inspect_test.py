"""libtrain-inspect: its facts beside those that Pillow, numpy and json find, and damaged samples.

Runs itself with the project's Python, which has Pillow, numpy and pyarrow.
"""

import io
import json
import random
import re
import shutil
import struct
import sys
import tarfile
import unittest
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "data/formats")]
import jobs

jobs.require_packages("PIL", "numpy", "pyarrow")

import numpy
from PIL import Image

from shards_peer_test import example_message, framed

USAGE, ENVIRONMENT = 2, 3
# In the order of torchvision's ImageFolder: path, mode, size, and how it is saved.
IMAGES = [("cat/a.jpg", "RGB", (160, 120), {"format": "JPEG", "quality": 92}),
          ("cat/b.JPEG", "RGB", (97, 161), {"format": "JPEG", "quality": 95, "subsampling": "4:4:4"}),
          ("cat/deep/c.png", "RGB", (64, 48), {"format": "PNG"}),
          ("dog/a.b.jpg", "RGB", (131, 90), {"format": "JPEG", "restart_marker_blocks": 2}),
          ("dog/grey.jpg", "L", (120, 80), {"format": "JPEG"}),
          ("dog/progressive.jpg", "RGB", (100, 75), {"format": "JPEG", "progressive": True}),
          ("emu/0.png", "P", (90, 90), {"format": "PNG"}),
          ("emu/1.png", "LA", (75, 50), {"format": "PNG"}),
          ("emu/2.jpg", "RGBA", (50, 70), {"format": "PNG"}),
          ("emu/3.jpg", "RGB", (20, 16), {"format": "JPEG"}),
          ("fox/cmyk.jpg", "CMYK", (60, 40), {"format": "JPEG"}),
          ("fox/copy.jpg", None, None, None),  # of cat/a.jpg
          ("fox/deep.png", "I;16", (40, 50), {"format": "PNG"})]
PATHS = [path for path, _, _, _ in IMAGES]
CLASSES = ["cat", "dog", "emu", "fox"]


def picture(mode, size, seed):
    """Smooth, with other colours for each seed."""
    if mode == "P":
        return picture("RGB", size, seed).quantize(64)
    if mode == "I;16":
        ramp = numpy.arange(size[0] * size[1], dtype=numpy.uint16).reshape(size[1], size[0])
        return Image.fromarray(ramp * 31)
    small = Image.frombytes(mode, (9, 7), random.Random(seed).randbytes(9 * 7 * len(mode)))
    return small.resize(size, Image.Resampling.BICUBIC)


def opened(content):
    return Image.open(io.BytesIO(content))


def inspect(*arguments):
    return jobs.run([jobs.program("libtrain-inspect"), *arguments])


def bad_lines(job):
    return [line for line in job.stdout.splitlines() if line.startswith("bad sample ")]


def spread_of(values):
    return {"min": min(values), "median": float(numpy.median(values)), "max": max(values)}


def classes_of(labels, names=(), unit="samples"):
    counts = Counter(labels)

    def describe(label):
        return {"label": label} | ({"name": names[label]} if label < len(names) else {})

    def counted(label):
        return describe(label) | {unit: counts[label]}

    every = sorted(counts)
    missing = sorted(set(range(max(max(counts) + 1, len(names)))) - set(counts))
    smallest, largest = min(every, key=counts.get), max(every, key=counts.get)
    return {"count": len(counts), "smallest": counted(smallest), "largest": counted(largest),
            "largest_over_smallest": counts[largest] / counts[smallest],
            "missing": {"count": len(missing), "first": [describe(label) for label in missing[:5]]},
            "all": [counted(label) for label in every]}


def kinds_of(contents):
    kinds = Counter()
    for content in contents:
        image = opened(content)
        jpeg = image.format == "JPEG"
        progressive = bool(image.info.get("progressive"))
        kinds.update({"jpeg_baseline": jpeg and not progressive, "jpeg_progressive": jpeg and progressive,
                      "png": image.format == "PNG", "png_interlaced": False,
                      "grey": image.mode.startswith(("L", "I")), "cmyk": image.mode == "CMYK",
                      "alpha": image.mode in ("LA", "RGBA"), "sixteen_bit": image.mode.startswith("I"),
                      "arithmetic_coding": False, "restart_markers": jpeg and b"\xff\xdd\x00\x04" in content})
    return {name: int(count) for name, count in kinds.items()}


def images_of(contents):
    """What is said of images whose headers are sound."""
    sizes = [opened(content).size for content in contents]
    return {"widths": spread_of([width for width, _ in sizes]), "heights": spread_of([height for _, height in sizes]),
            "kinds": kinds_of(contents)}


class Inspect(unittest.TestCase):
    maxDiff = 8000

    @classmethod
    def setUpClass(cls):
        cls.images = jobs.temporary_directory(cls) / "train"
        for seed, (path, mode, size, options) in enumerate(IMAGES):
            (cls.images / path).parent.mkdir(parents=True, exist_ok=True)
            if mode:
                picture(mode, size, seed).save(cls.images / path, **options)
        shutil.copy(cls.images / "cat/a.jpg", cls.images / "fox/copy.jpg")
        cls.contents = {path: (cls.images / path).read_bytes() for path in PATHS}

    def setUp(self):
        self.folder = jobs.temporary_directory(self)

    def facts(self, *arguments, exit_code=0):
        job = inspect(*arguments, "--json")
        self.assertEqual(job.exit_code, exit_code, job)
        self.assertEqual(len(job.stdout.splitlines()), 1, job)
        return json.loads(job.stdout)

    def require(self, facts, **expected):
        self.assertEqual({key: facts.get(key) for key in expected}, expected)

    def refuse(self, exit_code, *arguments):
        """The only line on standard error."""
        job = inspect(*arguments)
        self.assertEqual(job.exit_code, exit_code, job)
        self.assertEqual((len(job.stderr.splitlines()), job.stdout), (1, ""), job)
        self.assertTrue(job.stderr.startswith("libtrain-inspect: "), job)
        return job.stderr

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def copy_of_images(self):
        return shutil.copytree(self.images, self.folder / "train")


class ImageFolder(Inspect):
    def test_is_described(self):
        labels = [CLASSES.index(path.split("/")[0]) for path in PATHS]
        root = str(self.images)
        self.assertEqual(self.facts(self.images), {
            "data": root, "format": "image folder", "samples": 13,
            "bytes": sum(map(len, self.contents.values())), "unsupported": 0, "classes": classes_of(labels, CLASSES),
            **images_of(self.contents.values()),
            "small_images": {"shorter_side_below": 32, "count": 1, "first": [f"{root}/emu/3.jpg"]},
            "duplicates": {"count": 1, "first": [{"sample": f"{root}/fox/copy.jpg", "same_as": f"{root}/cat/a.jpg"}]},
            "check": "headers", "bad_samples": []})

    def test_is_sound_when_decoded(self):
        self.require(self.facts(self.images, "--check", "decode"), check="decode", bad_samples=[], samples=13,
                     damaged_images={"count": 0, "places": 0, "all": []})

    def test_is_described_in_words(self):
        facts = self.facts(self.images)
        job = inspect(self.images)
        self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
        lines = job.stdout.splitlines()
        for line in ("format image folder", "samples 13", f"bytes {facts['bytes']}", "bad samples 0",
                     "  smallest: label 0, name cat, samples 3", "  largest: label 2, name emu, samples 4",
                     "widths: " + ", ".join(f"{key} {value}" for key, value in facts["widths"].items()),
                     f"    sample {self.images}/fox/copy.jpg, same as {self.images}/cat/a.jpg"):
            self.assertIn(line, lines)
        self.assertIn("restart markers 1", job.stdout)

    def test_is_the_same_by_uri_and_with_any_threads(self):
        expected = inspect(self.images, "--check", "decode", "--threads", "1").stdout
        self.assertEqual(inspect(self.images, "--check", "decode", "--threads", "5").stdout, expected)
        self.assertEqual(inspect(self.images.as_uri(), "--check", "decode", "--format", "images").stdout, expected)

    def test_is_only_listed_without_a_check(self):
        images = self.copy_of_images()
        (images / "cat/a.jpg").write_bytes(b"no image at all")
        facts = self.facts(images, "--check", "none")
        self.assertEqual(sorted(facts), sorted(["data", "format", "samples", "bytes", "unsupported", "classes", "check",
                                                "bad_samples"]))
        self.assertIsNone(facts["bad_samples"])
        self.assertEqual(facts["classes"]["largest"], {"label": 2, "name": "emu", "samples": 4})
        self.assertNotIn("bad samples", inspect(images, "--check", "none").stdout)

    def test_may_have_images_that_are_not_read(self):
        images = self.copy_of_images()
        (images / "cat/picture.bmp").write_bytes(b"BM")
        self.require(self.facts(images), samples=13, unsupported=1)

    def test_is_refused_but_described_where_a_class_has_no_images(self):
        images = self.copy_of_images()
        (images / "bee").mkdir()
        for _ in range(2):  # empty, and then with a file that is no image
            facts = self.facts(images, exit_code=ENVIRONMENT)
            self.require(facts, samples=13, bad_samples=[])
            self.assertEqual(facts["classes"]["missing"], {"count": 1, "first": [{"label": 0, "name": "bee"}]})
            self.assertIn("found none in 'bee'", facts["refusal"])
            (images / "bee/readme.txt").write_text("no image")
        job = inspect(images)
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn(f"refused: Image folder '{images}': expected images", job.stdout)

    def test_has_a_bad_sample_for_each_link_that_leads_nowhere(self):
        images = self.copy_of_images()
        (images / "bee").mkdir()
        (images / "bee/1.jpg").symlink_to("nowhere.jpg")
        (bad,) = self.facts(images, exit_code=ENVIRONMENT)["bad_samples"]
        self.require(bad, index=0, path=f"{images}/bee/1.jpg")
        self.assertIn("No such file", bad["reason"])

    def test_names_what_is_no_data_set(self):
        self.assertIn(str(self.folder), self.refuse(ENVIRONMENT, self.folder))
        self.assertIn("nowhere", self.refuse(ENVIRONMENT, self.folder / "nowhere"))
        images = self.copy_of_images()
        (images / "train-0.tar").write_bytes(bytes(1024))
        self.assertIn("tar archives", self.refuse(ENVIRONMENT, images))


class DamagedImages(Inspect):
    def setUp(self):
        super().setUp()
        self.damaged = self.copy_of_images()
        content = self.contents["cat/a.jpg"]
        (self.damaged / "cat/a.jpg").write_bytes(content[:len(content) // 2])
        (self.damaged / "emu/text.png").write_text("no image at all")

    def test_are_found_by_their_headers(self):
        facts = self.facts(self.damaged, exit_code=ENVIRONMENT)
        (bad,) = facts["bad_samples"]
        self.require(bad, index=10, path=f"{self.damaged}/emu/text.png", offset=0)
        self.assertRegex(bad["reason"], r"^image '.*/emu/text.png', byte offset 0: expected .*")
        self.require(facts, samples=14, **images_of(self.contents.values()))
        self.require(facts["duplicates"], count=0)

    def test_are_found_by_decoding(self):
        facts = self.facts(self.damaged, "--check", "decode", exit_code=ENVIRONMENT)
        self.assertEqual([bad["index"] for bad in facts["bad_samples"]], [0, 10])
        self.assertIn("truncated", facts["bad_samples"][0]["reason"])

    def test_that_can_be_decoded_are_counted_apart(self):
        images = shutil.copytree(self.images, self.folder / "decoded")
        content = self.contents["dog/a.b.jpg"]
        segments = re.split(rb"(?=\xff[\xd0-\xd7])", content)
        for hole in (3, 6, 9):
            segments[hole] = segments[hole][:2]
        path = images / "dog/a.b.jpg"
        path.write_bytes(b"".join(segments))
        damaged = {"count": 1, "places": 3, "all": [{"sample": str(path), "places": 3}]}
        self.require(self.facts(images, "--check", "decode"), damaged_images=damaged, bad_samples=[])
        self.assertIn(f"    sample {path}, places 3\n", inspect(images, "--check", "decode").stdout)
        self.assertNotIn("damaged_images", self.facts(images))

    def test_are_a_line_each(self):
        job = inspect(self.damaged, "--check", "decode", "--threads", "3")
        self.assertEqual((job.exit_code, job.stderr), (ENVIRONMENT, ""), job)
        first, second = (f"{self.damaged}/{path}" for path in ("cat/a.jpg", "emu/text.png"))
        cut, text, count = job.stdout.splitlines()[-3:]
        self.assertTrue(cut.startswith(f"bad sample 0: {first}, byte offset 0: JPEG '{first}'"), job)
        self.assertTrue(text.startswith(f"bad sample 10: {second}, byte offset 0: image '{second}'"), job)
        self.assertEqual(count, "bad samples 2")

    def test_have_names_that_break_no_line(self):
        (self.damaged / "emu/a\nb\x1b[31m.png").write_text("no image at all")
        job = inspect(self.damaged)
        self.assertEqual(len(bad_lines(job)), 2, job)
        self.assertNotIn("\x1b", job.stdout)
        self.assertIn("emu/a?b?[31m.png", job.stdout)


class Shards(Inspect):
    CHOSEN = ["cat/a.jpg", "cat/deep/c.png", "dog/grey.jpg", "fox/copy.jpg", "dog/progressive.jpg"]
    LABELS = [0, 0, 2, 5, 2]

    def setUp(self):
        super().setUp()
        self.chosen = [self.contents[path] for path in self.CHOSEN]

    def tar(self, name, samples):
        """Returns where the images begin."""
        self.write(name, b"")
        with tarfile.open(self.folder / name, "w") as archive:
            for number, (image, label) in enumerate(samples):
                for extension, content in (("jpg", image), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{number:04}.{extension}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        with tarfile.open(self.folder / name) as archive:
            return [member.offset_data for member in archive if member.name.endswith("jpg")]

    def require_chosen(self, folder, form, shards):
        size = sum(path.stat().st_size for path in folder.iterdir())
        self.require(self.facts(folder, "--check", "decode"), data=str(folder), format=form, shards=shards, samples=5,
                     bytes=size, classes=classes_of(self.LABELS), bad_samples=[], **images_of(self.chosen))

    def test_of_tar_are_described(self):
        samples = list(zip(self.chosen, self.LABELS))
        (first, *_), (_, copy) = self.tar("tar/train-0.tar", samples[:2]), self.tar("tar/train-1.tar", samples[2:4])
        self.tar("tar/train-2.tar", samples[4:])
        self.require_chosen(self.folder / "tar", "tar archives", 3)
        folder = self.folder / "tar"
        self.assertEqual(self.facts(folder)["duplicates"], {"count": 1, "first": [
            {"sample": f"{folder}/train-1.tar, byte offset {copy}",
             "same_as": f"{folder}/train-0.tar, byte offset {first}"}]})

    def test_of_other_splits_are_left_out_on_request(self):
        samples = list(zip(self.chosen, self.LABELS))
        self.tar("tar/train-0.tar", samples[:2])
        self.tar("tar/val-0.tar", samples[2:])
        self.assertIn("'train', 'val'", self.refuse(ENVIRONMENT, self.folder / "tar"))
        size = (self.folder / "tar/val-0.tar").stat().st_size
        self.require(self.facts(self.folder / "tar", "--prefix", "val"), shards=1, samples=3, bytes=size)

    def test_without_a_check_are_only_counted(self):
        self.tar("tar/train-0.tar", zip(self.chosen, self.LABELS))
        facts = self.facts(self.folder / "tar", "--check", "none")
        self.require(facts, shards=1, samples=5, bad_samples=None)
        self.assertNotIn("classes", facts)

    def test_of_tar_tell_where_the_damage_is(self):
        labels = [0, -1, "dog", 1]
        images = [self.chosen[0], self.chosen[1], self.chosen[2], b"no image at all"]
        offsets = self.tar("tar/train-0.tar", zip(images, labels))
        bad = self.facts(self.folder / "tar", exit_code=ENVIRONMENT)["bad_samples"]
        self.assertEqual([(each["index"], each["path"], each["offset"]) for each in bad],
                         [(i, f"{self.folder}/tar/train-0.tar", offsets[i]) for i in (1, 2, 3)])
        self.assertIn("'-1'", bad[0]["reason"])
        self.assertIn("'dog'", bad[1]["reason"])

    def records(self):
        return [framed(example_message({b"image/encoded": ("bytes", [image]),
                                        b"image/class/label": ("int64", [label])}, packed=True))
                for image, label in zip(self.chosen, self.LABELS)]

    def test_of_tf_records_are_described(self):
        records = self.records()
        self.write("tf/train.tfrecord-00000-of-00002", b"".join(records[:3]))
        self.write("tf/train.tfrecord-00001-of-00002", b"".join(records[3:]))
        self.require_chosen(self.folder / "tf", "TFRecord files", 2)

    def test_of_tf_records_tell_where_the_damage_is(self):
        records = [bytearray(record) for record in self.records()]
        records[1][20] ^= 1
        path = self.write("tf/train.tfrecord-00000-of-00001", b"".join(records))
        (bad,) = self.facts(path.parent, exit_code=ENVIRONMENT)["bad_samples"]
        self.require(bad, index=1, path=str(path), offset=len(records[0]))

    def test_of_parquet_are_described(self):
        if not json.loads(jobs.run([jobs.program("libtrain-info"), "--json"]).stdout)["versions"]["arrow"]:
            self.skipTest("this libtrain was built without Apache Arrow")
        import pyarrow
        from pyarrow import parquet

        image = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
        structs = [{"bytes": content, "path": "x.jpg"} for content in self.chosen]
        table = pyarrow.table({"image": pyarrow.array(structs, image),
                               "label": pyarrow.array(self.LABELS, pyarrow.int64())})
        (self.folder / "parquet").mkdir()
        parquet.write_table(table, self.folder / "parquet/train-0.parquet", row_group_size=2)
        self.require_chosen(self.folder / "parquet", "Parquet files", 1)


class Coco(Inspect):
    IMAGES = {30: (64, 48), 10: (100, 80), 20: (7, 5), 40: (50, 50)}
    POLYGON = [[1, 1, 6, 1, 6, 4.5]]
    RUNS = {"counts": [30, 5, 0], "size": [5, 7]}
    # image, category, width of the box, segmentation, crowd
    ANNOTATIONS = [(10, 5, 5, POLYGON, 0), (10, 5, 5, POLYGON, 0), (20, 5, 5, RUNS, 1), (30, 2, 5, POLYGON, 0),
                   (30, 5, 5, None, 0), (10, 2, 0, POLYGON, 0), (10, 2, 5, [[1, 1, 6, 4]], 0), (99, 2, 5, POLYGON, 0)]

    def content(self):
        annotations = []
        for number, (image, category, width, segmentation, crowd) in enumerate(self.ANNOTATIONS):
            annotation = {"id": number + 1, "image_id": image, "category_id": category, "bbox": [1, 1, width, 3],
                          "area": 9.5, "iscrowd": crowd}
            annotations.append(annotation | ({"segmentation": segmentation} if segmentation else {}))
        annotations[1]["id"] = 1
        return {"images": [{"id": number, "width": width, "height": height, "file_name": f"{number}.jpg"}
                           for number, (width, height) in self.IMAGES.items()],
                "categories": [{"id": 5, "name": "car"}, {"id": 2, "name": "bus"}, {"id": 9, "name": "cow"}],
                "annotations": annotations}

    def test_is_described(self):
        path = self.write("instances.json", json.dumps(self.content()))
        widths, heights = zip(*self.IMAGES.values())
        self.assertEqual(self.facts(path), {
            "data": str(path), "format": "COCO instances", "bytes": path.stat().st_size, "images": 4,
            "images_without_annotations": 1, "images_to_train_on": 2, "widths": spread_of(widths),
            "heights": spread_of(heights), "annotations": 5, "crowds": 1,
            "masks": {"polygons": 3, "run_length": 1, "without": 1},
            "categories": classes_of([1, 1, 1, 0, 1], ["bus", "car", "cow"], "annotations"),
            "left_out": {"degenerate_boxes": 1, "without_polygon": 1, "polygons": 1, "unknown_images": 1},
            "odd_ids": {"duplicate": 1, "not_positive": 0}, "check": "headers", "bad_samples": []})

    def test_may_have_any_name(self):
        path = self.write("instances.txt", json.dumps(self.content()))
        self.require(self.facts(path, "--format", "coco"), images=4)

    def test_is_refused_where_it_is_damaged(self):
        path = self.write("instances.json", json.dumps(self.content())[:-9])
        self.assertIn("byte offset", self.refuse(ENVIRONMENT, path))


class Text(Inspect):
    def test_of_csv_is_described(self):
        path = self.write("a.csv", 'a,b\n1,\n,x\n"q,\n",2\n,\n')
        self.assertEqual(self.facts(path), {
            "data": str(path), "format": "CSV", "bytes": path.stat().st_size, "rows": 4,
            "columns": [{"name": "a", "empty_fields": 2}, {"name": "b", "empty_fields": 2}],
            "check": "headers", "bad_samples": []})
        self.require(self.facts(path, "--check", "none"), rows=4, columns=[{"name": "a"}, {"name": "b"}])

    def test_of_many_rows_is_read_to_its_end(self):
        path = self.write("long.csv", "a,b\n" + "".join(f"{i},{'' if i % 7 == 0 else 'x' * (i % 90)}\n"
                                                        for i in range(30000)))
        empty = sum(i % 7 == 0 or i % 90 == 0 for i in range(30000))
        self.require(self.facts(path), rows=30000, columns=[{"name": "a", "empty_fields": 0},
                                                            {"name": "b", "empty_fields": empty}])

    def test_of_tsv_has_quotes_as_they_are(self):
        path = self.write("a.TSV", 'a\tb\n"x\ty\n')
        self.require(self.facts(path), format="TSV", rows=1,
                     columns=[{"name": "a", "empty_fields": 0}, {"name": "b", "empty_fields": 0}])

    def test_of_csv_is_refused_where_it_is_damaged(self):
        self.assertIn("line 3", self.refuse(ENVIRONMENT, self.write("a.txt", "a,b\n1,2\n3\n"), "--format", "csv"))

    def test_lists_ten_columns_and_steers_no_terminal(self):
        path = self.write("wide.csv", "\x1b[31mred," + ",".join(f"c{i}" for i in range(11)) + "\n")
        job = inspect(path)
        self.assertEqual(job.exit_code, 0, job)
        lines = [line for line in job.stdout.splitlines() if line.startswith("  ")]
        self.assertEqual(len(lines), 11, job)
        self.assertEqual((lines[0], lines[-1]), ("  name ?[31mred, empty fields 0", "  and 2 more, which --json lists"))

    def test_of_json_lines_is_described_row_by_row(self):
        lines = ['{"text": "a", "label": 1}', '  {"text": "", "label": null}', " ", '{"text": "b", "more": [1]}',
                 "not json", "[1]", '{"text": "c"}{"text": "d"}']
        path = self.write("a.jsonl", "\n".join(lines))
        facts = self.facts(path, exit_code=ENVIRONMENT)
        self.require(facts, data=str(path), format="JSON lines", bytes=path.stat().st_size, rows=6, columns=[
            {"name": "label", "empty_fields": 1, "rows_without": 1}, {"name": "more", "empty_fields": 0,
                                                                      "rows_without": 2},
            {"name": "text", "empty_fields": 1, "rows_without": 0}])
        content = path.read_text()
        self.assertEqual([(bad["index"], bad["path"], bad["offset"]) for bad in facts["bad_samples"]],
                         [(3, str(path), content.index("not")), (4, str(path), content.index("[1]", 90)),
                          (5, str(path), content.index('{"text": "c"'))])
        self.assertIn("array", facts["bad_samples"][1]["reason"])

    def test_of_json_lines_is_only_counted_without_a_check(self):
        path = self.write("a.ndjson", "{}\r\n\r\nnot json\r\n")
        facts = self.facts(path, "--check", "none")
        self.require(facts, rows=2, bad_samples=None)
        self.assertNotIn("columns", facts)

    def test_of_long_json_lines_is_read_to_its_end(self):
        path = self.write("long.jsonl", "".join(json.dumps({"text": "x" * (i % 5000), "i": i}) + "\n"
                                                for i in range(1500)))
        columns = [{"name": name, "empty_fields": empty, "rows_without": 0} for name, empty in (("i", 0), ("text", 1))]
        self.require(self.facts(path), rows=1500, bad_samples=[], columns=columns)


class Idx(Inspect):
    def idx(self, name, array):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        return self.write(name, header + array.tobytes())

    def test_of_pictures_is_described(self):
        array = numpy.random.default_rng(0).integers(3, 200, (6, 5, 4), dtype=numpy.uint8)
        path = self.idx("train-images-idx3-ubyte", array)
        self.assertEqual(self.facts(path), {
            "data": str(path), "format": "IDX", "bytes": 16 + 120, "shape": [6, 5, 4],
            "values": {"min": int(array.min()), "max": int(array.max())}, "check": "headers", "bad_samples": []})
        self.assertIn("shape: 6, 5, 4", inspect(path).stdout)

    def test_of_labels_is_described(self):
        array = numpy.array([3, 1, 1, 3, 3, 0], dtype=numpy.uint8)
        self.require(self.facts(self.idx("labels.idx", array)), shape=[6], classes=classes_of(array.tolist()))

    def test_is_refused_where_it_is_damaged(self):
        path = self.idx("train-labels-idx1-ubyte", numpy.zeros(9, dtype=numpy.uint8))
        path.write_bytes(path.read_bytes()[:-1])
        self.assertIn("truncated", self.refuse(ENVIRONMENT, path))
        self.assertIn("local disk", self.refuse(USAGE, "az://container/train-labels-idx1-ubyte"))


class WrongCalls(Inspect):
    def test_are_usage_errors(self):
        for arguments, named in ((["--check", "all"], "--check"), (["--threads", "0"], "--threads"),
                                 (["--format", "zip"], "--format"), (["--samples", "3"], "--contact-sheet"),
                                 (["--augment", "training"], "--contact-sheet"), (["--unknown"], "--unknown"),
                                 (["--contact-sheet", "x.png", "--size", "0"], "--size"),
                                 (["--contact-sheet", "x.png", "--samples", "0"], "--samples"),
                                 (["--contact-sheet", "x.png", "--seed", "-1"], "--seed"),
                                 (["--contact-sheet", "x.png", "--augment", "all"], "--augment"),
                                 (["--contact-sheet", "az://container/x.png"], "local")):
            with self.subTest(arguments=arguments):
                self.assertIn(named, self.refuse(USAGE, self.images, *arguments))
        self.assertIn("DATA", self.refuse(USAGE))
        self.assertIn("scheme", self.refuse(USAGE, "ftp://host/train"))

    def test_a_sheet_needs_images(self):
        path = self.write("a.csv", "a\n1\n")
        self.assertIn("--contact-sheet", self.refuse(USAGE, path, "--contact-sheet", self.folder / "x.png"))
        self.assertFalse((self.folder / "x.png").exists())

    def test_help_is_no_error(self):
        job = inspect("--help")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("--contact-sheet", job.stdout)

    def test_output_that_is_lost_is_an_error(self):
        command = ["bash", "-c", 'exec "$@" > /dev/full', "bash", jobs.program("libtrain-inspect"), self.images]
        job = jobs.run(command)
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn("standard output", job.stderr)

    def test_secrets_of_a_location_stay_secret(self):
        location = "https://account.blob.core.windows.net/container/labels.idx?sv=2022&sig=canary5ecret"
        self.assertNotIn("canary5ecret", self.refuse(USAGE, location))


if __name__ == "__main__":
    jobs.require_programs("libtrain-inspect", "libtrain-info")
    unittest.main()
