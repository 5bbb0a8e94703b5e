#!/usr/bin/env python3
"""Runs the parts of scripts/gpu_check.sh, whose head describes them.

usage: gpu_check.py FOLDER [--output FOLDER] [part]...    (the first FOLDER is the one that "pack" made)
"""

import array
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
FAILURE, USAGE, ENVIRONMENT = 1, 2, 3  # exit codes

# Processes that share the tests out, or pairs of them: most of the time a test waits for one stream of the GPU.
SHARDS = 10
PAIRS = 6

# Tests that do not run, and why.
EXCLUDED = {"HostOnly*": "on the CPU alone", "*_float64_*": "the same in float32 is enough for minutes on a GPU"}
# Tests that do not use the ranks that on_ranks_gpu.cpp provides, and gain nothing from a second process.
WITHOUT_RANKS = ("*OnGpu.*", "NcclCheck.*", "NcclConnect.*", "Device*", "*DataLoaderGpu*")
# Few enough for compute-sanitizer, which slows kernels down ten to a hundred times.
SANITIZED = ("DeviceGradients.*", "NcclOnGpu.OneRankGetsItsOwnValuesFromEveryExchange", "StagedOnGpu.*", "NmsOnGpu.*",
             "RoiAlignOnGpu.*", "MaskTargetsOnGpu.*", "BatchNormOnGpu.*")

# NCCL refuses two ranks of one host on one GPU, so that each rank gets a host of its own (NCCL_HOSTID). The others keep
# it to sockets, without multicast over NVLink, which needs a GPU per rank, and to few thread blocks, as the kernels of
# both ranks must run at the same time.
NCCL_ON_ONE_GPU = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
}
SECONDS_TO_NOTICE = 10  # that a peer was killed
GRADIENT_BOUND = 1e-5

PARITY_STEPS = 20  # as in ddp_parity_program.cpp
PLAIN = {"optimizer": "sgd", "micro_steps": 1, "unused": "refused", "wire": "float32"}
PARITY_CASES = {
    "sgd": PLAIN,
    "no_sync": PLAIN | {"micro_steps": 3},
    "find_unused": PLAIN | {"unused": "allowed"},
}

SPEED_ROUNDS, SPEED_TIMES = 2, 8  # together 16 times of each program, which take turns


@dataclass(frozen=True)
class Workload:
    what: str
    words: tuple  # for bench_train_step and its peer
    goal: float  # samples per second, as a multiple of PyTorch's


RESNET50 = Workload("ResNet-50 bf16 channels_last, fused SGD",
                    ("--workload", "resnet50", "--batch", "128", "--image-size", "224", "--precision", "bf16",
                     "--channels-last", "yes", "--sgd", "fused"), 1.1)
ROBERTA = Workload("RoBERTa base bf16, 32 texts of 128 tokens, fused SGD",
                   ("--workload", "roberta_base", "--batch", "32", "--precision", "bf16", "--sgd", "fused"), 1.0)

MASK_RCNN_ROUNDS, MASK_RCNN_TIMES = 2, 8
MASK_RCNN_GOALS = {"nms_2000": 1.0, "nms_20000": 2.0, "roi_align": 1.5, "step": 1.2, "inference": 1.2}

# Functions of CUDA's runtime in which the host waits for the GPU.
SYNCHRONIZING = {"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D",
                 "cudaFree", "cudaFreeHost"}


class Unavailable(Exception):
    """A part cannot run here; the message says why."""


@dataclass(frozen=True)
class Row:
    part: str
    what: str
    result: str
    seconds: float
    found: str
    goal: str


