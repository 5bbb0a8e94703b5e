"""Processes of checkpoint_program, and the disk that fails them."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs


def environment(root=None, at=0, action="", log=""):
    """With a disk that fails below `root`, if it is given."""
    if root is None:
        return dict(os.environ)
    # The disk is in front of a sanitizer, and a killed process leaks.
    asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:detect_leaks=0"
    return os.environ | {"LD_PRELOAD": jobs.program("libfaulty_disk.so"), "FAULTY_DISK_ROOT": str(root),
                         "FAULTY_DISK_AT": str(at), "FAULTY_DISK_ACTION": action, "FAULTY_DISK_LOG": str(log),
                         "ASAN_OPTIONS": asan}


def run(commands, **disk):
    """The answers to the commands, and the exit code."""
    done = subprocess.run([jobs.program("checkpoint_program")], input="\n".join(commands) + "\n", text=True,
                          capture_output=True, env=environment(**disk), timeout=60)
    return done.stdout.splitlines(), done.stderr.splitlines(), done.returncode


class Process:
    """One that waits for the next command."""

    def __init__(self):
        self.process = subprocess.Popen([jobs.program("checkpoint_program")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def tell(self, command):
        """The answer, without "ok"."""
        answer = self.ask(command)
        if not answer.startswith("ok"):
            raise AssertionError(f"{command}: {answer}")
        return answer[3:]

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


def show(root):
    """The steps of the undamaged checkpoints, the newest that is found, and how many are damaged."""
    (answer,), warnings, code = run([f"show {root}"])
    if (code, warnings) != (0, []):
        raise AssertionError(f"{code} {warnings}")
    *steps, _, newest, _, damaged = answer.removeprefix("ok ").split()
    return [int(step) for step in steps], int(newest), int(damaged)


def verified_steps(root):
    """The steps of all checkpoints, of any program, which must be undamaged."""
    (answer,), warnings, code = run([f"verify {root}"])
    if not answer.startswith("ok ") or (code, warnings) != (0, []):
        raise AssertionError(f"{answer} {code} {warnings}")
    return [int(step) for step in answer.split()[1:]]
