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
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The account that every emulator has, and its public key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"
UNAVAILABLE = 77
# What the user's shell may have set, and must not reach an emulator on this machine.
FOREIGN = re.compile(r"^(AZURE|AZURITE|AWS|DEFAULT_IDENTITY)_|^(ALL|HTTPS?|NO)_PROXY$", re.IGNORECASE)


def clean_environment():
    return {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | {"NO_PROXY": "*"}


def find_azurite():
    """The command that runs Azurite; ends the program with UNAVAILABLE, and says so, where it cannot be had."""
    script = ROOT / "scripts/azurite.sh"
    found = subprocess.run([script, "--where"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                           check=False)
    if found.returncode == UNAVAILABLE:
        print("NOT RUN: nothing was tested of Azure Blob Storage, since Azurite cannot be had here (see above).",
              file=sys.stderr)
        sys.exit(UNAVAILABLE)
    if found.returncode != 0:
        sys.exit(f"{script} --where ended with exit code {found.returncode}")
    return found.stdout.splitlines()


class Lines:
    """The lines that a process writes, waited for with a deadline."""

    def __init__(self, stream):
        self.seen = []
        self._queue = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream):
        for line in stream:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)
        stream.close()

    def next(self, seconds):
        """The next line, or None at the end."""
        try:
            line = self._queue.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no line within {seconds:.0f} s after {self.seen}") from None
        if line is None:
            self._queue.put(None)
        else:
            self.seen.append(line)
        return line

    def expect(self, pattern, seconds):
        """Waits for a line that matches; returns the match."""
        deadline = time.monotonic() + seconds
        while (line := self.next(max(deadline - time.monotonic(), 0.001))) is not None:
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"no line matches {pattern!r} in {self.seen}")

    def rest(self, seconds):
        """All lines to the end, and those before."""
        while self.next(seconds) is not None:
            pass
        return "\n".join(self.seen)


class Azurite:
    """A server whose data stay in `folder`. It keeps its port when it is started again."""

    def __init__(self, command, folder):
        self._command = [*command, "--location", str(folder), "--blobHost", "127.0.0.1", "--silent",
                         "--skipApiVersionCheck", "--disableTelemetry"]
        self._folder = folder
        self._process = None
        self.port = 0

    def start(self):
        self._process = subprocess.Popen([*self._command, "--blobPort", str(self.port)], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         cwd=self._folder, env=clean_environment())
        self._lines = Lines(self._process.stdout)
        self.port = int(self._lines.expect(r"successfully listens on http://127\.0\.0\.1:(\d+)", 60)[1])

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def kill(self):
        """As the machine would, had it lost power."""
        if self.is_running():
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def stop(self):
        """Ends it after it has written down what it holds; a killed one forgets the last few seconds."""
        self._process.send_signal(signal.SIGTERM)
        self._lines.expect("successfully closed", 60)
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


class Relay:
    """Passes connections on to a port of this machine. The first one over which more than `cut_after` bytes come back
    ends after that many, in the middle of an answer."""

    def __init__(self, port, cut_after):
        self._to = port
        self._cut_after = cut_after
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.cuts = 0
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            threading.Thread(target=self._pump, args=(client, server, lambda count: count), daemon=True).start()
            self._pump(server, client, self._admitted())

    def _admitted(self):
        """How much of so many further bytes may pass."""
        passed = 0

        def admitted(count):
            nonlocal passed
            with self._lock:
                if self.cuts == 0 and passed + count > self._cut_after:
                    self.cuts += 1
                    return self._cut_after - passed
            passed += count
            return count

        return admitted

    @staticmethod
    def _pump(source, sink, admitted):
        try:
            while data := source.recv(1 << 16):
                count = admitted(len(data))
                sink.sendall(data[:count])
                if count < len(data):
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
