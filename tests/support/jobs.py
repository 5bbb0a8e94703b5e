"""Runs programs under mpirun for the tests: one call, one Job, nothing left over.

The build's bin directory and mpirun come from LIBTRAIN_BIN, LIBTRAIN_MPIRUN and LIBTRAIN_MPIRUN_OPTIONS; without them a
release build and the project's own mpirun are taken.
"""

import faulthandler
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".deps/bin/python"  # of the environment, which has the pinned packages
SKIPPED = 77  # the exit code, for ctest
# The options let ranks share cores; other MPIs name them differently.
MPIRUN = [os.environ.get("LIBTRAIN_MPIRUN", f"{ROOT}/.deps/bin/mpirun"), *os.environ.get(
    "LIBTRAIN_MPIRUN_OPTIONS", "--allow-run-as-root --bind-to none --map-by :OVERSUBSCRIBE").split()]
MARK = "LIBTRAIN_TEST_JOB"
# Of all that a test program starts: no launcher's, so that none of the tests takes it out.
PROGRAM_MARK = "TEST_OF_LIBTRAIN"
# What a launcher around the tests, or the user's shell, may have set.
FOREIGN = re.compile(r"^(OMPI|PMI|PMIX|PRTE|SLURM|AZ|AZUREML|FLUX|HOROVOD|MV2|PALS|LIBTRAIN|TORCHELASTIC)_"
                     r"|^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|MASTER_ADDR|MASTER_PORT)$")


def program(name):
    return str(Path(os.environ.get("LIBTRAIN_BIN", ROOT / "build/release/bin")) / name)


def mpirun(ranks):
    return [*MPIRUN, "-n", str(ranks)]


@dataclass(frozen=True)
class Job:
    exit_code: int
    stdout: str
    stderr: str
    began: float
    ended: float  # when its last process was gone
    timed_out: bool
    left_over: tuple  # command lines that were still running after mpirun, killed by now

    def reports(self):
        """The error lines that libtrain wrote, on any rank."""
        return [line for line in self.stderr.splitlines() if re.match(r"libtrain(\[rank \d+\])?: error: ", line)]

    def __str__(self):
        return (f"exit code {self.exit_code} after {self.ended - self.began:.1f} s{', timed out' * self.timed_out}"
                f"\n--- standard output\n{self.stdout}\n--- standard error\n{self.stderr}")


def run(command, *, ranks=None, time_limit=60, environment=None, directory=ROOT, meanwhile=None):
    """Runs `command`, under mpirun where `ranks` is given, and kills every process of it after `time_limit` seconds.
    `meanwhile(process)` is called when it has started: its assertions end the job, too."""
    mark = uuid.uuid4().hex
    variables = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    words = (mpirun(ranks) if ranks else []) + [str(word) for word in command]
    # Files, not pipes: a process that is left over would keep a pipe open. An mpirun that is killed leaves its folder
    # behind, in the way of a later one that gets the same process identifier.
    with (tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr,
          tempfile.TemporaryDirectory(prefix="mpi", ignore_cleanup_errors=True) as sessions):
        variables |= {MARK: mark, "PRTE_MCA_prte_tmpdir_base": sessions} | (environment or {})
        began = time.time()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=variables,
                                   cwd=directory, start_new_session=True)
        try:
            if meanwhile:
                meanwhile(process)
            process.wait(max(0, began + time_limit - time.time()))
            timed_out = False
        except subprocess.TimeoutExpired:
            timed_out = True
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- standard error\n{_text_of(stderr)}") from error
        finally:
            left_over = _end_processes(mark, policy=0 if process.poll() is None else 2)
            process.wait()
        ended = time.time()
        return Job(process.returncode, _text_of(stdout), _text_of(stderr), began, ended, timed_out, left_over)


def _text_of(file):
    file.seek(0)
    # Open MPI ends some of its own messages with a zero byte, in front of whatever comes next.
    return file.read().decode(errors="replace").replace("\0", "")


