"""What holds for every object store that libtrain reads, as test cases: listing, ranges, names, files that go or change
under the reader, a server that goes and comes back. The tests of a store make classes of these, with a Store of theirs.
"""

import hashlib
import json
import random
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import emulator_process
import jobs
import loader_jobs

PROGRAM = "storage_program"
PROGRAMS = (PROGRAM, loader_jobs.PROGRAM, "libtrain-pack", "libtrain-inspect")
ENVIRONMENT = 3  # libtrain's exit code
CHUNK = 300_000
BIG = random.Random(1).randbytes(7 * CHUNK + 1234)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def chunks(content):
    """What `storage_program loop` has to print of a file, chunk by chunk."""
    pieces = [(begin, content[begin:begin + CHUNK]) for begin in range(0, len(content), CHUNK)]
    return [{"offset": begin, "length": len(piece), "sha256": sha256(piece)} for begin, piece in pieces]


class Reader(emulator_process.Running):
    """A program that reads the next chunk of an open file when it is told to."""

    def __init__(self, test, location, path, environment, *options):
        command = [jobs.program(PROGRAM), "loop", location, path, "--chunk", str(CHUNK), *options]
        super().__init__(test, command, environment)

    def ask(self):
        self.write_line()

    def answer(self, seconds=120):
        line = self.lines.next(seconds)
        if line is None:
            raise AssertionError(f"the reader ended: {self.errors.rest(10)}")
        return json.loads(line)

    def chunk(self):
        self.ask()
        return self.answer()


class Store(emulator_process.ServerTest):
    """An emulator with a container "data". A store's own class says how it is reached."""

    SCHEME = ""
    TELLS_FOLDERS = True  # without a list of all files
    VERSION = ""  # what tells versions of a file apart, in messages

    def credentials(self, port=None):
        """The variables with which the server is reached, at another port where one is given, and reading allowed."""
        raise NotImplementedError

    def setUp(self):
        self.secrets = []  # what no output may hold

    def at(self, path=""):
        """A location in the container."""
        return f"{self.SCHEME}://data{path}"

    def quoted(self, path):
        """How a message names it."""
        return f"'{self.at(path)}'"

    def run_program(self, *words, environment=None, program=PROGRAM):
        unset = emulator_process.foreign_unset()
        job = jobs.run([jobs.program(program), *words], time_limit=120,
                       environment=unset | (self.credentials() if environment is None else environment))
        self.require_no_secret(job.stdout + job.stderr)
        return job

    def require_no_secret(self, output):
        for secret in self.secrets:
            self.assertNotIn(secret, output)

    def read(self, *words, environment=None):
        """The records that a program prints, which must end well."""
        job = self.run_program(*words, environment=environment)
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual(job.reports(), [], job)
        return [json.loads(line) for line in job.stdout.splitlines()]

    def require_refusal(self, *words, environment=None, says=()):
        jobs.require_refusal(self, self.run_program(*words, environment=environment), ENVIRONMENT, *says)

    def open_reader(self, path, *options, environment=None):
        reader = Reader(self, self.at(), path, environment or self.credentials(), *options)
        self.assertEqual(reader.answer(), {"opened": self.at(f"/{path}"), "size": len(BIG)})
        return reader

    def require_reader_fails(self, reader, *says):
        reader.ask()
        self.assertIsNone(reader.lines.next(120), "the reader went on")
        self.assertEqual(reader.wait(), ENVIRONMENT)
        errors = reader.errors.rest(10)
        self.require_no_secret(errors)
        for word in says:
            self.assertIn(word, errors)


