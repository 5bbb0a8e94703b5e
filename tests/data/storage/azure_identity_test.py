"""Azure Blob Storage as a managed identity, against the Azurite emulator: tokens come from an endpoint of the test, as
Azure gives them to an App Service or a job, and go over TLS with a certificate that the test makes.

Azurite (`--oauth basic`) looks at a token's issuer, audience and times, and not at its signature.

Exit code 77, and a line that says so, where Azurite cannot be had; ctest then reports the test as skipped.

https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
"""

import base64
import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import azurite_jobs
from azurite_jobs import AZURITE, ENVIRONMENT, PATIENCE_S, emulator, emulator_process, jobs

PROGRAM = "storage_program"
SAVE = "checkpoint_store_program"
CONTENT = b"content"
FILES = ["a/x", "b/deep/er/x", "train/x"]
STORAGE = "https://storage.azure.com"
TENANT = "https://sts.windows.net/11111111-1111-1111-1111-111111111111/"
CLIENT = "22222222-2222-2222-2222-222222222222"
HEADER = "a-secret-of-the-host"


class SecureAzurite(emulator.Azurite):
    """Takes tokens, which it does over TLS only."""

    def __init__(self, command, folder, certificate, key):
        super().__init__([*command, "--oauth", "basic", "--cert", str(certificate), "--key", str(key)], folder)

    def start(self):
        self.port = self.launch([*self._command, "--blobPort", "0"],
                                r"successfully listens on https://127\.0\.0\.1:(\d+)")

    def endpoint(self, port=None):
        return super().endpoint(port).replace("http:", "https:")


