"""libtrain-pack: what tarfile, Pillow and a small reader of TFRecords find in its shards, and what failed runs leave.

Runs itself with the project's Python, which has Pillow.
"""

import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "data/formats")]
import jobs

jobs.require_packages("PIL")

from PIL import Image, ImageChops, ImageStat

from shards_peer_test import parse_example, records_in

USAGE, ENVIRONMENT = 2, 3
CLASSES = ["cat", "dog", "emu"]
# In the order of torchvision's ImageFolder: path, mode, size, and how it is saved.
IMAGES = [("cat/a.jpg", "RGB", (160, 120), {"format": "JPEG", "quality": 92, "subsampling": "4:2:0"}),
          ("cat/b.JPEG", "RGB", (97, 161), {"format": "JPEG", "quality": 95, "subsampling": "4:4:4"}),
          ("cat/deep/c.png", "RGB", (64, 48), {"format": "PNG"}),
          ("dog/a.b.c.jpg", "RGB", (131, 90), {"format": "JPEG", "quality": 85, "comment": b"kept"}),
          ("dog/grey.jpg", "L", (120, 80), {"format": "JPEG", "quality": 90}),
          ("dog/progressive.jpg", "RGB", (100, 75), {"format": "JPEG", "progressive": True}),
          ("emu/0.png", "P", (90, 90), {"format": "PNG"}),
          ("emu/1.png", "LA", (75, 50), {"format": "PNG"}),
          ("emu/2.jpg", "RGBA", (50, 70), {"format": "PNG"}),
          ("emu/3.jpg", "RGB", (20, 16), {"format": "JPEG"})]
PATHS = [path for path, _, _, _ in IMAGES]
LABELS = [CLASSES.index(path.split("/")[0]) for path in PATHS]
BASELINE = ["cat/a.jpg", "cat/b.JPEG", "dog/a.b.c.jpg", "dog/grey.jpg", "emu/3.jpg"]
# The permutations of 10 elements with seeds 0 and 1: tests/data/permutation_test.cpp, from Python's integers.
SHUFFLED = {0: [5, 1, 2, 7, 0, 8, 6, 4, 9, 3], 1: [7, 9, 5, 1, 0, 8, 3, 2, 6, 4]}
RESTART_INTERVAL = b"\xff\xdd\x00\x04"  # the marker that defines one, and its length


def picture(mode, size, seed):
    """Smooth, with other colours for each seed."""
    if mode == "P":
        return picture("RGB", size, seed).quantize(64)
    small = Image.frombytes(mode, (9, 7), random.Random(seed).randbytes(9 * 7 * len(mode)))
    return small.resize(size, Image.Resampling.BICUBIC)


def noise(path, side):
    """A PNG that is larger than its 3 * side * side bytes."""
    Image.frombytes("RGB", (side, side), random.Random(side).randbytes(3 * side * side)).save(path)


def opened(content):
    return Image.open(io.BytesIO(content))


def pack(*arguments):
    return jobs.run([jobs.program("libtrain-pack"), "--quiet", *arguments])


def summary_of(job):
    return dict(line.rsplit(" ", 1) for line in job.stdout.splitlines())


def names_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def members_of(path):
    with tarfile.open(path) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive]


class Pack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.images = jobs.temporary_directory(cls) / "train"
        for seed, (path, mode, size, options) in enumerate(IMAGES):
            (cls.images / path).parent.mkdir(parents=True, exist_ok=True)
            picture(mode, size, seed).save(cls.images / path, **options)
        cls.contents = {path: (cls.images / path).read_bytes() for path in PATHS}

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.output = self.folder / "shards"

    def pack(self, *arguments, kind="tar", images=None, output=None):
        job = pack("--input", images or self.images, "--output", output or self.output, "--format", kind, *arguments)
        self.assertEqual(job.exit_code, 0, job)
        return job

    def refuse(self, exit_code, *arguments, kind="tar", images=None):
        """The only line on standard error of a run that leaves no trace."""
        job = pack("--input", images or self.images, "--output", self.output, "--format", kind, *arguments)
        self.assertEqual(job.exit_code, exit_code, job)
        self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertTrue(job.stderr.startswith("libtrain-pack: "), job)
        self.assertFalse(self.output.exists(), job)
        return job.stderr

    def samples(self, output=None):
        """(key, extension, content, label) of all tar shards."""
        samples = []
        for shard in sorted((output or self.output).glob("*.tar")):
            members = members_of(shard)
            for (image, content), (label_name, label) in zip(members[::2], members[1::2], strict=True):
                key, extension = image.split(".")
                self.assertEqual(label_name, key + ".cls")
                samples.append((key, extension, content, int(label)))
        return samples

    def copy_of_images(self):
        return shutil.copytree(self.images, self.folder / "train")