class Reading(Store):
    NAMES = ("a b/x%41", "other.bin", "train/Z", "train/a b+c.bin", "train/a%41.bin", "train/b/10/deep", "train/b/2",
             "train/caf\u00e9", "training.bin")

    EMPTY = "nothing.bin"

    @classmethod
    def fill(cls):
        cls.server.make_container("empty")
        cls.server.put("data", cls.EMPTY, b"")
        for name in cls.NAMES:
            cls.server.put("data", name, name.encode())
        cls.server.put("data", "big.bin", BIG)
        cls.server.make_container("classes")
        for name in ("a/1.jpg", "b/", "c/1.jpg"):  # consoles show an empty folder by a name that ends so
            cls.server.put("classes", name, b"")

    def test_lists_empty_folders_that_are_marked(self):
        listed = self.read("list", f"{self.SCHEME}://classes")
        self.assertEqual([entry["path"] for entry in listed], ["a/1.jpg", "b/", "c/1.jpg"])
        for words, folders in (((f"{self.SCHEME}://classes",), ["a", "b", "c"]), ((self.at(), "--folder", "train"), ["b"])):
            self.assertEqual([entry["folder"] for entry in self.read("folders", *words)],
                             folders if self.TELLS_FOLDERS else [])
        # Otherwise c would become class 1.
        job = self.run_program("--check", "none", f"{self.SCHEME}://classes", program="libtrain-inspect")
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertIn("found none in 'b'", job.stdout)

    def test_lists_all_files_below_a_folder_sorted_as_bytes(self):
        expected = [{"path": name, "size": len(name.encode())} for name in sorted(self.NAMES, key=str.encode)
                    if name.startswith("train/")]
        below = [entry | {"path": entry["path"].removeprefix("train/")} for entry in expected]
        deep = [{"path": "10/deep", "size": 15}, {"path": "2", "size": 9}]
        for words, wanted in (((self.at(), "--folder", "train"), expected), ((self.at("/train"),), below),
                              ((self.at("/train/b/"),), deep)):
            with self.subTest(words=words):
                listed = self.read("list", *words)
                self.assertTrue(all(entry.pop("version") for entry in listed))
                self.assertEqual(listed, wanted)
        self.assertEqual([entry["path"] for entry in self.read("list", self.at())],
                         sorted(["big.bin", self.EMPTY, *self.NAMES], key=str.encode))

    def test_an_empty_container_has_no_files(self):
        self.assertEqual(self.read("list", f"{self.SCHEME}://empty"), [])

    def test_a_listing_and_a_single_look_agree(self):
        listed = {entry["path"]: entry for entry in self.read("list", self.at())}
        for path in ("big.bin", self.EMPTY, "train/b/2", "train/a b+c.bin"):
            self.assertEqual(self.read("info", self.at(), path), [listed[path]])

    def test_reads_ranges(self):
        size = len(BIG)
        for offset, length in ((0, 1), (0, 100), (1, 1), (12345, 4321), (size - 1, 1), (size - 100, 100), (size, 0)):
            with self.subTest(offset=offset, length=length):
                record, = self.read("read", self.at(), "big.bin", "--offset", offset, "--length", length)
                self.assertEqual(record, {"name": self.at("/big.bin"), "size": size,
                                          "bytes": BIG[offset:offset + length].hex()})

    def test_refuses_ranges_beyond_the_end(self):
        last = len(BIG) - 1
        self.require_refusal("read", self.at(), "big.bin", "--offset", last, "--length", 2,
                             says=[self.quoted("/big.bin"), f"byte offset {last}", "expected 2 more bytes, found 1"])

    def test_reads_whole_files_of_any_name(self):
        names = ["big.bin", self.EMPTY, *self.NAMES]
        contents = [BIG, b""] + [name.encode() for name in self.NAMES]
        self.assertEqual(self.read("hash", self.at(), *names),
                         [{"path": name, "size": len(content), "sha256": sha256(content)}
                          for name, content in zip(names, contents)])

    def test_percent_signs_of_a_location_are_decoded_and_those_of_a_path_are_not(self):
        record, = self.read("hash", self.at("/a%20b"), "x%41")
        self.assertEqual(record["sha256"], sha256(b"a b/x%41"))

    def test_names_what_is_missing(self):
        nowhere = f"{self.SCHEME}://nowhere"
        for words, named in ((("hash", self.at(), "none"), self.at("/none")),
                             (("info", self.at(), "train/none"), self.at("/train/none")),
                             (("list", self.at("/none")), self.at("/none")),
                             (("list", nowhere), nowhere), (("hash", nowhere, "x"), f"{nowhere}/x")):
            with self.subTest(words=words):
                self.require_refusal(*words, says=[f"'{named}'", "does not exist"])
        self.require_refusal("info", self.at(), "train", says=["expected a file, found a folder"])


class UnderTheReader(Store):
    def setUp(self):
        super().setUp()
        self.server.put("data", "big.bin", BIG)

    def test_a_file_that_is_deleted(self):
        reader = self.open_reader("big.bin")
        self.assertEqual(reader.chunk(), chunks(BIG)[0])
        self.server.delete("data", "big.bin")
        self.require_reader_fails(reader, self.quoted("/big.bin"), f"byte offset {CHUNK}",
                                  "deleted after it was opened")

    def test_a_file_that_becomes_shorter(self):
        for length in (CHUNK + 5, 10):
            with self.subTest(length=length):
                self.server.put("data", "big.bin", BIG)
                reader = self.open_reader("big.bin")
                self.assertEqual(reader.chunk(), chunks(BIG)[0])
                self.server.put("data", "big.bin", BIG[:length])
                self.require_reader_fails(reader, self.quoted("/big.bin"), f"byte offset {CHUNK}",
                                          "changed since it was opened")

    def test_a_file_that_is_replaced_by_one_of_the_same_length(self):
        # Without a check of what was read the change would go unnoticed, as it may within StorageOptions::change_check.
        reader = self.open_reader("big.bin", "--change-check-ms", "0")
        self.assertEqual(reader.chunk(), chunks(BIG)[0])
        self.server.put("data", "big.bin", BIG[::-1])
        self.require_reader_fails(reader, self.quoted("/big.bin"), "changed since it was opened", self.VERSION)