def encoded(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def make_token(audience=STORAGE, seconds=3600):
    """That expires in so many seconds."""
    now = int(time.time())
    claims = {"aud": audience, "iss": TENANT, "iat": now - 7200, "nbf": now - 7200, "exp": now + seconds}
    head = {"typ": "JWT", "alg": "RS256"}
    return ".".join([encoded(json.dumps(head).encode()), encoded(json.dumps(claims).encode()), encoded(b"unsigned")])


class IdentityEndpoint(http.server.ThreadingHTTPServer):
    """Hands out `token` for so many seconds, or the error `status` where that is another than 200, and 400 for the
    request of the number `fails`, from 0."""

    def __init__(self, token, status=200, seconds=3600, fails=None):
        super().__init__(("127.0.0.1", 0), IdentityRequest)
        self.token = token
        self.status = status
        self.seconds = seconds
        self.fails = fails
        self.asked = []  # the queries, each a dictionary
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()

    def environment(self):
        return {"IDENTITY_ENDPOINT": f"http://127.0.0.1:{self.server_port}/token", "IDENTITY_HEADER": HEADER}


class IdentityRequest(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        number = len(self.server.asked)
        self.server.asked.append(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))
        status = self.server.status if number != self.server.fails else 400
        status = status if self.headers["X-IDENTITY-HEADER"] == HEADER else 401
        answer = {"access_token": self.server.token, "expires_on": str(int(time.time()) + self.server.seconds),
                  "resource": STORAGE, "token_type": "Bearer"}
        if status != 200:
            answer = {"statusCode": status, "message": "No managed identity found for the client id."}
        emulator_process.answer_json(self, status, answer)

    def log_message(self, *_):
        pass


class Identity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = jobs.temporary_directory(cls)
        (folder / "server").mkdir()
        cls.fill(folder / "server")
        cls.certificate, key = folder / "certificate.pem", folder / "key.pem"
        cls.make_certificate(cls.certificate, key)
        cls.server = SecureAzurite(AZURITE, folder / "server", cls.certificate, key)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()

    @classmethod
    def fill(cls, folder):
        server = emulator.Azurite(AZURITE, folder)
        cls.addClassCleanup(server.kill)
        server.start()
        server.make_container("data")
        server.make_container("saved")
        for name in FILES:
            server.put("data", name, CONTENT)
        server.stop()

    @classmethod
    def make_certificate(cls, certificate, key):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True, timeout=60)

    def serve(self, token, **options):
        endpoint = IdentityEndpoint(token, **options)
        self.addCleanup(endpoint.close)
        return endpoint

    def environment(self, endpoint, variables):
        # Away from what the user of this machine may have signed in as.
        return {"AZURE_STORAGE_BLOB_ENDPOINT": self.server.endpoint(), "HOME": str(self.certificate.parent),
                "SSL_CERT_FILE": str(self.certificate)} | endpoint.environment() | variables

    def run_program(self, endpoint, *words, **variables):
        job = azurite_jobs.run([jobs.program(PROGRAM), *words], self.environment(endpoint, variables))
        self.require_no_secret(endpoint, job.stdout + job.stderr)
        return job

    def require_no_secret(self, endpoint, output):
        for secret in (endpoint.token, HEADER):
            self.assertNotIn(secret, output)

    def require_readable(self, endpoint, **variables):
        """Listed and read. Of what the endpoint was asked for the versions of its interface are left out afterwards."""
        for words, key, value in ((("list", "az://data/train"), "path", "x"),
                                  (("hash", "az://data/train", "x"), "sha256", hashlib.sha256(CONTENT).hexdigest())):
            job = self.run_program(endpoint, *words, **variables)
            self.assertEqual((job.exit_code, job.reports()), (0, []), job)
            self.assertEqual(json.loads(job.stdout)[key], value)
        self.assertTrue(all(query.pop("api-version") for query in endpoint.asked))

    def require_refusal(self, endpoint, *says, **variables):
        job = self.run_program(endpoint, "hash", "az://data/train", "x", **variables)
        jobs.require_refusal(self, job, ENVIRONMENT, "'az://data/train/x'", *says)
        self.assertNotIn("Trying again", job.stderr)

    def test_a_managed_identity_by_its_client_id(self):
        for variable in ("AZURE_CLIENT_ID", "DEFAULT_IDENTITY_CLIENT_ID"):
            with self.subTest(variable):
                endpoint = self.serve(make_token())
                self.require_readable(endpoint, **{variable: CLIENT})
                self.assertEqual(endpoint.asked, [{"client_id": CLIENT, "resource": STORAGE}] * 2)

    def test_whoever_runs_the_program(self):
        endpoint = self.serve(make_token())
        self.require_readable(endpoint)
        self.assertEqual(endpoint.asked, [{"resource": STORAGE}] * 2)

    def test_a_token_that_is_refused(self):
        for name, token in (("expired", make_token(seconds=-3600)), ("foreign", make_token("https://vault.azure.net"))):
            with self.subTest(name):
                endpoint = self.serve(token)
                self.require_refusal(endpoint, "access was refused", "the managed identity that AZURE_CLIENT_ID names",
                                     AZURE_CLIENT_ID=CLIENT)
                self.require_refusal(endpoint, "access was refused", "the identity that Azure's client found")

    def test_an_identity_that_is_not_there(self):
        self.require_refusal(self.serve(make_token(), status=400), "the request could not be sent",
                             "It uses the managed identity that AZURE_CLIENT_ID names", AZURE_CLIENT_ID=CLIENT)

    def test_an_identity_that_is_gone_for_a_while(self):
        # So short a time that every request asks for a token of its own.
        endpoint = self.serve(make_token(), seconds=1)
        reader = azurite_jobs.Running(self, [jobs.program(PROGRAM), "loop", "az://data/train", "x", "--chunk", "4",
                                             "--change-check-ms", "0"],
                                      self.environment(endpoint, {"AZURE_CLIENT_ID": CLIENT}))
        reader.lines.expect(r'"opened"', PATIENCE_S)
        reader.write_line()
        reader.lines.expect(r'"offset":0', PATIENCE_S)
        endpoint.status = 400
        reader.write_line()
        reader.errors.expect(r"warning: .*could not be sent.*AZURE_CLIENT_ID.*Trying again", PATIENCE_S)
        endpoint.status = 200
        exit_code, output, errors = reader.finish()
        self.assertEqual(exit_code, 0, errors)
        self.assertIn(hashlib.sha256(CONTENT[4:]).hexdigest(), output)
        self.require_no_secret(endpoint, output + errors)

    def require_retry(self, program, command, expected):
        """Whichever request has no token, as each asks for one of its own: only before the store has first answered is
        that final."""
        fails, asked, retries = 1, 2, 0
        while fails < asked:
            endpoint = self.serve(make_token(), seconds=1, fails=fails)
            job = azurite_jobs.run([jobs.program(program), *command(fails)],
                                   self.environment(endpoint, {"AZURE_CLIENT_ID": CLIENT}))
            self.require_no_secret(endpoint, job.stdout + job.stderr)
            fails, asked = fails + 1, len(endpoint.asked)
            if retries == 0 and "Trying again" not in job.stderr:
                self.assertIn("the request could not be sent", job.stdout + job.stderr)
                asked = fails + 1
                continue
            self.assertEqual((job.exit_code, job.reports(), job.stdout), (0, [], expected), (fails, job))
            retries += 1
        self.assertGreater(retries, 2)

    def test_an_identity_that_fails_once_in_a_listing(self):
        job = self.run_program(self.serve(make_token()), "list", "az://data/", AZURE_CLIENT_ID=CLIENT)
        self.assertEqual([json.loads(line)["path"] for line in job.stdout.splitlines()], FILES)
        self.require_retry(PROGRAM, lambda _: ["list", "az://data/"], job.stdout)

    def test_an_identity_that_fails_once_in_an_upload(self):
        folder = jobs.temporary_directory(self)
        self.require_retry(SAVE, lambda run: ["save", f"az://saved/{run}", folder / str(run), "run-1", "100", "--bytes",
                                              10_000_000], "saved 100\n")

    def test_a_certificate_that_nobody_trusts(self):
        self.require_refusal(self.serve(make_token()), "certificate", AZURE_CLIENT_ID=CLIENT, SSL_CERT_FILE="")


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        sys.exit("there is no openssl to make a certificate with (Debian: openssl)")
    azurite_jobs.run_tests(PROGRAM, SAVE)
