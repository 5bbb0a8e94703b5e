"""What the scripts that compare libtrain with other libraries have in common."""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM_TIMEOUT_S = 1800
GRACE_S = 10
LINES_OF_A_FAILURE = 15


class ProgramFailed(Exception):
    pass


def require_program(options):
    """Ends the script unless the libtrain program is where the option says."""
    if not os.access(options.program, os.X_OK):
        sys.exit(f"There is no program {options.program}; build it, or name it with --program.")


def require_programs(options, name):
    """Ends the script unless the libtrain program and mpirun are where the options say."""
    for path, what in ((options.program, name), (options.mpirun, "mpirun")):
        if not os.access(path, os.X_OK):
            sys.exit(f"There is no {what} at {path}; build it, or name it with an option (see --help).")


def fastest_precision():
    """As libtrain::fastest_precision() decides which processors may compute in bfloat16."""
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return "bf16" if {"amx_bf16", "avx512_bf16"} & set(flags) else "float32"


def in_turns(commands, rounds):
    """The names of commands, all of them in each round, in the opposite order in every other one."""
    for number in range(1, rounds + 1):
        for name in commands if number % 2 == 1 else reversed(commands):
            print(f"round {number}/{rounds}: {name}", file=sys.stderr)
            yield name


def launch(options):
    """mpirun with its options, to be followed by a program."""
    # Free placement for all programs: the peers' processes are not bound to cores either.
    command = [options.mpirun, "--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE", "-n", str(options.ranks)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    return command


def torchrun(options):
    """torchrun with its options, to be followed by a script."""
    command = [options.python, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [*command, "--nproc-per-node", options.ranks]


def variables(options):
    """Environment variables of a compared program, besides the caller's. Python keeps compiled modules, as it does for
    most users, even if its packages were installed without: that halves the time in which it loads torch."""
    return {
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode"),
    }


def end(process):
    """Ends a program that still runs. SIGTERM comes first: mpirun takes its ranks along only when it is asked to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def run(command, options):
    """Runs a program to its end and returns what it printed. One that fails or hangs is ended with all its ranks."""
    command = [str(word) for word in command]
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables(options)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PROGRAM_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{' '.join(command)} had not ended after {PROGRAM_TIMEOUT_S} s.") from None
    finally:
        end(process)
    if process.returncode != 0:
        tail = "\n".join(output.splitlines()[-LINES_OF_A_FAILURE:])
        raise ProgramFailed(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    return output


def read_records(file):
    """The records of a file of metrics; none if there is no file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def first_step_times(records, samples):
    """When the first step of so many samples began and ended, by its record in metrics.jsonl; nothing if that has not
    one for it alone."""
    first = next((record for record in records if record["event"] == "step"), {})
    if first.get("step") != 1:
        return {}
    return {"first_step_began": first["time"] - samples / first["samples_per_s"], "first_step_ended": first["time"]}


def make_photographs(options, folder, images, seed=0):
    """Calls make_photographs.py, with the Python that has its packages."""
    script = ROOT / "bench" / "make_photographs.py"
    command = [str(word) for word in (options.python, script, folder, f"--images={images}", f"--seed={seed}")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ProgramFailed(f"{script.name} ended with {done.returncode}:\n{done.stderr}")


def range_of(values, decimals=3):
    return f"{statistics.median(values):.{decimals}f} ({min(values):.{decimals}f}-{max(values):.{decimals}f})"
