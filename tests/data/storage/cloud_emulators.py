"""The emulators of S3 (moto) and of Google Cloud Storage (gcp-storage-emulator) as processes of the tests, and what
fills them.

https://docs.getmoto.org/en/latest/docs/iam.html
https://cloud.google.com/storage/docs/json_api/v1/objects/insert
"""

import http.client
import json
import re
import urllib.parse
from pathlib import Path

from emulator_process import Emulator, Relay, find_command

# What an IAM user of these tests may do.
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


def find_emulators():
    """The Python program that has both emulators."""
    return find_command("cloud_emulators.sh", "S3 and Google Cloud Storage")


def request(port, method, path, headers, body=b""):
    """The content of the answer to a request to this machine, which must be granted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status not in (200, 204):
        raise AssertionError(f"{method} {path}: {answer.status} {answer.reason} {content!r}")
    return content


class S3(Emulator):
    """moto keeps all in memory: what was put is put again before a server that was killed can be reached."""

    def __init__(self, python, folder):
        super().__init__(folder)
        self._command = [*python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        self._door = None
        self._moto = 0
        self._contents = {}  # what to put again: {path: (content, headers)}
        self.key = self.secret = ""

    def start(self):
        self._moto = self.launch(self._command, r"Running on http://127\.0\.0\.1:(\d+)")
        for path, (content, headers) in self._contents.items():
            self._request("PUT", path, content, headers)
        self._door = Relay(self._moto, at=self.port)
        self.port = self._door.port

    def kill(self):
        if self._door:
            self._door.close()
            self._door = None
        super().kill()

    def make_user(self):
        """Gives `key` and `secret` to a user who may read; from here on the server looks at every signature."""
        self._ask_iam("CreateUser")
        self._ask_iam("PutUserPolicy", PolicyName="p", PolicyDocument=json.dumps(POLICY))
        answer = self._ask_iam("CreateAccessKey")
        self.key, self.secret = (re.search(f"<{name}>(.*)</{name}>", answer)[1]
                                 for name in ("AccessKeyId", "SecretAccessKey"))
        self._request("POST", "/moto-api/reset-auth", b"0", {"Content-Type": "application/octet-stream"})

    def make_container(self, name):
        self._put(f"/{name}", b"", {})

    def put(self, bucket, name, content, **headers):
        self._put(f"/{bucket}/{urllib.parse.quote(name)}", content, headers)

    def delete(self, bucket, name):
        path = f"/{bucket}/{urllib.parse.quote(name)}"
        del self._contents[path]
        self._request("DELETE", path)

    def _put(self, path, content, headers):
        self._contents[path] = (content, headers)
        self._request("PUT", path, content, headers)

    def _ask_iam(self, action, **more):
        form = urllib.parse.urlencode({"Version": "2010-05-08", "Action": action, "UserName": "reader", **more})
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._request("POST", "/", form.encode(), headers, service="iam").decode()

    def _request(self, method, path, body=b"", headers=None, service="s3"):
        # From this moto sees which service is meant. It looks at no signature before make_user().
        scope = f"Credential=x/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x"
        return request(self._moto, method, path, {"Authorization": f"AWS4-HMAC-SHA256 {scope}"} | (headers or {}), body)


class Gcs(Emulator):
    def __init__(self, python, folder):
        super().__init__(folder)
        self.refresh_token = "the-refresh-token-of-these-tests"
        self.client_secret = "the-secret-of-the-client"
        self._command = [*python, str(Path(__file__).with_name("gcs_server.py")), str(folder)]
        self._headers = {}

    def start(self):
        self.port = self.launch([*self._command, str(self.port), self.refresh_token], r"listens on (\d+)")
        form = urllib.parse.urlencode({"grant_type": "refresh_token", "refresh_token": self.refresh_token}).encode()
        token = json.loads(request(self.port, "POST", "/token", {}, form))["access_token"]
        self._headers = {"Authorization": f"Bearer {token}"}

    def credentials(self, **changes):
        """What a file for GOOGLE_APPLICATION_CREDENTIALS holds."""
        return json.dumps({"type": "authorized_user", "client_id": "the-client", "client_secret": self.client_secret,
                           "refresh_token": self.refresh_token,
                           "token_uri": f"http://127.0.0.1:{self.port}/token"} | changes)

    def make_container(self, name):
        self._request("POST", "/storage/v1/b?project=test", json.dumps({"name": name}).encode(), "application/json")

    def put(self, bucket, name, content):
        query, content_type = {"uploadType": "media", "name": name}, "application/octet-stream"
        if not content:  # which the emulator takes in no other way
            query, content_type = {"uploadType": "multipart"}, "multipart/related; boundary=x"
            content = ("--x\r\nContent-Type: application/json\r\n\r\n" + json.dumps({"name": name}) +
                       "\r\n--x\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--x--").encode()
        query = urllib.parse.urlencode(query)
        self._request("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", content, content_type)

    def set_encoding(self, bucket, name, encoding):
        body = json.dumps({"contentEncoding": encoding}).encode()
        self._request("PATCH", self._path_of(bucket, name), body, "application/json")

    def delete(self, bucket, name):
        self._request("DELETE", self._path_of(bucket, name))

    @staticmethod
    def _path_of(bucket, name):
        return f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}"

    def _request(self, method, path, body=b"", content_type="text/plain"):
        request(self.port, method, path, {**self._headers, "Content-Type": content_type}, body)