@dataclass(frozen=True)
class Run:
    """A process that has ended, or that was killed at its time limit."""

    exit_code: int
    output: str
    timed_out: bool
    seconds: float

    @property
    def succeeded(self):
        return self.exit_code == 0 and not self.timed_out

    def problem(self):
        """One line on how it failed."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        last = next((line for line in lines if "error: " in line), lines[-1] if lines else "no output")
        how = "time limit" if self.timed_out else f"exit code {self.exit_code}"
        return f"{how}: {last.strip()[:160]}"


def find_torch_root():
    """The folder `torch` of the LibTorch to use; None if there is none."""
    if root := os.environ.get("LIBTRAIN_TORCH_ROOT"):
        return Path(root)
    spec = importlib.util.find_spec("torch")
    return Path(spec.submodule_search_locations[0]) if spec else None


def why_no_gpu():
    """What CUDA's driver says, as the end of a sentence; None if it shows this process a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "CUDA's driver, libcuda.so.1, is not installed"
    if (code := driver.cuInit(0)) != 0:
        return f"CUDA's driver reports error {code}"
    count = ctypes.c_int(0)
    if (code := driver.cuDeviceGetCount(ctypes.byref(count))) != 0:
        return f"CUDA's driver reports error {code}"
    return None if count.value > 0 else "CUDA's driver shows this process no GPU"


class Check:
    """What the parts share: the folder of "pack", the output folder, and the deadline of the part that runs."""

    def __init__(self, folder, output, torch_root):
        self.folder, self.output = folder, output
        libraries = [folder / "lib", torch_root / "lib", *sorted(torch_root.parent.glob("nvidia/*/lib"))]
        # NVIDIA's libraries are beside torch in an environment, and in torch/lib in a zip.
        self.library_path = ":".join(str(path) for path in libraries if path.is_dir())
        self.deadline = time.monotonic()

    def program(self, name, *words):
        return [self.folder / "bin" / name, *words]

    def peer(self, path, *words):
        return [sys.executable, self.folder / path, *words]

    def run(self, commands, environments=None, log="log", time_limit=None):
        """Runs commands at the same time and returns their Runs, in order. What takes longer than the rest of the
        part's time, or `time_limit` seconds, is killed. The output folder gets their output, `log`-<number>.txt."""
        end = self.deadline if time_limit is None else min(self.deadline, time.monotonic() + time_limit)
        started = []
        try:
            for index, command in enumerate(commands):
                environment = environments[index] if environments else {}
                started.append(self._start(command, environment, f"{log}-{index}.txt"))
            ends = [None] * len(started)
            while None in ends and time.monotonic() < end:
                for index, (process, _, began) in enumerate(started):
                    if ends[index] is None and process.poll() is not None:
                        ends[index] = time.monotonic() - began
                time.sleep(0.02)
        finally:
            for process, _, _ in started:
                _kill(process)
        return [Run(process.returncode, path.read_text(errors="replace"), seconds is None,
                    time.monotonic() - began if seconds is None else seconds)
                for seconds, (process, path, began) in zip(ends, started)]

    def _start(self, command, environment, log):
        variables = dict(os.environ) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # without it, cuBLAS is not deterministic
        if Path(command[0]).parent == self.folder / "bin":
            variables["LD_LIBRARY_PATH"] = self.library_path
        path = self.output / log
        with path.open("w") as file:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, env=variables | environment, start_new_session=True)
        return process, path, time.monotonic()

    def run_ranks(self, command, log, environment=None, time_limit=None):
        """The command as two ranks that share the GPU; `command` takes no --dist-url."""
        return self.run([command] * 2, [rank | (environment or {}) for rank in rank_environments()], log, time_limit)

    def meeting(self, name):
        """The URL of a file through which ranks find each other, which does not exist yet."""
        folder = self.output / "meeting"
        folder.mkdir(exist_ok=True)
        for old in folder.glob(f"{name}*"):
            old.unlink()
        return f"file://{folder.resolve()}/{name}"


