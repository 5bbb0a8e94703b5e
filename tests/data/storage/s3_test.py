"""S3 as libtrain reads it, against the emulator moto, which this test starts on a free port: the cases of
storage_cases.py, and the store's credentials.

Exit code 77, and a line that says so, where it cannot be had; ctest then reports the test as skipped.
"""

import http.client
import http.server
import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cloud_emulators as emulators
import emulator_process
import jobs
import storage_cases as cases
from storage_cases import loader_jobs

WRONG_SECRET = "not-the-secret-of-the-key-not-the-secret"
PYTHON = []  # the command, found before the tests begin


class S3(cases.Store):
    SCHEME = "s3"
    VERSION = "ETag"

    @classmethod
    def new_server(cls, folder):
        return emulators.S3(PYTHON, folder)

    def setUp(self):
        super().setUp()
        self.secrets += [WRONG_SECRET] + [self.server.secret] * bool(self.server.secret)

    def endpoint(self, port=None):
        return f"http://127.0.0.1:{port or self.server.port}"

    def credentials(self, port=None):
        return self.with_key(self.server.key or "any", self.server.secret or "any", port)

    def with_key(self, key, secret, port=None):
        return self.without_key(port) | {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

    def without_key(self, port=None):
        # Away from what the user of this machine may have signed in as.
        return {"AWS_ENDPOINT_URL": self.endpoint(port), "AWS_REGION": "us-east-1", "HOME": self.server.folder}


class S3Reading(S3, cases.Reading):
    """Here and among the credentials the server looks at the signature of every request."""

    MANY = [f"{number:04}" for number in range(1003)]  # an answer lists 1000

    @classmethod
    def fill(cls):
        super().fill()
        cls.server.put("data", "train/", b"")  # by which consoles show an empty folder, and no file
        cls.server.make_container("many")
        for name in cls.MANY:
            cls.server.put("many", name, b"x")
        cls.server.make_user()

    def test_lists_more_files_than_an_answer_holds(self):
        self.assertEqual([entry["path"] for entry in self.read("list", "s3://many")], self.MANY)


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the port `to`, and what they are answered through answer()."""

    protocol_version = "HTTP/1.1"
    to = 0

    def do_GET(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=60)
        try:
            connection.request(self.command, self.path, headers=dict(self.headers))
            found = connection.getresponse()
            body = found.read()
        finally:
            connection.close()
        headers = {name: value for name, value in found.getheaders()
                   if name.lower() not in ("connection", "transfer-encoding")}
        self.answer(found.status, headers, body)

    do_HEAD = do_GET

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(test, handler, port=0, **attributes):
    """Answers requests until the end of the test, by a handler with these attributes; returns the port."""
    handler = type(handler.__name__, (handler,), attributes)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Milliseconds(Proxy):
    """Lists times with milliseconds, as MinIO and Ceph do."""

    def answer(self, status, headers, body):
        super().answer(status, headers, body.replace(b".000Z</LastModified>", b".123Z</LastModified>"))


class S3Times(S3):
    FILES = ["a", "b/c"]

    @classmethod
    def fill(cls):
        for name in cls.FILES:
            cls.server.put("data", name, name.encode())

    def test_a_listing_with_milliseconds_and_a_single_look_agree(self):
        environment = self.credentials(serve(self, Milliseconds, to=self.server.port))
        for entry in self.read("list", self.at(), environment=environment):
            with self.subTest(entry=entry):
                self.assertEqual(self.read("info", self.at(), entry["path"], environment=environment), [entry])
        for command in ("stage", "cache"):
            folder = jobs.temporary_directory(self)
            for copied in (len(self.FILES), 0):
                with self.subTest(command=command, copied=copied):
                    self.assertEqual(self.read(command, self.at(), folder, environment=environment),
                                     [{"files": len(self.FILES), "copied": copied}])


class Short(Proxy):
    """For each number in `cuts` one read gets the first half of its answer, which does not say how long it is."""

    cuts = iter(())

    def answer(self, status, headers, body):
        if "Range" in self.headers and next(self.cuts, None) is not None:
            headers = {name: value for name, value in headers.items() if name != "Content-Length"}
            headers["Connection"] = "close"
            body = body[:len(body) // 2]
        super().answer(status, headers, body)


class S3ShortAnswers(S3):
    # The last bytes are those by which a read recognizes such an answer.
    FILES = {"big": cases.BIG, "a7": b"content \xa7", "58": b"content \x58"}

    @classmethod
    def fill(cls):
        for name, content in cls.FILES.items():
            cls.server.put("data", name, content)

    def through_proxy(self, cuts):
        return self.credentials(serve(self, Short, to=self.server.port, cuts=cuts))

    def test_are_asked_for_again(self):
        for name, content in self.FILES.items():
            for cuts in range(4):
                with self.subTest(name=name, cuts=cuts):
                    record, = self.read("hash", self.at(), name, environment=self.through_proxy(iter(range(cuts))))
                    self.assertEqual(record["sha256"], cases.sha256(content))

    def test_end_the_program_if_no_whole_one_comes(self):
        for name in self.FILES:
            with self.subTest(name=name):
                self.require_refusal("hash", self.at(), name, "--deadline-ms", 500,
                                     environment=self.through_proxy(itertools.count()),
                                     says=[self.quoted(f"/{name}"), "byte offset 0", "ended early", "Tried "])


class S3UnderTheReader(S3, cases.UnderTheReader):
    pass


class S3Outages(S3, cases.Outages):
    pass


class S3Loading(S3, cases.Loading):
    pass


class S3Credentials(S3):
    @classmethod
    def fill(cls):
        cls.server.put("data", "train/x", b"content")
        cls.server.make_user()

    def require_readable(self, environment):
        listed, = self.read("list", "s3://data/train", environment=environment)
        self.assertEqual((listed["path"], listed["size"]), ("x", 7))
        record, = self.read("hash", "s3a://data/train", "x", environment=environment)
        self.assertEqual(record["sha256"], cases.sha256(b"content"))

    def require_refused(self, environment, *says):
        for words in (("list", "s3://data/train"), ("hash", "s3://data/train", "x"), ("info", "s3://data", "train/x")):
            with self.subTest(words=words):
                self.require_refusal(*words, environment=environment,
                                     says=["'s3://data/train", "access was refused", *says])

    def test_a_key(self):
        self.require_readable(self.credentials())
        specific = {"AWS_ENDPOINT_URL_S3": self.endpoint(), "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        self.require_readable(self.credentials() | specific)
        self.require_readable(self.credentials() | {"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-1"})

    def test_a_key_without_a_region(self):
        self.require_readable(self.credentials() | {"AWS_REGION": ""})

    def test_what_the_client_finds_by_itself(self):
        with tempfile.NamedTemporaryFile("w") as profile:
            profile.write(f"[default]\naws_access_key_id = {self.server.key}\n"
                          f"aws_secret_access_key = {self.server.secret}\n")
            profile.flush()
            self.require_readable(self.without_key() | {"AWS_SHARED_CREDENTIALS_FILE": profile.name})

    def test_a_wrong_secret_is_refused_at_once(self):
        self.require_refused(self.with_key(self.server.key, WRONG_SECRET), "the key that AWS_ACCESS_KEY_ID names")

    def test_an_unknown_key_is_refused_at_once(self):
        self.require_refused(self.with_key("AKIANOBODYHASTHISKEY", self.server.secret),
                             "the key that AWS_ACCESS_KEY_ID names")

    def test_a_region_that_cannot_be_found_out(self):
        # The client asks AWS, whichever region the bucket of that name may be in: this one must not get there.
        offline = ["unshare", "--user", "--map-root-user", "--net"]
        if shutil.which("unshare") is None or subprocess.run([*offline, "true"], check=False).returncode != 0:
            self.skipTest("not run: this machine has no network namespaces for its users")
        job = jobs.run([*offline, jobs.program(cases.PROGRAM), "list", "s3://data"], time_limit=120,
                       environment=emulator_process.foreign_unset() |
                       self.with_key(self.server.key, self.server.secret) |
                       {"AWS_ENDPOINT_URL": "", "AWS_REGION": ""})
        self.require_no_secret(job.stdout + job.stderr)
        jobs.require_refusal(self, job, cases.ENVIRONMENT, "'s3://data' cannot be opened", "region")

    def test_a_damaged_endpoint_is_named(self):
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            for damaged in ("127.0.0.1:9000", "ftp://127.0.0.1:9000", "http://", "http://127.0.0.1/path",
                            f"http://user:{WRONG_SECRET}@127.0.0.1", f"http://127.0.0.1?sig={WRONG_SECRET}"):
                with self.subTest(name=name, damaged=damaged):
                    self.require_refusal("list", "s3://data", environment=self.credentials() | {name: damaged},
                                         says=["AWS_ENDPOINT_URL", "Set it to http://HOST:PORT or https://HOST"])


class Expired(http.server.BaseHTTPRequestHandler):
    """Answers as S3 does a request that is signed with a session token which has expired."""

    def do_GET(self):
        self.send_response(400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@unittest.skipUnless(loader_jobs.PYTHON.exists(), "this environment has no Python with Pillow")
class S3ExpiredCredentials(S3):
    IMAGES = 5

    @classmethod
    def fill(cls):
        pictures = jobs.temporary_directory(cls)
        loader_jobs.make_pictures(pictures / "pictures", cls.IMAGES)
        cls.put_folder(pictures)

    def test_end_a_run_and_make_no_sample_bad(self):
        command = [jobs.program(loader_jobs.PROGRAM), "--data", self.at("/pictures"), "--wait", "--max-bad", "99"]
        loader = emulator_process.Running(self, command, loader_jobs.ENVIRONMENT | self.credentials())
        loader.lines.expect(f'"images":{self.IMAGES}', 120)
        self.server.kill()
        serve(self, Expired, self.server.port)
        loader.write_line()
        exit_code, _, errors = loader.finish()
        self.assertEqual(exit_code, cases.ENVIRONMENT, errors)
        for word in ("pictures/", "HTTP status 400", "the key that AWS_ACCESS_KEY_ID names",
                     "have not expired"):
            self.assertIn(word, errors)
        self.assertNotIn("is bad", errors)


class S3Anonymous(S3):
    @classmethod
    def fill(cls):
        cls.server.put("data", "public", b"content", **{"x-amz-acl": "public-read"})
        cls.server.put("data", "private", b"content")

    def test_anonymous_access_to_public_files(self):
        environment = self.without_key()
        record, = self.read("hash", "s3://data", "public", "--anonymous", environment=environment)
        self.assertEqual(record["sha256"], cases.sha256(b"content"))
        self.require_refusal("hash", "s3://data", "private", "--anonymous", environment=environment,
                             says=["'s3://data/private'", "access was refused", "anonymous access was requested"])


if __name__ == "__main__":
    jobs.require_programs(*cases.PROGRAMS)
    PYTHON[:] = emulators.find_emulators()
    unittest.main()
