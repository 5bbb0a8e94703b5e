"""Azure Blob Storage as libtrain reads it, against the Azurite emulator, which this test starts on a free port:
listing, ranges, credentials of all kinds, blobs that go or change under the reader, a server that goes and comes back.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.
"""

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import azurite_emulator as emulator
import jobs

PROGRAM = "storage_program"
ENVIRONMENT = 3  # libtrain's exit code
CHUNK = 300_000
WRONG_KEY = base64.b64encode(b"not the key of the account").decode()
BIG = random.Random(1).randbytes(7 * CHUNK + 1234)
AZURITE = []  # the command, found before the tests begin


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def chunks(content):
    """What `storage_program loop` has to print of a blob, chunk by chunk."""
    pieces = [(begin, content[begin:begin + CHUNK]) for begin in range(0, len(content), CHUNK)]
    return [{"offset": begin, "length": len(piece), "sha256": sha256(piece)} for begin, piece in pieces]


class Reader:
    """A program that reads the next chunk of an open blob when it is told to."""

    def __init__(self, test, location, path, environment, *options):
        command = [jobs.program(PROGRAM), "loop", location, path, "--chunk", str(CHUNK), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, env=emulator.clean_environment() | environment)
        self.answers = emulator.Lines(self._process.stdout)
        self.errors = emulator.Lines(self._process.stderr)
        test.addCleanup(self._end)

    def _end(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def ask(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def answer(self, seconds=120):
        line = self.answers.next(seconds)
        if line is None:
            raise AssertionError(f"the reader ended: {self.errors.rest(10)}")
        return json.loads(line)

    def chunk(self):
        self.ask()
        return self.answer()

    def wait(self, seconds=120):
        return self._process.wait(seconds)


class StorageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = emulator.Azurite(AZURITE, cls.enterClassContext(tempfile.TemporaryDirectory(prefix="libtrain-")))
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()
        cls.server.make_container("data")
        cls.fill()

    @classmethod
    def fill(cls):
        """Makes what the tests of the class read."""

    def setUp(self):
        self.secrets = [emulator.KEY, WRONG_KEY]

    def with_key(self, **options):
        return {"AZURE_STORAGE_CONNECTION_STRING": self.server.connection_string(**options)}

    def without_key(self):
        return {"AZURE_STORAGE_BLOB_ENDPOINT": self.server.endpoint()}

    def new_sas(self, **options):
        token = emulator.account_sas(**options)
        self.secrets += [token, token.partition("sig=")[2]]
        return token

    def run_program(self, *words, environment=None):
        unset = {name: "" for name in os.environ if emulator.FOREIGN.match(name)} | {"NO_PROXY": "*"}
        job = jobs.run([jobs.program(PROGRAM), *words], time_limit=120,
                       environment=unset | (self.with_key() if environment is None else environment))
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
        job = self.run_program(*words, environment=environment)
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertEqual(len(job.reports()), 1, job)
        for word in says:
            self.assertIn(word, job.reports()[0])

    def open_reader(self, path, *options, environment=None):
        reader = Reader(self, "az://data", path, environment or self.with_key(), *options)
        self.assertEqual(reader.answer(), {"opened": f"az://data/{path}", "size": len(BIG)})
        return reader

    def require_reader_fails(self, reader, *says):
        reader.ask()
        self.assertIsNone(reader.answers.next(120), "the reader went on")
        self.assertEqual(reader.wait(), ENVIRONMENT)
        errors = reader.errors.rest(10)
        self.require_no_secret(errors)
        for word in says:
            self.assertIn(word, errors)


class Reading(StorageTest):
    NAMES = ("other.bin", "train/Z", "train/a b+c.bin", "train/a%41.bin", "train/b/10/deep", "train/b/2",
             "train/caf\u00e9", "training.bin")

    @classmethod
    def fill(cls):
        for name in cls.NAMES:
            cls.server.put("data", name, name.encode())
        cls.server.put("data", "big.bin", BIG)

    def test_lists_all_files_below_a_folder_sorted_as_bytes(self):
        expected = [{"path": name, "size": len(name.encode())} for name in sorted(self.NAMES, key=str.encode)
                    if name.startswith("train/")]
        below = [entry | {"path": entry["path"].removeprefix("train/")} for entry in expected]
        for words, wanted in ((("az://data", "--folder", "train"), expected), (("az://data/train",), below),
                              (("az://data/train/b/",), [{"path": "10/deep", "size": 15}, {"path": "2", "size": 9}])):
            with self.subTest(words=words):
                listed = self.read("list", *words)
                self.assertTrue(all(entry.pop("version") for entry in listed))
                self.assertEqual(listed, wanted)
        everything = [entry["path"] for entry in self.read("list", "az://data")]
        self.assertEqual([path for path in everything if not path.startswith("a b/")],
                         sorted(["big.bin", *self.NAMES], key=str.encode))

    def test_a_listing_and_a_single_look_agree(self):
        listed = {entry["path"]: entry for entry in self.read("list", "az://data")}
        for path in ("big.bin", "train/b/2", "train/a b+c.bin"):
            self.assertEqual(self.read("info", "az://data", path), [listed[path]])

    def test_reads_ranges(self):
        size = len(BIG)
        for offset, length in ((0, 1), (0, 100), (1, 1), (12345, 4321), (size - 1, 1), (size - 100, 100), (size, 0)):
            with self.subTest(offset=offset, length=length):
                record, = self.read("read", "az://data", "big.bin", "--offset", offset, "--length", length)
                self.assertEqual(record, {"name": "az://data/big.bin", "size": size,
                                          "bytes": BIG[offset:offset + length].hex()})

    def test_refuses_ranges_beyond_the_end(self):
        last = len(BIG) - 1
        self.require_refusal("read", "az://data", "big.bin", "--offset", last, "--length", 2,
                             says=["'az://data/big.bin'", f"byte offset {last}", "expected 2 more bytes, found 1"])

    def test_reads_whole_files_of_any_name(self):
        names = ["big.bin", *self.NAMES]
        contents = [BIG] + [name.encode() for name in self.NAMES]
        self.assertEqual(self.read("hash", "az://data", *names),
                         [{"path": name, "size": len(content), "sha256": sha256(content)}
                          for name, content in zip(names, contents)])

    def test_percent_signs_of_a_location_are_decoded_and_those_of_a_path_are_not(self):
        self.server.put("data", "a b/x%41", b"found")
        record, = self.read("hash", "az://data/a%20b", "x%41")
        self.assertEqual(record["sha256"], sha256(b"found"))

    def test_names_what_is_missing(self):
        self.require_refusal("hash", "az://data", "none", says=["'az://data/none'", "does not exist"])
        self.require_refusal("info", "az://data", "train/none", says=["'az://data/train/none'", "does not exist"])
        self.require_refusal("info", "az://data", "train", says=["expected a file, found a folder"])
        self.require_refusal("list", "az://data/none", says=["'az://data/none'", "does not exist"])
        self.require_refusal("list", "az://nowhere", says=["'az://nowhere'", "does not exist"])
        self.require_refusal("hash", "az://nowhere", "x", says=["'az://nowhere/x'", "does not exist"])


class Credentials(StorageTest):
    @classmethod
    def fill(cls):
        cls.server.make_container("public", **{"x-ms-blob-public-access": "blob"})
        for container in ("data", "public"):
            cls.server.put(container, "train/x", b"content")

    def require_readable(self, location, environment):
        listed, = self.read("list", location, environment=environment)
        self.assertEqual((listed["path"], listed["size"]), ("x", 7))
        self.require_content(location, environment)

    def require_content(self, location, environment, *options):
        record, = self.read("hash", location, "x", *options, environment=environment)
        self.assertEqual(record["sha256"], sha256(b"content"))

    def test_an_account_key(self):
        self.require_readable("az://data/train", self.with_key())
        self.require_readable(f"abfss://data@{emulator.ACCOUNT}.dfs.core.windows.net/train", self.with_key())
        self.require_readable("az://data/train", self.without_key() | {"AZURE_STORAGE_KEY": emulator.KEY})
        self.require_readable("az://data/train", self.without_key() | {
            "AZURE_STORAGE_KEY": emulator.KEY, "AZURE_STORAGE_ACCOUNT": emulator.ACCOUNT})

    def test_a_shared_access_signature(self):
        token = self.new_sas()
        for location in ("az://data/train", f"https://{emulator.ACCOUNT}.blob.core.windows.net/data/train",
                         f"abfss://data@{emulator.ACCOUNT}.dfs.core.windows.net/train"):
            self.require_readable(f"{location}?{token}", self.without_key())
            self.require_readable(location, self.without_key() | {"AZURE_STORAGE_SAS_TOKEN": token})
            self.require_readable(location, self.without_key() | {"AZURE_STORAGE_SAS_TOKEN": "?" + token})
        connection = f"BlobEndpoint={self.server.endpoint()};SharedAccessSignature={token}"
        self.require_readable("az://data/train", {"AZURE_STORAGE_CONNECTION_STRING": connection})

    def test_a_signature_that_only_reads_is_enough_to_read(self):
        token = self.new_sas(permissions="r")
        self.require_content(f"az://data/train?{token}", self.without_key())
        self.require_refusal("list", f"az://data/train?{token}", environment=self.without_key(),
                             says=["'az://data/train'", "access was refused", "403", "in the location"])

    def test_anonymous_access_to_public_blobs(self):
        self.require_content("az://public/train", self.without_key(), "--anonymous")
        self.require_refusal("hash", "az://data/train", "x", "--anonymous", environment=self.without_key(),
                             says=["'az://data/train/x'"])

    def test_a_wrong_key_is_refused_at_once(self):
        for command in (("list", "az://data/train"), ("hash", "az://data/train", "x")):
            self.require_refusal(*command, environment=self.with_key(key=WRONG_KEY),
                                 says=["'az://data/train", "access was refused", "403",
                                       "the account key in AZURE_STORAGE_CONNECTION_STRING"])

    def test_an_expired_signature_is_refused_at_once(self):
        token = self.new_sas(seconds=-60)
        for command in (("list", f"az://data/train?{token}"), ("hash", f"az://data/train?{token}", "x")):
            self.require_refusal(*command, environment=self.without_key(),
                                 says=["'az://data/train", "access was refused", "403", "which expires at 20"])

    def test_a_forged_signature_is_refused(self):
        token = self.new_sas(key=WRONG_KEY)
        self.require_refusal("hash", f"az://data/train?{token}", "x", environment=self.without_key(),
                             says=["access was refused", "403"])

    def test_damaged_settings_are_named(self):
        self.require_refusal("list", "az://data", environment={}, says=["AZURE_STORAGE_ACCOUNT"])
        self.require_refusal("list", "az://data", environment=self.without_key() | {"AZURE_STORAGE_KEY": "x y"},
                             says=["AZURE_STORAGE_KEY", "base64"])


class UnderTheReader(StorageTest):
    def setUp(self):
        super().setUp()
        self.server.put("data", "big.bin", BIG)

    def test_a_blob_that_is_deleted(self):
        reader = self.open_reader("big.bin")
        self.assertEqual(reader.chunk(), chunks(BIG)[0])
        self.server.delete("data", "big.bin")
        self.require_reader_fails(reader, "'az://data/big.bin'", f"byte offset {CHUNK}", "deleted since it was opened")

    def test_a_blob_that_becomes_shorter(self):
        for length in (CHUNK + 5, 10):
            with self.subTest(length=length):
                self.server.put("data", "big.bin", BIG)
                reader = self.open_reader("big.bin")
                self.assertEqual(reader.chunk(), chunks(BIG)[0])
                self.server.put("data", "big.bin", BIG[:length])
                self.require_reader_fails(reader, "'az://data/big.bin'", f"byte offset {CHUNK}",
                                          "changed since it was opened")

    def test_a_blob_that_is_replaced_by_one_of_the_same_length(self):
        # Without a check of what was read the change would go unnoticed, as it may within StorageOptions::change_check.
        reader = self.open_reader("big.bin", "--change-check-ms", "0")
        self.assertEqual(reader.chunk(), chunks(BIG)[0])
        self.server.put("data", "big.bin", BIG[::-1])
        self.require_reader_fails(reader, "'az://data/big.bin'", "changed since it was opened", "ETag")


class Outages(StorageTest):
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
        reader.errors.expect(r"warning: File 'az://data/big\.bin', byte offset \d+: .*Trying again", 60)
        self.server.start()
        self.assertEqual(reader.answer(), chunks(BIG)[3])
        self.require_all_chunks(reader, 4)
        self.require_no_secret(reader.errors.rest(10))

    def test_a_server_that_is_away_when_a_file_is_opened(self):
        self.server.kill()
        reader = Reader(self, "az://data", "big.bin", self.with_key())
        reader.errors.expect("Trying again", 60)
        self.server.start()
        self.assertEqual(reader.answer(), {"opened": "az://data/big.bin", "size": len(BIG)})
        self.require_all_chunks(reader, 0)

    def test_a_connection_that_breaks_in_the_middle_of_an_answer(self):
        relay = emulator.Relay(self.server.port, cut_after=CHUNK // 2)
        self.addCleanup(relay.close)
        reader = self.open_reader("big.bin", environment=self.with_key(port=relay.port))
        self.require_all_chunks(reader, 0)
        self.assertEqual(relay.cuts, 1)

    def test_a_server_that_stays_away_ends_the_program_with_the_reason(self):
        reader = self.open_reader("big.bin", "--deadline-ms", "1000")
        self.server.kill()
        self.require_reader_fails(reader, "'az://data/big.bin'", "the store failed or did not answer", "Tried ", " s.")


if __name__ == "__main__":
    jobs.require_programs(PROGRAM)
    AZURITE[:] = emulator.find_azurite()
    unittest.main()