def _kill(process):
    """The process and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def rank_environments():
    return [NCCL_ON_ONE_GPU | {"RANK": str(rank), "WORLD_SIZE": "2", "NCCL_HOSTID": f"r{rank}"} for rank in range(2)]


# --- parts: each yields (what, result, what was found, goal)


@dataclass(frozen=True)
class TestCounts:
    passed: int
    problems: tuple  # failed tests, and those that did not end


def count_tests(run):
    """What a program of GoogleTest has done, also if it did not reach its end."""
    passed = len(re.findall(r"^\[       OK \] ", run.output, re.MULTILINE))
    problems = [f"{name} {how}" for how, name in
                re.findall(r"^\[  (FAILED|SKIPPED) +\] ([^\s,]+).* \(\d+ ms\)$", run.output, re.MULTILINE)]
    if not run.succeeded and not problems:
        begun = re.findall(r"^\[ RUN      \] (\S+)", run.output, re.MULTILINE)
        ended = re.findall(r"^\[ .{8} \] (\S+?),? .*\(\d+ ms\)$", run.output, re.MULTILINE)
        running = f" in {begun[-1]}" if begun and begun[-1] not in ended else ""
        problems.append(f"{run.problem()}{running}")
    return TestCounts(passed, tuple(problems))


def judge_tests(runs):
    counts = [count_tests(run) for run in runs]
    passed = sum(each.passed for each in counts)
    problems = [problem for each in counts for problem in each.problems]
    found = f"{passed} passed" + "".join(f"; {problem}" for problem in problems[:5])
    if len(problems) > 5:
        found += f"; and {len(problems) - 5} more"
    return (PASSED if passed > 0 and not problems else FAILED), found


def shard(index, count):
    return {"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(index), "OMP_NUM_THREADS": "1"}


def test_command(check, *excluded):
    return check.program("gpu_tests", "--gtest_color=no", "--gtest_filter=-" + ":".join([*EXCLUDED, *excluded]))


def run_tests(check):
    runs = check.run([test_command(check)] * SHARDS, [shard(index, SHARDS) for index in range(SHARDS)], "tests")
    yield "tests on the GPU, ranks as threads", *judge_tests(runs), "all pass"


def run_sanitizer(check):
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        raise Unavailable("compute-sanitizer is not installed")
    # NCCL asks which of its kernels a device has, and ignores the errors for those that it does not have.
    (run,) = check.run([[tool, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9",
                         *check.program("gpu_tests", "--gtest_color=no", "--gtest_filter=" + ":".join(SANITIZED))]],
                       [{"LD_LIBRARY_PATH": check.library_path, "OMP_NUM_THREADS": "1"}], "sanitizer")
    if "Device not supported" in run.output:
        raise Unavailable("compute-sanitizer does not support this GPU or its virtual machine")
    summary = re.search(r"ERROR SUMMARY: (\d+) error", run.output)
    result, found = judge_tests([run])
    errors = int(summary[1]) if summary else None
    if errors != 0:
        result = FAILED
    told = "no summary" if errors is None else f"{errors} errors"
    yield "memcheck of some tests", result, f"{told}, {found}", "0 errors"


def run_nccl(check):
    commands, environments = [], []
    for index in range(PAIRS):
        url = check.meeting(f"nccl{index}")
        for rank in rank_environments():
            commands.append(test_command(check, *WITHOUT_RANKS))
            environments.append(rank | shard(index, PAIRS) | {"LIBTRAIN_TEST_DIST_URL": url,
                                                              "LIBTRAIN_JOB_ID": f"gpu_check {index}"})
    # The killed rank comes afterwards and needs up to half a minute.
    runs = check.run(commands, environments, "nccl", time_limit=0.8 * (check.deadline - time.monotonic()))
    # Both ranks run the same tests: those of rank 0 are counted, the problems of both are listed.
    counts = [count_tests(run) for run in runs[1::2]]
    result, found = judge_tests(runs[0::2])
    others = [problem for each in counts for problem in each.problems]
    if others:
        result, found = FAILED, found + "; rank 1: " + "; ".join(others[:5])
    yield "tests over NCCL, 2 processes", result, found, "all pass"

    note = check.output / "killed"
    note.unlink(missing_ok=True)
    command = check.program("fault_program", "--device", "cuda", "--dist-backend", "nccl", "--dist-url",
                            check.meeting("killed"), "--fault", "kill", "--at-rank", "1", "--note", note,
                            "--output", check.output / "fault", "--quiet")
    survivor, killed = check.run_ranks(command, "killed")
    if killed.exit_code != -signal.SIGKILL or killed.timed_out:
        yield "a killed rank ends the other", FAILED, f"it was not killed: {killed.problem()}", ""
        return
    seconds = survivor.seconds - killed.seconds
    ended = not survivor.timed_out and survivor.exit_code not in (0, -signal.SIGKILL) and seconds <= SECONDS_TO_NOTICE
    yield ("a killed rank ends the other", PASSED if ended else FAILED,
           f"after {seconds:.1f} s, {survivor.problem()}", f"within {SECONDS_TO_NOTICE} s")


def read_steps(path):
    """One list of float32 numbers a step."""
    numbers = array.array("f", path.read_bytes())
    count = len(numbers) // PARITY_STEPS
    return [numbers[step * count:(step + 1) * count] for step in range(PARITY_STEPS)]


def deviation(ours, theirs):
    """The largest difference of a step, relative to the step's largest magnitude."""
    steps = list(zip(read_steps(ours), read_steps(theirs), strict=True))
    if not steps[0][0] or len(steps[0][0]) != len(steps[0][1]):
        raise ValueError(f"{ours.name} has {len(steps[0][0])} numbers a step, {theirs.name} {len(steps[0][1])}")
    return max(max(abs(a - b) for a, b in zip(mine, wanted)) / max(map(abs, wanted)) for mine, wanted in steps)


