"""libtrain-pack --coco: tar archives that unpack to the same images, beside the same annotations."""

import io
import json
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "checkpoint"))
# Goes on with the project's Python where this one has no Pillow.
from pack_test import ENVIRONMENT, RESTART_INTERVAL, USAGE, jobs, members_of, names_in, pack, summary_of

import checkpoint_jobs
from PIL import Image

# Of six PNGs of 72 to 144 pixels a side.
SHAPES = jobs.ROOT / "examples/segment/shapes"
ANNOTATIONS = "annotations/instances_val2017.json"


class PackCoco(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.images = Path(shutil.copytree(SHAPES, self.folder / "coco"))
        self.output = self.folder / "shards"

    def pack(self, *arguments):
        job = pack("--input", self.images, "--output", self.output, "--format", "tar", "--coco", "val2017", *arguments)
        self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
        return job

    def refuse(self, exit_code, *arguments, split="val2017", kind="tar"):
        """The line on standard error of a run that leaves no file."""
        job = pack("--input", self.images, "--output", self.output, "--format", kind, "--coco", split, *arguments)
        self.assertEqual((job.exit_code, job.stdout), (exit_code, ""), job)
        self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertEqual(names_in(self.output), [], job)
        return job.stderr

    def change(self, change):
        """Changes the annotations."""
        found = json.loads((self.images / ANNOTATIONS).read_text())
        change(found)
        (self.images / ANNOTATIONS).write_text(json.dumps(found))

    def members(self):
        return {name: content for shard in self.output.glob("val2017/*.tar") for name, content in members_of(shard)}

    def stored(self):
        return {path.name: path.read_bytes() for path in (self.images / "val2017").iterdir()}

    def test_keeps_every_byte_and_the_layout(self):
        job = self.pack("--shards", "2")
        self.assertEqual(names_in(self.output), [ANNOTATIONS, "val2017/val2017-00000-of-00002.tar",
                                                 "val2017/val2017-00001-of-00002.tar"])
        self.assertEqual((self.output / ANNOTATIONS).read_bytes(), (self.images / ANNOTATIONS).read_bytes())
        self.assertEqual(self.members(), self.stored())
        summary = summary_of(job)
        self.assertEqual({name: summary[name] for name in ("images", "classes", "shards", "stored unchanged")},
                         {"images": "6", "classes": "3", "shards": "2", "stored unchanged": "6"})
        self.assertEqual(int(summary["bytes read"]), sum(map(len, self.stored().values())))
        for shard in self.output.glob("val2017/*.tar"):
            subprocess.run(["tar", "-xf", shard, "-C", shard.parent], check=True)
            shard.unlink()
        self.assertEqual(names_in(self.output), names_in(self.images))

    def test_mixes_the_images(self):
        self.pack("--shards", "1")
        (shard,) = self.output.glob("val2017/*.tar")
        order = [name for name, _ in members_of(shard)]
        self.assertNotEqual(order, sorted(order))
        self.pack("--shards", "1", "--order", "folder", "--force")
        self.assertEqual([name for name, _ in members_of(shard)], sorted(order))

    def test_packs_what_the_annotations_list(self):
        """Images without objects as well; their order is that of the ids."""
        (self.images / "val2017/extra.png").write_bytes(b"not listed")

        def change(found):
            found["images"] = found["images"][::-2]
            found["annotations"] = []
        self.change(change)
        self.pack("--shards", "1", "--order", "folder")
        self.assertEqual([name for name, _ in members_of(next(self.output.glob("val2017/*.tar")))],
                         [f"{number:012d}.png" for number in (2, 4, 6)])

    def test_keeps_names_with_folders(self):
        (self.images / "val2017/more").mkdir()
        shutil.move(self.images / "val2017/000000000003.png", self.images / "val2017/more/three.png")
        self.change(lambda found: found["images"][2].update(file_name="more/three.png"))
        self.pack()
        self.assertIn("more/three.png", self.members())

    def test_adds_restart_markers_without_loss(self):
        with Image.open(self.images / "val2017/000000000001.png") as image:
            image.save(self.images / "val2017/1.jpg", quality=90)
        self.change(lambda found: found["images"][0].update(file_name="1.jpg"))
        self.assertEqual(summary_of(self.pack("--restart-interval", "4"))["given restart markers"], "1")
        packed = self.members()["1.jpg"]
        self.assertIn(RESTART_INTERVAL, packed)
        with Image.open(io.BytesIO(packed)) as image, Image.open(self.images / "val2017/1.jpg") as original:
            self.assertEqual(image.tobytes(), original.tobytes())

    def test_writes_indices_where_the_shards_are(self):
        self.pack("--shards", "2", "--index", "--prefix", "images")
        self.assertEqual(len(list(self.output.glob("val2017/.index/*.tar-index"))), 4)  # by name, and for copies
        self.assertTrue((self.output / "val2017/images-00001-of-00002.tar").exists())

    def test_completes_the_set_before_it_writes_indices(self):
        """A process that is killed while it writes them leaves no shards beside the annotations of an earlier set."""
        self.pack("--shards", "1")
        self.pack("--shards", "2", "--index", "--force")
        indices = list(self.output.glob("val2017/.index/*.tar-index"))
        renamed = (self.output / ANNOTATIONS).stat().st_ctime_ns
        self.assertLessEqual(renamed, min(index.stat().st_ctime_ns for index in indices))

    def test_replaces_a_set_only_by_force(self):
        self.pack("--shards", "3")
        former = names_in(self.output)
        job = pack("--input", self.images, "--output", self.output, "--format", "tar", "--coco", "val2017")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn(ANNOTATIONS, job.stderr)
        shutil.rmtree(self.output / "annotations")
        job = pack("--input", self.images, "--output", self.output, "--format", "tar", "--coco", "val2017")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn("is not empty", job.stderr)
        self.assertEqual(names_in(self.output), former[1:])
        self.pack("--shards", "1", "--force")
        self.assertEqual(names_in(self.output), [ANNOTATIONS, "val2017/val2017-00000-of-00001.tar"])
        # Another split goes beside it.
        shutil.move(self.images / "val2017", self.images / "test")
        shutil.move(self.images / ANNOTATIONS, self.images / "annotations/instances_test.json")
        job = pack("--input", self.images, "--output", self.output, "--format", "tar", "--coco", "test")
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(len(names_in(self.output)), 4)

    def test_refuses_options_that_would_part_images_and_annotations(self):
        for option in (["--resize", "64"], ["--skip-damaged", "1"], ["--skip-unsupported"], ["--allow-empty-classes"]):
            self.assertIn(option[0], self.refuse(USAGE, *option))
        self.assertIn("--format tar", self.refuse(USAGE, kind="tfrecord"))
        for split in ("", "../val2017", "a/b", ".", ".index"):
            self.assertIn("--coco", self.refuse(USAGE, split=split))

    def test_refuses_images_that_do_not_fit_their_annotations(self):
        image = self.images / "val2017/000000000004.png"
        content = image.read_bytes()
        image.write_bytes(content[:-100])
        self.assertIn("000000000004.png", self.refuse(ENVIRONMENT))
        Image.new("RGB", (30, 20)).save(image)
        message = self.refuse(ENVIRONMENT)
        self.assertIn("000000000004.png' is 30 x 20 pixels, but the annotations say", message)
        self.assertNotIn("--skip-damaged", message)
        image.unlink()
        self.assertIn("000000000004.png", self.refuse(ENVIRONMENT))
        image.write_bytes(content)
        self.change(lambda found: found["images"][1].update(file_name="000000000004.png"))
        self.assertIn("two images have the file_name '000000000004.png'", self.refuse(ENVIRONMENT))

    def test_refuses_annotations_that_are_missing_or_damaged(self):
        self.assertIn("instances_train2017.json", self.refuse(ENVIRONMENT, split="train2017"))
        self.change(lambda found: found.update(images=[], annotations=[]))
        self.assertIn("lists no images", self.refuse(ENVIRONMENT))
        (self.images / ANNOTATIONS).write_text('{"images": [')
        self.assertIn("byte offset", self.refuse(ENVIRONMENT))
        shutil.copy(SHAPES / ANNOTATIONS, self.images / ANNOTATIONS)
        shutil.move(self.images / "val2017", self.images / "val")
        self.assertIn("val2017", self.refuse(ENVIRONMENT))

    def test_that_fails_leaves_no_annotations(self):
        """At each call that changes a file of the output, until one run is not disturbed."""
        for call in range(1, 60):
            output = self.folder / f"disk-{call}"
            job = jobs.run([jobs.program("libtrain-pack"), "--quiet", "--input", self.images, "--output", output,
                            "--format", "tar", "--coco", "val2017", "--threads", "1", "--shards", "2"],
                           environment=checkpoint_jobs.environment(output, call, "ENOSPC"))
            if job.exit_code == 0 and (output / ANNOTATIONS).exists():
                break
            self.assertEqual(job.exit_code, ENVIRONMENT, job)
            self.assertFalse((output / ANNOTATIONS).exists(), job)
            self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertEqual(job.exit_code, 0, job)
        self.assertGreater(call, 10)


if __name__ == "__main__":
    jobs.require_programs("libtrain-pack", "libfaulty_disk.so")
    unittest.main()
