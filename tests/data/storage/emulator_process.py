"""Emulators of object stores as processes of the tests: how they are found, started, killed, and cut off in the middle
of an answer. What each of them says and understands is in azurite_emulator.py and cloud_emulators.py.
"""

import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jobs

ROOT = Path(__file__).resolve().parents[3]
# What the user's shell may have set, and must not reach an emulator on this machine.
FOREIGN = re.compile(r"^(AZURE|AZURITE|AWS|DEFAULT_IDENTITY|IDENTITY|MSI|GOOGLE|CLOUD|CLOUDSDK|GCE|MOTO)_"
                     r"|^(ALL|HTTPS?|NO)_PROXY$", re.IGNORECASE)


def clean_environment():
    return {name: value for name, value in os.environ.items() if not FOREIGN.match(name)} | {"NO_PROXY": "*"}


def foreign_unset():
    """The same as what to add to an environment: empty variables count as if they were not there."""
    return {name: "" for name in os.environ if FOREIGN.match(name)} | {"NO_PROXY": "*"}


def find_command(script, store):
    """The command that `script` of scripts/ finds or installs; skips all tests of the program where it cannot be had."""
    found = subprocess.run([ROOT / "scripts" / script, "--where"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           text=True, check=False)
    if found.returncode == jobs.SKIPPED:
        jobs.skip(f"no emulator of {store} can be had here (see above); LIBTRAIN_ALLOW_SKIPS=emulators allows that")
    if found.returncode != 0:
        sys.exit(f"scripts/{script} --where ended with exit code {found.returncode}")
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


class Running:
    """A program that runs while the test goes on, and knows of no cloud but what `environment` says."""

    def __init__(self, test, command, environment):
        variables = {name: value for name, value in clean_environment().items()
                     if not jobs.FOREIGN.match(name)}
        self._process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True,
                                         env=variables | environment)
        test.addCleanup(self._end)
        self.lines = Lines(self._process.stdout)
        self.errors = Lines(self._process.stderr)

    def _end(self):
        """mpirun ends its ranks when it is asked to, and leaves them behind when it is killed."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()

    def kill(self):
        self._process.kill()
        self._process.wait()

    def write_line(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait(self):
        """Waits for its end; returns the exit code."""
        return self._process.wait(120)

    def finish(self):
        """Waits for its end; returns exit code, standard output and standard error."""
        exit_code = self.wait()
        return exit_code, self.lines.rest(10), self.errors.rest(10)


class Emulator:
    """A server whose data stay in `folder`. It keeps its port when it is started again."""

    def __init__(self, folder):
        self.folder = folder
        self.port = 0
        self.lines = None
        self._process = None

    def launch(self, command, pattern, seconds=60):
        """Starts a process; returns the port, which its line that matches names."""
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                         env=clean_environment() | {"PYTHONUNBUFFERED": "1"})
        self.lines = Lines(self._process.stdout)
        return int(self.lines.expect(pattern, seconds)[1])

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def kill(self):
        """As the machine would, had it lost power."""
        if self.is_running():
            self._process.kill()
            self._process.wait()

    def stop(self):
        """Ends it after it has written down what it holds."""
        self.kill()


class Relay:
    """Passes connections on from port `at` to another one of this machine. The first one over which more than
    `cut_after` bytes come back ends after that many, in the middle of an answer."""

    def __init__(self, port, *, cut_after=None, at=0):
        self._to = port
        self._cut_after = cut_after
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", at))
        self._clients = []
        self.cuts = 0
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Ends its connections as well."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for client in self._clients:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            with server:
                threading.Thread(target=self._pump, args=(client, server, lambda count: count), daemon=True).start()
                self._pump(server, client, self._admitted())

    def _admitted(self):
        """How much of so many further bytes may pass."""
        passed = 0

        def admitted(count):
            nonlocal passed
            with self._lock:
                if self._cut_after is not None and self.cuts == 0 and passed + count > self._cut_after:
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


def answer_json(request, status, content):
    """Answers what an http.server.BaseHTTPRequestHandler was asked."""
    body = json.dumps(content).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class ServerTest(unittest.TestCase):
    """The tests of a class share an emulator with a container "data", which fill() fills."""

    @classmethod
    def new_server(cls, folder):
        """The emulator, not yet started, whose data stay in `folder`."""
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        cls.server = cls.new_server(jobs.temporary_directory(cls))
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()
        cls.server.make_container("data")
        cls.fill()

    @classmethod
    def fill(cls):
        """Makes what the tests of the class read."""

    @classmethod
    def put_folder(cls, folder, prefix="", container="data"):
        """Copies the files below a local folder to the server."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            cls.server.put(container, prefix + path.relative_to(folder).as_posix(), path.read_bytes())