def run_parity(check):
    folder = check.output / "parity"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (peer,) = check.run([check.peer("tests/sync/ddp_parity_peer.py", folder, json.dumps(PARITY_CASES), "cuda")],
                        [NCCL_ON_ONE_GPU], "parity-peer")
    if not peer.succeeded:
        yield "gradients beside DDP over NCCL", FAILED, f"PyTorch: {peer.problem()}", f"{GRADIENT_BOUND:.0e}"
        return
    for name, case in PARITY_CASES.items():
        gradients = folder / f"{name}.libtrain_gradients"
        command = check.program("ddp_parity_program", "--device", "cuda", "--dist-backend", "nccl", "--dist-url",
                                check.meeting(f"parity-{name}"), "--data", folder, "--optimizer", case["optimizer"],
                                "--micro-steps", case["micro_steps"], "--unused", case["unused"],
                                "--wire", case["wire"],
                                "--trajectory", folder / f"{name}.libtrain", "--gradients", gradients,
                                "--output", folder / "output", "--quiet")
        failed = [run for run in check.run_ranks(command, f"parity-{name}") if not run.succeeded]
        what, goal = f"gradients beside DDP over NCCL: {name}", f"at most {GRADIENT_BOUND:.0e}"
        if failed:
            yield what, FAILED, failed[0].problem(), goal
            continue
        found = deviation(gradients, folder / f"{name}.ddp_gradients")
        yield what, (PASSED if found <= GRADIENT_BOUND else FAILED), f"{found:.1e} apart", goal


