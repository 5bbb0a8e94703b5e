"""Google Cloud Storage as libtrain reads it, against the emulator gcp-storage-emulator, which this test starts on a
free port: the cases of storage_cases.py, and the store's credentials.

Exit code 77, and a line that says so, where it cannot be had; ctest then reports the test as skipped.
"""

import gzip
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cloud_emulators as emulators
import jobs
import storage_cases as cases

WRONG_SECRET = "not-the-secret-of-the-key-not-the-secret"
PYTHON = []  # the command, found before the tests begin


class Gcs(cases.Store):
    SCHEME = "gs"
    TELLS_FOLDERS = False
    VERSION = "generation"

    @classmethod
    def new_server(cls, folder):
        return emulators.Gcs(PYTHON, folder)

    def setUp(self):
        super().setUp()
        self.secrets += [self.server.refresh_token, self.server.client_secret, WRONG_SECRET]

    def credentials(self, port=None):
        return self.with_file(self.credentials_file(), port)

    def with_file(self, file, port=None):
        return self.without_credentials(port) | {"GOOGLE_APPLICATION_CREDENTIALS": file}

    def without_credentials(self, port=None):
        return {"CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port or self.server.port}",
                "HOME": self.server.folder}

    def credentials_file(self, **changes):
        """A file of credentials that is gone after the test."""
        file = jobs.temporary_directory(self) / "credentials.json"
        file.write_text(self.server.credentials(**changes), encoding="utf-8")
        return str(file)


class GcsReading(Gcs, cases.Reading):
    pass


class GcsEncoded(Gcs):
    STORED = gzip.compress(b"".join(b"line %05d\n" % number for number in range(100)))

    @classmethod
    def fill(cls):
        cls.server.put("data", "x", cls.STORED)

    def test_a_file_that_the_store_decompresses_is_refused_until_its_encoding_is_cleared(self):
        self.server.set_encoding("data", "x", "gzip")
        for words in (("hash", self.at(), "x"), ("stage", self.at(), jobs.temporary_directory(self)),
                      ("cache", self.at(), jobs.temporary_directory(self))):
            with self.subTest(words=words):
                self.require_refusal(*words, says=["'gs://data/x'", "Content-Encoding is gzip", "--clear-content-encoding"])
        self.server.set_encoding("data", "x", "")
        record, = self.read("hash", self.at(), "x")
        self.assertEqual((record["size"], record["sha256"]), (len(self.STORED), cases.sha256(self.STORED)))


class GcsUnderTheReader(Gcs, cases.UnderTheReader):
    pass


class GcsOutages(Gcs, cases.Outages):
    pass


class GcsLoading(Gcs, cases.Loading):
    pass


class GcsCredentials(Gcs):
    @classmethod
    def fill(cls):
        cls.server.make_container("public")
        for bucket in ("data", "public"):
            cls.server.put(bucket, "train/x", b"content")

    def require_content(self, location, environment, *options):
        record, = self.read("hash", location, "x", *options, environment=environment)
        self.assertEqual(record["sha256"], cases.sha256(b"content"))

    def require_nobody_to_sign_as(self, environment, *says):
        job = self.run_program("hash", "gs://data/train", "x", environment=environment)
        jobs.require_refusal(self, job, cases.ENVIRONMENT, "'gs://data/train/x'", "the request could not be sent",
                             "It uses Google's application default credentials", *says)
        self.assertNotIn("Trying again", job.stderr)

    def test_a_file_of_credentials(self):
        self.require_content("gs://data/train", self.credentials())
        self.require_content("gcs://data/train", self.credentials())

    def test_anonymous_access_to_public_files(self):
        self.require_content("gs://public/train", self.without_credentials(), "--anonymous")
        self.require_refusal("hash", "gs://data/train", "x", "--anonymous", environment=self.without_credentials(),
                             says=["'gs://data/train/x'", "access was refused", "anonymous access was requested"])

    def test_credentials_for_which_there_is_no_token(self):
        token_uri = f"http://127.0.0.1:{self.server.port}/token"
        for damage, says in (({"refresh_token": WRONG_SECRET}, "invalid_grant"),
                             ({"token_uri": f"{token_uri}?status=404"}, "could not get an access token"),
                             ({"token_uri": "http://nowhere.invalid/token"}, "resolve host")):
            with self.subTest(damage=damage):
                self.require_nobody_to_sign_as(self.with_file(self.credentials_file(**damage)), says)

    def test_a_token_that_is_refused(self):
        file = self.credentials_file(token_uri=f"http://127.0.0.1:{self.server.port}/token?status=401")
        self.require_refusal("hash", "gs://data/train", "x", environment=self.with_file(file),
                             says=["access was refused", "The request used Google's application default credentials"])

    def test_a_missing_file_of_credentials_is_named(self):
        missing = str(jobs.temporary_directory(self) / "none.json")
        self.require_nobody_to_sign_as(self.with_file(missing), missing)

    def test_nobody_to_sign_as(self):
        self.require_nobody_to_sign_as(self.without_credentials() | {"GCE_METADATA_ROOT": "nowhere.invalid"})


if __name__ == "__main__":
    jobs.require_programs(*cases.PROGRAMS)
    PYTHON[:] = emulators.find_emulators()
    unittest.main()