class TarShards(Pack):
    def test_hold_every_byte_in_shuffled_order(self):
        self.pack("--shards", "3")
        expected = [(f"{number:08d}", "png" if IMAGES[i][3]["format"] == "PNG" else "jpg", self.contents[PATHS[i]],
                     LABELS[i]) for number, i in enumerate(SHUFFLED[0])]
        self.assertEqual(self.samples(), expected)

    def test_are_named_after_the_folder_and_counted(self):
        self.pack("--shards", "3")
        self.assertEqual(names_in(self.output), ["classes.txt"] + [f"train-0000{i}-of-00003.tar" for i in range(3)])
        self.assertEqual((self.output / "classes.txt").read_text(), "cat\ndog\nemu\n")

    def test_take_another_prefix(self):
        self.pack("--prefix", "val")
        self.assertEqual(names_in(self.output), ["classes.txt", "val-00000-of-00001.tar"])

    def test_the_seed_chooses_the_order(self):
        self.pack("--shuffle-seed", "1")
        self.assertEqual([sample[2] for sample in self.samples()], [self.contents[PATHS[i]] for i in SHUFFLED[1]])

    def test_can_have_the_order_of_the_folder(self):
        self.pack("--order", "folder")
        self.assertEqual([sample[2] for sample in self.samples()], [self.contents[path] for path in PATHS])

    def test_have_about_the_size_that_is_wanted(self):
        self.pack("--shard-bytes", "8K")
        blocks = sum(-(-len(content) // 512) + 3 for content in self.contents.values())
        self.assertEqual(len(list(self.output.glob("*.tar"))), min(10, -(-blocks * 512 // 8192)))

    def test_do_not_depend_on_threads(self):
        for threads in ("1", "5"):
            self.pack("--threads", threads, "--resize", "60", "--restart-interval", "4", "--shards", "2",
                      output=self.folder / threads)
        names = names_in(self.folder / "1")
        self.assertEqual(len(names), 3)
        for name in names:
            self.assertEqual((self.folder / "1" / name).read_bytes(), (self.folder / "5" / name).read_bytes())

    def test_are_made_of_a_uri(self):
        self.pack(images=self.images.as_uri())
        self.assertEqual(len(self.samples()), 10)

    def test_come_with_their_indices(self):
        self.pack("--index", "--shards", "2", "--order", "folder")
        for shard, member in enumerate((b"00000000.jpg", b"00000009.cls")):
            indices = list((self.output / ".index").glob(f"train-0000{shard}-of-00002.tar-*.tar-index"))
            self.assertEqual(len(indices), 2)  # by the shard's name, and for its copies
            for path in indices:
                self.assertIn(member, path.read_bytes())

    def test_are_summed_up(self):
        summary = summary_of(self.pack("--shards", "2"))
        self.assertGreater(float(summary.pop("seconds")), 0)
        written = sum(path.stat().st_size for path in self.output.glob("*.tar"))
        self.assertEqual(summary, {
            "images": "10", "classes": "3", "shards": "2", "bytes read": str(sum(map(len, self.contents.values()))),
            "bytes written": str(written), "given restart markers": "0", "resized": "0", "stored unchanged": "10",
            "left out as damaged": "0", "left out as unsupported": "0"})


class TfRecordShards(Pack):
    def test_hold_examples(self):
        self.pack("--shards", "2", kind="tfrecord")
        names = [f"train.tfrecord-0000{i}-of-00002" for i in range(2)]
        self.assertEqual(names_in(self.output), ["classes.txt", *names])
        found = [parse_example(record) for name in names for record in records_in((self.output / name).read_bytes())]
        expected = []
        for path, label, (_, _, (width, height), options) in zip(PATHS, LABELS, IMAGES):
            expected.append({b"image/encoded": ("bytes", [self.contents[path]]),
                             b"image/format": ("bytes", [options["format"].encode()]),
                             b"image/class/label": ("int64", [label]),
                             b"image/class/text": ("bytes", [CLASSES[label].encode()]),
                             b"image/filename": ("bytes", [path.encode()]),
                             b"image/height": ("int64", [height]), b"image/width": ("int64", [width])})
        self.assertEqual(found, [expected[i] for i in SHUFFLED[0]])

    def test_give_the_size_of_what_they_hold(self):
        self.pack("--resize", "40", kind="tfrecord")
        for record in records_in((self.output / "train.tfrecord-00000-of-00001").read_bytes()):
            example = parse_example(record)
            image = opened(example[b"image/encoded"][1][0])
            self.assertEqual(example[b"image/format"][1], [image.format.encode()])
            self.assertEqual(example[b"image/width"][1] + example[b"image/height"][1], list(image.size))

    def test_come_with_their_indices(self):
        self.pack("--index", "--shards", "3", kind="tfrecord")
        self.assertEqual(len(list((self.output / ".index").iterdir())), 6)


class RestartMarkers(Pack):
    def test_leave_every_pixel_as_it_is(self):
        summary = summary_of(self.pack("--restart-interval", "4", "--order", "folder"))
        self.assertEqual((summary["given restart markers"], summary["stored unchanged"]), ("5", "5"))
        for path, (_, _, content, _) in zip(PATHS, self.samples(), strict=True):
            original = self.contents[path]
            self.assertEqual(opened(content).convert("RGB").tobytes(), opened(original).convert("RGB").tobytes(), path)
            self.assertNotIn(RESTART_INTERVAL, original)
            if path in BASELINE:
                self.assertIn(RESTART_INTERVAL, content, path)
                self.assertEqual(opened(content).info.get("comment"), opened(original).info.get("comment"), path)
            else:
                self.assertEqual(content, original, path)


class Resizing(Pack):
    def test_shrinks_what_is_larger(self):
        summary = summary_of(self.pack("--resize", "60", "--order", "folder"))
        resized = 0
        for (path, mode, size, _), (_, extension, content, _) in zip(IMAGES, self.samples(), strict=True):
            if min(size) <= 60:
                self.assertEqual(content, self.contents[path], path)
                continue
            resized += 1
            image = opened(content)
            expected_mode = "L" if mode == "L" else "RGB"
            self.assertEqual((image.format, extension, image.mode), ("JPEG", "jpg", expected_mode), path)
            self.assertEqual(image.size, tuple(side * 60 // min(size) for side in size), path)
            expected = opened(self.contents[path]).convert(image.mode).resize(image.size, Image.Resampling.BILINEAR)
            difference = ImageStat.Stat(ImageChops.difference(image, expected)).mean
            self.assertLess(max(difference), 12, path)
        self.assertEqual((summary["resized"], summary["stored unchanged"]), (str(resized), str(10 - resized)))
        self.assertEqual(resized, 6)

    def test_takes_a_quality(self):
        sizes = {}
        for quality in ("40", "95"):
            self.pack("--resize", "60", "--quality", quality, output=self.folder / quality)
            sizes[quality] = sum(len(content) for _, _, content, _ in self.samples(self.folder / quality))
        self.assertLess(sizes["40"], sizes["95"])

    def test_goes_with_restart_markers(self):
        self.pack("--resize", "60", "--restart-interval", "8", "--order", "folder")
        for (path, _, size, _), (_, _, content, _) in zip(IMAGES, self.samples(), strict=True):
            self.assertEqual(RESTART_INTERVAL in content, min(size) > 60 or path in BASELINE, path)


class WrongOptions(Pack):
    def test_are_usage_errors(self):
        for arguments, named in ((["--shards", "0"], "--shards"), (["--shards", "11"], "11"),
                                 (["--shards", "2", "--shard-bytes", "1M"], "--shard-bytes"),
                                 (["--shard-bytes", "0"], "--shard-bytes"), (["--shard-bytes", "many"], "many"),
                                 (["--restart-interval", "3"], "--restart-interval"),
                                 (["--restart-interval", "9"], "--restart-interval"),
                                 (["--quality", "90"], "--resize"),
                                 (["--resize", "60", "--quality", "101"], "--quality"),
                                 (["--order", "folder", "--shuffle-seed", "1"], "--shuffle-seed"),
                                 (["--prefix", "a/b"], "a/b"), (["--threads", "0"], "--threads"),
                                 (["--check", "nothing"], "--check"), (["--unknown"], "--unknown")):
            with self.subTest(arguments=arguments):
                self.assertIn(named, self.refuse(USAGE, *arguments))
        self.assertIn("zip", self.refuse(USAGE, kind="zip"))

    def test_what_is_missing_is_named(self):
        for name in ("--input", "--output", "--format"):
            words = {"--input": self.images, "--output": self.output, "--format": "tar"}
            del words[name]
            job = pack(*(word for pair in words.items() for word in pair))
            self.assertEqual(job.exit_code, USAGE, job)
            self.assertIn(name, job.stderr)

    def test_the_output_is_local(self):
        job = pack("--input", self.images, "--output", "az://container/shards", "--format", "tar")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn("local", job.stderr)

    def test_help_is_no_error(self):
        job = pack("--help")
        self.assertEqual(job.exit_code, 0, job)
        self.assertIn("--restart-interval", job.stdout)


class WrongFolders(Pack):
    def test_an_output_in_the_input(self):
        inside = self.folder / "input"
        shutil.copytree(self.images, inside)
        (self.folder / "elsewhere").mkdir()
        (inside / "link").symlink_to(self.folder / "elsewhere")
        for output in (inside / "shards", inside, inside / "link", inside / "link/shards"):
            job = pack("--input", inside, "--output", output, "--format", "tar", "--allow-empty-classes")
            self.assertEqual(job.exit_code, USAGE, job)
            self.assertIn(f"'{output}' is in the input folder", job.stderr)
        self.assertFalse((inside / "shards").exists())
        self.assertEqual(list((self.folder / "elsewhere").iterdir()), [])

    def test_no_input(self):
        self.assertIn("nowhere", self.refuse(ENVIRONMENT, images=self.folder / "nowhere"))

    def test_unsupported_images_are_left_out_on_request(self):
        images = self.copy_of_images()
        (images / "cat/picture.bmp").write_bytes(b"BM")
        self.assertIn("picture.bmp", self.refuse(ENVIRONMENT, images=images))
        summary = summary_of(self.pack("--skip-unsupported", images=images))
        self.assertEqual((summary["images"], summary["left out as unsupported"]), ("10", "1"))

    def test_empty_classes_keep_their_labels_on_request(self):
        images = self.copy_of_images()
        (images / "bee").mkdir()
        self.assertIn("'bee'", self.refuse(ENVIRONMENT, images=images))
        (images / "bee/readme.txt").write_text("no image")
        self.assertIn("'bee'", self.refuse(ENVIRONMENT, images=images))
        self.pack("--allow-empty-classes", "--order", "folder", images=images)
        self.assertEqual((self.output / "classes.txt").read_text(), "bee\ncat\ndog\nemu\n")
        self.assertEqual([label for _, _, _, label in self.samples()], [label + 1 for label in LABELS])

    def test_an_output_that_is_not_empty_is_left_alone(self):
        self.output.mkdir()
        (self.output / "notes.txt").write_text("keep")
        job = pack("--input", self.images, "--output", self.output, "--format", "tar")
        self.assertEqual(job.exit_code, USAGE, job)
        self.assertIn("notes.txt", job.stderr)
        self.assertEqual([path.name for path in self.output.iterdir()], ["notes.txt"])

    def test_force_replaces_earlier_shards_and_nothing_else(self):
        self.pack("--shards", "4")
        others = ["notes.txt", "val-00000-of-00001.tar", "train-00000-of-00004.tar.old"]
        for name in others:
            (self.output / name).write_text("keep")
        self.pack("--shards", "2", "--force")
        self.assertEqual(names_in(self.output), sorted(
            ["classes.txt", "train-00000-of-00002.tar", "train-00001-of-00002.tar", *others]))
        for name in others:
            self.assertEqual((self.output / name).read_text(), "keep")

    def test_force_keeps_the_classes_of_other_shards(self):
        val = self.copy_of_images()
        shutil.rmtree(val / "dog")
        for kind in ("tar", "tfrecord"):
            with self.subTest(kind):
                self.pack("--prefix", "val", "--force", kind=kind, images=val)
                before = {name: (self.output / name).read_bytes() for name in names_in(self.output)}
                for other in ("tar", "tfrecord"):
                    job = pack("--input", self.images, "--output", self.output, "--format", other, "--force")
                    self.assertEqual(job.exit_code, USAGE, job)
                    for part in (next(name for name in before if name != "classes.txt"), "'emu'", "'dog'",
                                 "--allow-empty-classes"):
                        self.assertIn(part, job.stderr)
                    after = {name: (self.output / name).read_bytes() for name in names_in(self.output)}
                    self.assertEqual(after, before)
                shutil.rmtree(self.output)
        self.pack("--prefix", "val", images=val)
        self.pack("--prefix", "val", "--force")  # its own shards are replaced, so it may have other classes
        self.pack("--force")
        self.assertEqual(names_in(self.output), ["classes.txt", "train-00000-of-00001.tar", "val-00000-of-00001.tar"])


class DamagedImages(Pack):
    def setUp(self):
        super().setUp()
        self.damaged = self.copy_of_images()
        self.cut = self.damaged / "dog/cut.jpg"
        self.cut.write_bytes(self.contents["cat/a.jpg"][:-len(self.contents["cat/a.jpg"]) // 2])

    def test_are_named(self):
        self.assertIn("dog/cut.jpg", self.refuse(ENVIRONMENT, images=self.damaged))
        for content in (b"", b"no image at all", self.contents["cat/deep/c.png"][:200]):
            self.cut.write_bytes(content)
            self.assertIn("dog/cut.jpg", self.refuse(ENVIRONMENT, "--restart-interval", "4", images=self.damaged))

    def test_are_left_out_and_listed_up_to_a_number(self):
        (self.damaged / "emu/text.png").write_text("no image")
        job = self.pack("--skip-damaged", "2", "--order", "folder", images=self.damaged)
        self.assertEqual([content for _, _, content, _ in self.samples()], [self.contents[path] for path in PATHS])
        self.assertEqual(summary_of(job)["left out as damaged"], "2")
        self.assertEqual(summary_of(job)["images"], "10")
        self.assertEqual(len(job.stderr.splitlines()), 2, job)
        self.assertIn("dog/cut.jpg", job.stderr)
        self.assertIn("emu/text.png", job.stderr)

    def test_one_more_is_an_error(self):
        (self.damaged / "emu/text.png").write_text("no image")
        job = pack("--input", self.damaged, "--output", self.output, "--format", "tar", "--skip-damaged", "1")
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertFalse(self.output.exists())

    def test_leave_no_shard_empty(self):
        images = self.folder / "three"
        (images / "cat").mkdir(parents=True)
        for name, content in (("1", self.contents["cat/a.jpg"]), ("2", b""), ("3", self.contents["cat/b.JPEG"])):
            (images / f"cat/{name}.jpg").write_bytes(content)
        for kind in ("tar", "tfrecord"):
            arguments = ("--input", images, "--output", self.output, "--format", kind, "--order", "folder",
                         "--skip-damaged", "1", "--shards")
            job = pack(*arguments, "3")
            self.assertEqual(job.exit_code, ENVIRONMENT, job)
            for part in ("three" + (".tfrecord" if kind == "tfrecord" else "") + "-00001-of-00003", "--shards",
                         "--order shuffled"):
                self.assertIn(part, job.stderr.splitlines()[-1])
            self.assertFalse(self.output.exists())
            self.assertEqual(pack(*arguments, "2").exit_code, 0)
            shutil.rmtree(self.output)

    def test_pass_where_only_headers_are_checked(self):
        self.pack("--check", "header", images=self.damaged)
        self.assertIn(self.cut.read_bytes(), [content for _, _, content, _ in self.samples()])


class FailedRuns(Pack):
    def test_a_limit_on_file_sizes_leaves_nothing(self):
        noise(self.images / "emu/noise.png", 200)
        self.addCleanup((self.images / "emu/noise.png").unlink)
        job = jobs.run(["bash", "-c", 'ulimit -f 64; exec "$@"', "bash", jobs.program("libtrain-pack"),
                        "--input", self.images, "--output", self.output, "--format", "tar"])
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertIn("File too large", job.stderr)
        self.assertFalse(self.output.exists())

    def test_a_full_disk_leaves_nothing(self):
        script = ('mount -t tmpfs -o size=64k tmpfs "$1" || exit; disk=$1; shift; '
                  '"$@"; code=$?; ls -A "$disk"; exit $code')
        disk = self.folder / "disk"
        disk.mkdir()
        in_namespace = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", disk]
        if jobs.run([*in_namespace, "true"]).exit_code != 0:
            self.skipTest("this environment mounts no tmpfs")
        noise(self.images / "emu/noise.png", 200)
        self.addCleanup((self.images / "emu/noise.png").unlink)
        job = jobs.run([*in_namespace, jobs.program("libtrain-pack"), "--input", self.images, "--output", disk,
                        "--format", "tfrecord", "--shards", "3"])
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertEqual(len(job.stderr.splitlines()), 1, job)
        self.assertIn("No space left on device", job.stderr)
        self.assertEqual(job.stdout, "")

    def start_blocked(self, kind):
        """A run that has finished its first shard and hangs in the second one, as nobody reads its warning there."""
        images = self.copy_of_images()
        (images / "emu/9.jpg").write_text("no image")
        process, _ = self.start_unread(".packing/0", "--input", images, "--output", self.output, "--format", kind,
                                       "--quiet", "--order", "folder", "--shards", "2", "--skip-damaged", "1")
        return process

    def start_unread(self, awaited, *arguments):
        """A run that hangs when it writes to standard error, once there is the file in its output; and that pipe."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x")
        except BlockingIOError:
            os.set_blocking(writer, True)
        # At its end a checker of leaks would open files.
        environment = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        process = subprocess.Popen([jobs.program("libtrain-pack"), *arguments], stdout=subprocess.DEVNULL,
                                   stderr=writer, env=environment)
        pipe = open(reader, "rb")
        self.addCleanup(pipe.close)
        os.close(writer)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not list(self.output.glob(awaited)):
            self.assertLess(time.monotonic(), deadline, f"there is no {awaited} after a minute")
            self.assertIsNone(process.poll())
            time.sleep(0.002)
        return process, pipe

    def test_a_process_that_may_open_no_more_files_leaves_no_image_out(self):
        images = self.copy_of_images()
        (images / "cat/0.jpg").write_text("no image")  # the first one: no other is packed before its warning is read
        process, pipe = self.start_unread(".packing/0.*", "--input", images, "--output", self.output, "--format", "tar",
                                          "--quiet", "--order", "folder", "--threads", "1", "--skip-damaged", "99")
        _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, most))
        messages = pipe.read().decode()
        self.assertEqual(process.wait(60), ENVIRONMENT, messages)
        self.assertIn("Too many open files", messages)
        self.assertIn("ulimit -n", messages)
        self.assertLessEqual(messages.count("left out"), 1, messages)

    def test_a_killed_run_leaves_nothing_that_looks_complete(self):
        for kind in ("tar", "tfrecord"):
            with self.subTest(kind):
                process = self.start_blocked(kind)
                process.send_signal(signal.SIGKILL)
                self.assertEqual(process.wait(60), -signal.SIGKILL)
                self.assertGreater(len(names_in(self.output)), 1)
                for name in names_in(self.output):
                    self.assertRegex(name, r"^\.packing/")
                    self.assertNotRegex(name, r"\.tar|\.tfrecord|-of-")
                self.pack(kind=kind)
                self.assertEqual(len(names_in(self.output)), 2)
                self.assertFalse((self.output / ".packing").exists())
                shutil.rmtree(self.output)
                shutil.rmtree(self.folder / "train")

    def test_two_runs_do_not_share_a_folder(self):
        process = self.start_blocked("tar")
        for force in ([], ["--force"]):
            job = pack("--input", self.images, "--output", self.output, "--format", "tar", *force)
            self.assertEqual(job.exit_code, ENVIRONMENT, job)
            self.assertIn("in use", job.stderr)
        self.assertIsNone(process.poll())
        self.assertTrue((self.output / ".packing/0").exists())


if __name__ == "__main__":
    jobs.require_programs("libtrain-pack")
    unittest.main()