def records(path, **fields):
    """The records of bench_train_step or its peer that have these fields."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [each for each in map(json.loads, lines) if fields.items() <= each.items()]


def run_speed(check, name, workload):
    goal, what = f"at least {workload.goal}", f"{workload.what}: samples/s beside PyTorch"
    words = [*workload.words, "--iterations", SPEED_TIMES]
    files = {program: check.output / f"{name}-{program}.jsonl" for program in ("libtrain", "pytorch")}
    for path in files.values():
        path.unlink(missing_ok=True)
    commands = {"libtrain": check.program("bench_train_step", "--device", "cuda", *words, "--json", files["libtrain"],
                                          "--output", check.output / name, "--quiet"),
                "pytorch": check.peer("bench/peers/gpu_train_step.py", "--device", "cuda", *words, "--json",
                                      files["pytorch"])}
    for number in range(SPEED_ROUNDS):
        for program in list(commands)[::1 if number % 2 == 0 else -1]:
            (run,) = check.run([commands[program]], log=f"{name}-{program}-{number}")
            if not run.succeeded:
                yield what, FAILED, f"{program}: {run.problem()}", goal
                return
    for synchronized in (True, False):
        rates = [[each["samples_per_s"] for each in records(path, synchronized=synchronized)]
                 for path in files.values()]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(*rates, strict=True))
        kind = "synchronized beside DDP" if synchronized else "one model alone"
        yield (f"{what}, {kind}", PASSED if ratio >= workload.goal else FAILED,
               f"{ratio:.3f} ({statistics.median(rates[0]):.0f} and {statistics.median(rates[1]):.0f} samples/s, "
               f"{SPEED_ROUNDS} rounds of {SPEED_TIMES})", goal)


def run_mask_rcnn(check):
    folder = check.output / "mask_rcnn"
    peer = check.peer("bench/peers/mask_rcnn.py")
    (made,) = check.run([[*peer, "--make", folder, "--images", 4, "--side", 800]], log="mask_rcnn-make")
    if not made.succeeded:
        yield "Mask R-CNN beside torchvision", FAILED, f"torchvision: {made.problem()}", ""
        return
    words = ["--device", "cuda", "--precision", "bf16", "--channels-last", "--data", folder, "--iterations",
             MASK_RCNN_TIMES, "--workload", *MASK_RCNN_GOALS]
    files = {name: check.output / f"mask_rcnn-{name}.jsonl" for name in ("libtrain", "torchvision")}
    for path in files.values():
        path.unlink(missing_ok=True)
    commands = {"libtrain": check.program("bench_mask_rcnn", "--json", files["libtrain"], *words),
                "torchvision": [*peer, "--json", files["torchvision"], *words]}
    for number in range(MASK_RCNN_ROUNDS):
        for name in list(commands)[::1 if number % 2 == 0 else -1]:
            (run,) = check.run([commands[name]], log=f"mask_rcnn-{name}-{number}")
            if not run.succeeded:
                yield "Mask R-CNN beside torchvision", FAILED, f"{name}: {run.problem()}", ""
                return
    for workload, goal in MASK_RCNN_GOALS.items():
        times = [[each["median_s"] for each in records(path, workload=workload)] for path in files.values()]
        ratio = statistics.median(theirs / ours for ours, theirs in zip(*times, strict=True))
        yield (f"Mask R-CNN beside torchvision, {workload}", PASSED if ratio >= goal else FAILED,
               f"{ratio:.2f} times as fast ({1e3 * statistics.median(times[0]):.2f} and "
               f"{1e3 * statistics.median(times[1]):.2f} ms, {MASK_RCNN_ROUNDS} rounds of {MASK_RCNN_TIMES})",
               f"at least {goal}")


def synchronizations_a_step(trace):
    """From a Chrome trace of LibTorch's profiler: calls of the CUDA runtime that wait, and its other calls, during the
    spans "train_step", a step."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
    spans = sorted({(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == "train_step"
                    and event.get("cat") != "gpu_user_annotation"})
    calls = [event for event in events if event.get("cat") == "cuda_runtime"
             and any(begin <= event["ts"] < end for begin, end in spans)]
    if not spans or not calls:
        raise ValueError(f"{trace.name} has {len(spans)} steps and {len(calls)} calls of the CUDA runtime")
    waiting = sum(event["name"] in SYNCHRONIZING for event in calls)
    return waiting / len(spans), (len(calls) - waiting) / len(spans)


def run_synchronizations(check):
    words = ["--device", "cuda", "--workload", "resnet18", "--precision", "bf16", "--channels-last", "yes", "--sgd",
             "fused", "--iterations", "1", "--steps-at-once", "1", "--profile"]
    traces = {name: check.output / f"synchronizations-{name}.json" for name in ("libtrain", "pytorch")}
    for trace in traces.values():
        trace.unlink(missing_ok=True)
    ours = check.program("bench_train_step", *words, traces["libtrain"], "--dist-backend", "nccl", "--dist-url",
                         check.meeting("synchronizations"), "--output", check.output / "synchronizations", "--quiet")
    theirs = check.peer("bench/peers/gpu_train_step.py", *words, traces["pytorch"], "--ranks", "2")
    for name, runs in (("libtrain", check.run_ranks(ours, "synchronizations-libtrain")),
                       ("pytorch", check.run([theirs], [NCCL_ON_ONE_GPU], "synchronizations-pytorch"))):
        what, goal = f"waits of the host in a step, 2 processes: {name}", "0" if name == "libtrain" else ""
        failed = [run for run in runs if not run.succeeded]
        if failed:
            yield what, FAILED, failed[0].problem(), goal
            continue
        waits, others = synchronizations_a_step(traces[name])
        result = PASSED if name != "libtrain" or waits == 0 else FAILED
        yield what, result, f"{waits:g}, beside {others:.0f} other calls of the CUDA runtime", goal


# The time limits, in seconds, add up to less than 9 minutes.
PARTS = {
    "tests": (run_tests, 110),
    "sanitizer": (run_sanitizer, 35),
    "nccl": (run_nccl, 90),
    "parity": (run_parity, 27),
    "resnet": (lambda check: run_speed(check, "resnet", RESNET50), 65),
    "roberta": (lambda check: run_speed(check, "roberta", ROBERTA), 65),
    "synchronizations": (run_synchronizations, 40),
    "mask_rcnn": (run_mask_rcnn, 105),
}


def run_part(check, name):
    run, limit = PARTS[name]
    check.deadline = time.monotonic() + limit
    began, rows = time.monotonic(), []

    def add(what, result, found, goal):
        nonlocal began
        rows.append(Row(name, what, result, round(time.monotonic() - began, 1), found, goal))
        began = time.monotonic()

    try:
        for what, result, found, goal in run(check):
            add(what, result, found, goal)
    except Unavailable as reason:
        add(name, NOT_RUN, str(reason), "")
    except (OSError, ValueError, KeyError) as error:  # output that is not as expected is this part's failure alone
        add(name, FAILED, f"{type(error).__name__}: {error}", "")
    return rows


def table(rows):
    titles = ("part", "what", "result", "seconds", "found", "goal")
    lines = [titles, *((row.part, row.what, row.result, f"{row.seconds:.1f}", row.found, row.goal) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main(words):
    folder, parts, output = Path(words[0]), list(words[1:]), Path("outputs/gpu_check")
    if parts[:1] == ["--output"] and len(parts) > 1:
        output, parts = Path(parts[1]), parts[2:]
    if any(part not in PARTS for part in parts):
        return USAGE
    if reason := why_no_gpu():
        print(f"gpu_check: no GPU: {reason}. Run this on a machine with a GPU, to which you copy the folder that "
              "\"scripts/gpu_check.sh pack\" makes.", file=sys.stderr)
        return ENVIRONMENT
    torch_root = find_torch_root()
    if torch_root is None or not (torch_root / "lib").is_dir():
        print(f"gpu_check: no LibTorch in {torch_root or 'this Python'}. Set LIBTRAIN_TORCH_ROOT to the folder "
              "\"torch\" of a PyTorch wheel or a LibTorch zip.", file=sys.stderr)
        return ENVIRONMENT
    if not (folder / "bin/gpu_tests").exists():
        print(f"gpu_check: {folder}/bin has no programs. Run \"scripts/gpu_check.sh pack\", here or on another "
              "machine.", file=sys.stderr)
        return ENVIRONMENT
    output.mkdir(parents=True, exist_ok=True)
    check, rows = Check(folder.resolve(), output.resolve(), torch_root), []
    for part in parts or PARTS:
        print(f"== {part}", flush=True)
        rows += run_part(check, part)
        # After each part, so that what was found is there if a later one is ended from outside.
        (output / "gpu_check.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    failed = sum(row.result == FAILED for row in rows)
    print(f"\n{table(rows)}\n\ngpu_check: {failed} of {len(rows)} failed; details are in {output}")
    return FAILURE if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