class Outages(Store):
    @classmethod
    def fill(cls):
        cls.server.put("data", "big.bin", BIG)
        # What was written must survive a kill.
        cls.server.stop()
        cls.server.start()

    def setUp(self):
        super().setUp()
        if not self.server.is_running():
            self.server.start()

    def require_all_chunks(self, reader, first):
        self.assertEqual([reader.chunk() for _ in chunks(BIG)[first:]], chunks(BIG)[first:])
        self.assertEqual(reader.wait(), 0)

    def test_a_server_that_is_killed_and_comes_back_ends_nothing(self):
        reader = self.open_reader("big.bin", "--change-check-ms", "0")
        self.assertEqual([reader.chunk() for _ in range(3)], chunks(BIG)[:3])
        self.server.kill()
        reader.ask()
        reader.errors.expect(rf"warning: File {re.escape(self.quoted('/big.bin'))}, byte offset .*Trying again", 60)
        self.server.start()
        self.assertEqual(reader.answer(), chunks(BIG)[3])
        self.require_all_chunks(reader, 4)
        self.require_no_secret(reader.errors.rest(10))

    def test_a_server_that_is_away_when_a_file_is_opened(self):
        self.server.kill()
        reader = Reader(self, self.at(), "big.bin", self.credentials())
        reader.errors.expect("Trying again", 60)
        self.server.start()
        self.assertEqual(reader.answer(), {"opened": self.at("/big.bin"), "size": len(BIG)})
        self.require_all_chunks(reader, 0)

    def test_a_connection_that_breaks_in_the_middle_of_an_answer(self):
        relay = emulator_process.Relay(self.server.port, cut_after=CHUNK // 2)
        self.addCleanup(relay.close)
        reader = self.open_reader("big.bin", environment=self.credentials(relay.port))
        self.require_all_chunks(reader, 0)
        self.assertEqual(relay.cuts, 1)

    def test_a_server_that_stays_away_ends_the_program_with_the_reason(self):
        reader = self.open_reader("big.bin", "--deadline-ms", "1000")
        self.server.kill()
        self.require_reader_fails(reader, self.quoted("/big.bin"), "the store failed or did not answer", "Tried ",
                                  " s.")


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class Loading(Store):
    """Whole programs get of the store what they get of the local disk."""

    IMAGES = 13

    @classmethod
    def fill(cls):
        cls.local = jobs.temporary_directory(cls)
        loader_jobs.make_pictures(cls.local / "pictures", cls.IMAGES)
        loader_jobs.make_shards(cls.local / "pictures", cls.local / "tar", "tar", 2)
        cls.put_folder(cls.local)

    def output_of(self, program, *words):
        job = self.run_program(*words, program=program)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        return job.stdout

    def samples(self, data, *words):
        """What a loader gets of two epochs."""
        return loader_jobs.steps_of(self.output_of(loader_jobs.PROGRAM, "--data", data, "--epochs", 2, *words))

    def test_a_loader_gets_the_pictures_and_shards_of_the_local_disk(self):
        for kind, words in (("pictures", ()), ("tar", ("--shards",))):
            expected = self.samples(self.local / kind, *words)
            labels = [label for samples in expected.values() for label, _ in samples]
            self.assertEqual(sorted(labels), sorted([*range(self.IMAGES)] * 2))
            for cache in ((), ("--cache", jobs.temporary_directory(self))):
                with self.subTest(kind=kind, cache=cache):
                    self.assertEqual(self.samples(self.at(f"/{kind}"), *words, *cache), expected)

    def test_inspect_says_what_it_says_of_local_data(self):
        for kind in ("pictures", "tar"):
            with self.subTest(kind=kind):
                expected = self.output_of("libtrain-inspect", self.local / kind, "--check", "decode", "--json")
                said = self.output_of("libtrain-inspect", self.at(f"/{kind}"), "--check", "decode", "--json")
                self.assertEqual(said, expected.replace(str(self.local), self.at()))