def processes_of_this_program():
    """Identifiers of what this test program has started, directly or not, and is running."""
    return set(_processes(os.environ[PROGRAM_MARK], PROGRAM_MARK))


def _processes(mark, name=MARK):
    """Identifiers and command lines of the running processes that inherited `mark` as the variable `name`."""
    found = {}
    needle = f"{name}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if needle in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace")
        except OSError:
            continue  # it has just ended, or belongs to somebody else
    return found


def _end_processes(mark, policy):
    """Waits `policy` seconds for the processes to end, then kills the rest; returns the command lines of those."""
    deadline = time.monotonic() + policy
    while (running := _processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    _kill(mark)
    return tuple(running.values())


def _kill(mark, name=MARK):
    while running := _processes(mark, name):
        for identifier in running:
            try:
                os.kill(identifier, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def _leave_nothing_behind():
    """Forks a process that waits for the end of this test program, also where ctest kills it, and then kills whatever
    it has started: ranks as well, which mpirun leaves behind when it is killed."""
    mark = os.environ[PROGRAM_MARK] = uuid.uuid4().hex
    ours, _ = ends = os.pipe()
    if os.fork() != 0:
        os.close(ours)
        return  # the other end stays open as long as this process lives
    try:
        os.setsid()  # ctrl-c is for the test
        os.closerange(0, ours)  # ctest waits until its pipes are closed
        os.close(ends[1])
        os.read(ours, 1)
        _kill(mark, PROGRAM_MARK)
    finally:
        os._exit(0)


_leave_nothing_behind()
faulthandler.register(signal.SIGUSR1, all_threads=True)  # ctest sends it at the test's time limit


def wait_until(condition, seconds=30):
    """Looks until `condition()` holds, and returns what it returned. An AssertionError ends the wait."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition.__doc__ or condition}")
        time.sleep(0.01)
    return result


def require_refusal(test, job, exit_code, *words):
    """That `job` ended with `exit_code`, one line of libtrain's on the screen with all `words`, and no process."""
    test.assertEqual(job.exit_code, exit_code, job)
    test.assertEqual(len(job.reports()), 1, job)
    for word in words:
        test.assertIn(str(word), job.reports()[0])
    test.assertEqual(job.left_over, (), job)


def temporary_directory(test):
    """A folder that is removed when the unittest.TestCase `test` ends; for a class of them, after its last test."""
    folder = Path(tempfile.mkdtemp(prefix="libtrain-"))
    add_cleanup = test.addClassCleanup if isinstance(test, type) else test.addCleanup
    add_cleanup(shutil.rmtree, folder, ignore_errors=True)
    return folder


def require_programs(*names):
    """Ends the test program with an explanation where a program is not built: a test that cannot run must fail."""
    missing = [program(name) for name in names if not os.access(program(name), os.X_OK)]
    if missing:
        sys.exit(f"not built: {', '.join(missing)} (set LIBTRAIN_BIN to the bin folder of a build)")


def skip(reason):
    """Ends the test program as one that was not run; scripts/test.sh fails unless tests/skips.txt allows that."""
    print(f"not run: {reason}", flush=True)
    sys.exit(SKIPPED)


def require_packages(*names):
    """Goes on with the environment's Python where this one lacks a package. There a missing one is an error."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if not PYTHON.exists():
        skip(f"this environment has no Python with {', '.join(missing)}")
    if Path(sys.prefix).resolve() == PYTHON.parents[1].resolve():
        sys.exit(f"{PYTHON} has no {', '.join(missing)}: run scripts/setup.sh --repair")
    # The guard of this program takes its end for the test's.
    variables = {name: value for name, value in os.environ.items() if name != PROGRAM_MARK}
    os.execve(PYTHON, [str(PYTHON), *sys.argv], variables | {"PYTHONUTF8": "1"})
