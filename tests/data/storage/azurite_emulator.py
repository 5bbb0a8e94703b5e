"""The Azurite emulator as a process of the tests, and a client that fills it: requests are signed by hand, since only
Python's own library is there.

https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
https://learn.microsoft.com/rest/api/storageservices/create-account-sas
"""

import base64
import email.utils
import hashlib
import hmac
import http.client
import signal
import time
import urllib.parse

from emulator_process import Emulator, find_command

# The account that every emulator has, and its public key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


def find_azurite():
    """The command that runs Azurite."""
    return find_command("azurite.sh", "Azure Blob Storage")


class Azurite(Emulator):
    def __init__(self, command, folder):
        super().__init__(folder)
        self._command = [*command, "--location", str(folder), "--blobHost", "127.0.0.1", "--silent",
                         "--skipApiVersionCheck", "--disableTelemetry"]

    def start(self):
        self.port = self.launch([*self._command, "--blobPort", str(self.port)],
                                r"successfully listens on http://127\.0\.0\.1:(\d+)")

    def stop(self):
        """A killed one forgets the last few seconds."""
        self._process.send_signal(signal.SIGTERM)
        self.lines.expect("successfully closed", 60)
        self.kill()

    def endpoint(self, port=None):
        return f"http://127.0.0.1:{port or self.port}/{ACCOUNT}"

    def connection_string(self, key=KEY, port=None):
        return (f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};"
                f"BlobEndpoint={self.endpoint(port)};")

    def make_container(self, name, **headers):
        self._request("PUT", f"/{ACCOUNT}/{name}", {"restype": "container"}, headers)

    def put(self, container, name, content):
        path = f"/{ACCOUNT}/{container}/{urllib.parse.quote(name)}"
        self._request("PUT", path, {}, {"x-ms-blob-type": "BlockBlob"}, content)

    def delete(self, container, name):
        self._request("DELETE", f"/{ACCOUNT}/{container}/{urllib.parse.quote(name)}", {}, {})

    def _request(self, method, path, query, headers, body=b""):
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": VERSION, **headers}
        to_sign = [method, "", "", str(len(body) or ""), "", "", "", "", "", "", "", ""]
        to_sign += [f"{name}:{headers[name]}" for name in sorted(headers)]
        to_sign += [f"/{ACCOUNT}{path}"] + [f"{name}:{query[name]}" for name in sorted(query)]
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{sign(chr(10).join(to_sign))}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path + ("?" + urllib.parse.urlencode(query) if query else ""), body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status not in (200, 201, 202):
            raise AssertionError(f"{method} {path}: {answer.status} {answer.reason} {content!r}")


def sign(text, key=KEY):
    return base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()


def account_sas(seconds=3600, permissions="rl", key=KEY):
    """A shared access signature for the blobs of the account that expires in so many seconds."""
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    # account, permissions, services, resource types, start, expiry, addresses, protocol, version, encryption scope
    signature = sign("\n".join([ACCOUNT, permissions, "b", "co", "", expiry, "", "", VERSION, "", ""]), key)
    return urllib.parse.urlencode({"sv": VERSION, "ss": "b", "srt": "co", "sp": permissions, "se": expiry,
                                   "sig": signature})
