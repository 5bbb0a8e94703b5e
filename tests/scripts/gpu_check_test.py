"""Tests of scripts/gpu_check.sh and gpu_check.py without a GPU: made-up programs replace those that need one."""

import array
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_check

USAGE, ENVIRONMENT = 2, 3

PASSING = """
echo "[ RUN      ] Broadcast.Works"
echo "[       OK ] Broadcast.Works (3 ms)"
"""
FAILING = PASSING + """
echo "[ RUN      ] Types/Loader.Works/0"
echo "[  FAILED  ] Types/Loader.Works/0, where GetParam() = nullopt (12 ms)"
echo "[  FAILED  ] 1 test, listed below:"
exit 1
"""
SKIPPING = PASSING + 'echo "[  SKIPPED ] NcclOnGpu.Works (0 ms)"\n'
HANGING = PASSING + """
echo "[ RUN      ] Synchronizer.Works"
sleep 100 &
sleep 100
"""
KILLED_AND_NOTICED = """
[ "$RANK" = 0 ] || kill -KILL $$
echo "libtrain[rank 0]: error: rank 1 was lost"
exit 4
"""


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "pack"
        self.output = Path(folder.name) / "output"
        (Path(folder.name) / "torch/lib").mkdir(parents=True)
        (self.folder / "bin").mkdir(parents=True)
        self.enter(mock.patch.dict(os.environ, {"LIBTRAIN_TORCH_ROOT": f"{folder.name}/torch"}))
        self.enter(mock.patch.object(gpu_check, "why_no_gpu", lambda: None))

    def enter(self, context):
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def peer(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self, *parts, seconds=20):
        """The exit code, the rows by what they are about, and the standard output."""
        limits = {name: (run, seconds) for name, (run, _) in gpu_check.PARTS.items()}
        printed = io.StringIO()
        with mock.patch.dict(gpu_check.PARTS, limits), contextlib.redirect_stdout(printed):
            exit_code = gpu_check.main([str(self.folder), "--output", str(self.output), *parts])
        rows = [gpu_check.Row(**row) for row in json.loads((self.output / "gpu_check.json").read_text())]
        return exit_code, rows, printed.getvalue()

    def test_the_time_limits_add_up_to_less_than_nine_minutes(self):
        self.assertLess(sum(limit for _, limit in gpu_check.PARTS.values()), 9 * 60)

    def test_what_passes_is_told_in_the_table_and_in_the_file(self):
        self.program("gpu_tests", PASSING)
        exit_code, (row,), output = self.check("tests")
        self.assertEqual((exit_code, row.result, row.found), (0, "passed", f"{gpu_check.SHARDS} passed"))
        self.assertRegex(output,
                         r"(?m)^tests  tests on the GPU, ranks as threads  passed +\d+\.\d +"
                         rf"{gpu_check.SHARDS} passed  all pass$")
        self.assertIn("0 of 1 failed", output)

    def test_the_shards_of_the_tests_are_all_started_and_host_only_suites_left_out(self):
        told = "$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS $*"
        self.program("gpu_tests", f'echo "{told}" >>{self.folder}/calls\n{PASSING}')
        self.check("tests")
        calls = sorted((self.folder / "calls").read_text().splitlines())
        self.assertEqual(calls, [f"{index} of {gpu_check.SHARDS} --gtest_color=no --gtest_filter=-HostOnly*:*_float64_*"
                                 for index in range(gpu_check.SHARDS)])

    def test_a_part_that_fails_does_not_prevent_the_next(self):
        self.program("gpu_tests", FAILING)
        self.program("fault_program", KILLED_AND_NOTICED)
        exit_code, rows, output = self.check("tests", "nccl")
        self.assertEqual(exit_code, 1)
        self.assertEqual([row.result for row in rows], ["failed", "failed", "passed"])
        self.assertIn("Types/Loader.Works/0 FAILED", rows[0].found)
        self.assertIn("2 of 3 failed", output)

    def test_a_skipped_test_and_a_program_without_tests_fail(self):
        for text in (SKIPPING, "exit 0"):
            self.program("gpu_tests", text)
            exit_code, (row,), _ = self.check("tests")
            self.assertEqual((exit_code, row.result), (1, "failed"), row)

    def test_a_program_that_crashes_is_told_with_its_test(self):
        self.program("gpu_tests", PASSING + 'echo "[ RUN      ] Staged.Works"\nkill -SEGV $$')
        _, (row,), _ = self.check("tests")
        self.assertIn("exit code -11", row.found)
        self.assertIn("in Staged.Works", row.found)

    def test_a_program_that_hangs_is_ended_with_what_it_started(self):
        self.program("gpu_tests", HANGING)
        began = time.monotonic()
        exit_code, (row,), _ = self.check("tests", seconds=1)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((exit_code, row.result), (1, "failed"))
        self.assertIn("time limit", row.found)
        self.assertIn("in Synchronizer.Works", row.found)

    def test_a_missing_program_is_the_failure_of_its_part(self):
        self.program("gpu_tests", PASSING)
        exit_code, rows, _ = self.check("nccl", "tests")
        self.assertEqual(exit_code, 1)
        self.assertEqual([row.result for row in rows], ["passed", "failed", "passed"])
        self.assertIn("fault_program", rows[1].found)

    def test_ranks_over_nccl_get_hosts_of_their_own_and_one_meeting_place(self):
        self.program("gpu_tests", f'echo "$RANK/$WORLD_SIZE $NCCL_HOSTID $NCCL_SOCKET_IFNAME $GTEST_SHARD_INDEX '
                                  f'$LIBTRAIN_TEST_DIST_URL" >>{self.folder}/calls\n{PASSING}')
        self.program("fault_program", KILLED_AND_NOTICED)
        _, rows, _ = self.check("nccl")
        self.assertEqual([row.result for row in rows], ["passed", "passed"])
        meeting = f"file://{self.output.resolve()}/meeting/nccl"
        self.assertEqual(sorted((self.folder / "calls").read_text().splitlines()),
                         [f"{rank}/2 r{rank} lo {pair} {meeting}{pair}" for rank in range(2)
                          for pair in range(gpu_check.PAIRS)])

    def test_a_failure_on_the_other_rank_is_a_failure(self):
        self.program("gpu_tests", f'if [ "$RANK" = 0 ]; then {PASSING}; else {FAILING}; fi'.replace("\n;", ";"))
        self.program("fault_program", KILLED_AND_NOTICED)
        _, rows, _ = self.check("nccl")
        self.assertEqual(rows[0].result, "failed")
        self.assertIn("rank 1: Types/Loader.Works/0 FAILED", rows[0].found)

    def test_a_rank_that_does_not_notice_is_a_failure(self):
        self.program("gpu_tests", PASSING)
        killed = '[ "$RANK" = 0 ] || kill -KILL $$\n'
        for text in (killed + "sleep 100", killed + "exit 0", "exit 1"):
            self.program("fault_program", text)
            _, rows, _ = self.check("nccl", seconds=2)
            self.assertEqual(rows[1].result, "failed", rows[1])

    def test_without_the_sanitizer_its_part_is_told_as_not_run(self):
        self.program("gpu_tests", PASSING)
        with mock.patch.object(shutil, "which", lambda *_, **__: None):
            exit_code, (row,), _ = self.check("sanitizer")
        self.assertEqual((exit_code, row.result, row.found), (0, "not run", "compute-sanitizer is not installed"))

    def test_errors_that_the_sanitizer_finds_are_a_failure(self):
        self.program("gpu_tests", PASSING)
        for errors, result in ((0, "passed"), (2, "failed")):
            self.program("compute-sanitizer", f'while [[ $1 == -* || $1 == [9mn]* ]]; do shift; done\n"$@"\n'
                                              f'echo "========= ERROR SUMMARY: {errors} errors"')
            with mock.patch.object(shutil, "which", lambda *_, **__: str(self.folder / "bin/compute-sanitizer")):
                _, (row,), _ = self.check("sanitizer")
            self.assertEqual((row.result, row.found), (result, f"{errors} errors, 1 passed"))

    def test_gradients_are_compared_with_those_of_the_peer(self):
        steps = array.array("f", range(1, 1 + 3 * gpu_check.PARITY_STEPS))
        self.peer("tests/sync/ddp_parity_peer.py", f"""
import array, json, pathlib, sys
for name in json.loads(sys.argv[2]):
    (pathlib.Path(sys.argv[1]) / f"{{name}}.ddp_gradients").write_bytes(array.array("f", {list(steps)}).tobytes())
""")
        for factor, result in ((1, "passed"), (1 + 1e-4, "failed")):
            (self.folder / "ours").write_bytes(array.array("f", [factor * step for step in steps]).tobytes())
            self.program("ddp_parity_program", f"""
while [ "$1" != --gradients ]; do shift; done
[ "$RANK" = 1 ] || cp {self.folder}/ours "$2"
""")
            self.program("gpu_tests", "")
            _, rows, _ = self.check("parity")
            self.assertEqual([row.result for row in rows], [result] * 3, rows)

    def test_a_peer_that_fails_is_told(self):
        self.program("gpu_tests", "")
        self.peer("tests/sync/ddp_parity_peer.py", "raise SystemExit('NCCL is old')")
        _, (row,), _ = self.check("parity")
        self.assertEqual((row.result, row.found), ("failed", "PyTorch: exit code 1: NCCL is old"))

    def make_speed(self, ours):
        self.program("gpu_tests", "")
        records = [{"samples_per_s": ours, "synchronized": kind} for kind in (False, True)]
        lines = "\n".join(map(json.dumps, records))
        self.program("bench_train_step", f"""
echo libtrain "$4" >>{self.folder}/calls
while [ "$1" != --json ]; do shift; done
echo '{lines}' >>"$2"
""")
        self.peer("bench/peers/gpu_train_step.py", f"""
import json, sys
open("{self.folder}/calls", "a").write(f"pytorch {{sys.argv[4]}}\\n")
records = {[record | {"samples_per_s": 1000} for record in records]}
open(sys.argv[sys.argv.index("--json") + 1], "a").write("".join(json.dumps(each) + "\\n" for each in records))
""")

    def test_speed_is_the_ratio_to_the_peer_in_turns(self):
        cases = ("resnet", 1150, "passed"), ("resnet", 1050, "failed"), ("roberta", 1050, "passed")
        for part, ours, result in cases:
            self.make_speed(ours)
            _, rows, _ = self.check(part)
            self.assertEqual([row.result for row in rows], [result] * 2)
            self.assertTrue(rows[0].found.startswith(f"{ours / 1000:.3f} ({ours} and 1000 samples/s"), rows[0].found)
        turns = (self.folder / "calls").read_text().splitlines()
        workloads = {"resnet": "resnet50", "roberta": "roberta_base"}
        self.assertEqual(turns, [f"{program} {workloads[part]}" for part, _, _ in cases
                                 for program in ("libtrain", "pytorch", "pytorch", "libtrain")])

    def test_mask_rcnn_is_compared_workload_by_workload(self):
        record = """
import json, sys
words = sys.argv[1:]
if "--make" not in words:
    with open(words[words.index("--json") + 1], "a") as file:
        for workload in words[words.index("--workload") + 1:]:
            file.write(json.dumps({"workload": workload, "median_s": FACTOR * len(workload)}) + "\\n")
"""
        self.peer("bench/peers/mask_rcnn.py", record.replace("FACTOR", "3"))
        self.peer("ours.py", record.replace("FACTOR", "2"))
        self.program("gpu_tests", PASSING)
        self.program("bench_mask_rcnn", f'exec "{sys.executable}" "{self.folder}/ours.py" "$@"')
        _, rows, _ = self.check("mask_rcnn")
        self.assertEqual([(row.what.rsplit(" ", 1)[1], row.result) for row in rows],
                         [(workload, "passed" if goal <= 1.5 else "failed")
                          for workload, goal in gpu_check.MASK_RCNN_GOALS.items()])
        self.assertTrue(all(row.found.startswith("1.50 times as fast (") for row in rows), rows)
        self.peer("bench/peers/mask_rcnn.py", "raise SystemExit('no torchvision')")
        _, (row,), _ = self.check("mask_rcnn")
        self.assertEqual((row.result, row.found), ("failed", "torchvision: exit code 1: no torchvision"))

    def test_waits_are_counted_within_steps(self):
        def event(name, ts, dur=1, cat="cuda_runtime"):
            return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat}

        steps = [event("train_step", ts, 50, cat="user_annotation") for ts in (100, 200)]
        on_gpu = event("train_step", 0, 1000, cat="gpu_user_annotation")
        outside = event("cudaDeviceSynchronize", 300)
        launches = [event("cudaLaunchKernel", ts) for ts in (101, 102, 201, 202)]
        trace = self.folder / "trace.json"
        for waits, expected in (((), 0), ((110,), 0.5), ((110, 210), 1)):
            events = [*steps, on_gpu, outside, *launches, *(event("cudaStreamSynchronize", ts) for ts in waits)]
            trace.write_text(json.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}))
            self.assertEqual(gpu_check.synchronizations_a_step(trace), (expected, 2))
        trace.write_text(json.dumps({"traceEvents": steps}))  # a profiler that sees no GPU
        with self.assertRaises(ValueError):
            gpu_check.synchronizations_a_step(trace)

    def test_without_programs_or_libtorch_nothing_runs(self):
        for change in ({}, {"LIBTRAIN_TORCH_ROOT": "/nowhere"}):
            told = io.StringIO()
            with mock.patch.dict(os.environ, change), contextlib.redirect_stderr(told):
                self.assertEqual(gpu_check.main([str(self.folder), "tests"]), ENVIRONMENT)
            self.assertRegex(told.getvalue(), r"^gpu_check: .*\n$")


class Script(unittest.TestCase):
    """The script itself, in a folder with stand-ins for what it calls."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("scripts/gpu_check.sh", "scripts/gpu_check.py", "scripts/lib.sh", "tests/sync/ddp_parity_peer.py",
                     "bench/peers/gpu_train_step.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.write("scripts/setup.sh", "exit 0")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def run_script(self, *words):
        own = {name: value for name, value in os.environ.items() if name != "LIBTRAIN_TORCH_ROOT"}
        done = subprocess.run([self.root / "scripts/gpu_check.sh", *words], env=own | {"CUDA_VISIBLE_DEVICES": ""},
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_without_a_gpu_it_says_so(self):
        for words in ((), ("tests",)):
            exit_code, stdout, stderr = self.run_script(*words)
            self.assertEqual((exit_code, stdout), (ENVIRONMENT, ""))
            self.assertRegex(stderr, r"^gpu_check: no GPU: CUDA's driver.*\. Run this on a machine with a GPU.*\.\n$")

    def test_an_unknown_part_is_a_usage_error(self):
        for words in (("no-such-part",), ("tests", "no-such-part"), ("pack", "a", "b"), ("--output",)):
            exit_code, stdout, stderr = self.run_script(*words)
            self.assertEqual((exit_code, stdout), (USAGE, ""), words)
            self.assertIn("usage: scripts/gpu_check.sh", stderr)

    def test_the_help_names_every_part(self):
        exit_code, stdout, _ = self.run_script("--help")
        self.assertEqual(exit_code, 0)
        for part in gpu_check.PARTS:
            self.assertRegex(stdout, rf"(?m)^  {part} ")
        groups = re.search(r"four groups .*: (.*)\.", stdout)[1]
        self.assertEqual(groups.replace(",", "").split(), list(gpu_check.PARTS))

    def build_programs(self, library_bytes=0):
        """A stand-in for cmake whose programs are `true`, which needs the C library alone."""
        self.write(".deps/bin/cmake", """
tree=build/gpu-check
mkdir -p $tree/bin $tree/tests
echo "LibTorch_CPU_LIBRARY:FILEPATH=/packages/libtorch/lib/libtorch_cpu.so" >$tree/CMakeCache.txt
for program in tests/gpu_tests bin/bench_mask_rcnn bin/bench_train_step bin/ddp_parity_program bin/fault_program; do
  cp "$(type -P true)" $tree/$program
done
""")
        # Those of a program that is linked with LibTorch, libjpeg and the C library.
        (self.root / "libjpeg.so.62").write_bytes(bytes(library_bytes))
        self.write(".deps/bin/ldd", f"""
echo "	linux-vdso.so.1 (0x00007ffd)"
echo "	libjpeg.so.62 => {self.root}/libjpeg.so.62 (0x00007f)"
echo "	libtorch_cpu.so => /packages/libtorch/lib/libtorch_cpu.so (0x00007f)"
echo "	libnccl.so.2 => /packages/nvidia/nccl/lib/libnccl.so.2 (0x00007f)"
echo "	libstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007f)"
echo "	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)"
""")

    def test_pack_takes_what_the_other_machine_lacks(self):
        self.build_programs()
        exit_code, stdout, stderr = self.run_script("pack")
        self.assertEqual(exit_code, 0, stderr)
        self.assertRegex(stdout, r"gpu_check: build/gpu-check/pack has \d+ MB\n$")
        pack = self.root / "build/gpu-check/pack"
        self.assertEqual(sorted(path.name for path in (pack / "bin").iterdir()),
                         ["bench_mask_rcnn", "bench_train_step", "ddp_parity_program", "fault_program", "gpu_tests"])
        self.assertEqual([path.name for path in (pack / "lib").iterdir()], ["libjpeg.so.62"])
        # The script in the folder runs from there, and a second pack replaces the folder.
        done = subprocess.run([pack / "scripts/gpu_check.sh"], env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("no GPU")), (ENVIRONMENT, 1))
        (pack / "outputs").mkdir()
        (pack / "bin/old").write_text("")
        self.assertEqual(self.run_script("pack")[0], 0)
        self.assertTrue((pack / "outputs").exists())
        self.assertFalse((pack / "bin/old").exists())

    def test_pack_fails_above_60_megabytes(self):
        self.build_programs(library_bytes=61_000_000)
        exit_code, stdout, stderr = self.run_script("pack", "folder")
        self.assertEqual(exit_code, 1)
        self.assertRegex(stdout, r"folder has 6\d MB")
        self.assertIn("more than 60 MB", stderr)
        self.assertIn("libjpeg.so.62", stderr)

    def test_pack_leaves_a_folder_of_others_alone(self):
        self.build_programs()
        (self.root / "mine/scripts").mkdir(parents=True)
        (self.root / "mine/scripts/gpu_check.sh").write_text("")  # as in a checkout
        (self.root / "mine/file").write_text("")
        exit_code, _, stderr = self.run_script("pack", "mine")
        self.assertEqual(exit_code, USAGE)
        self.assertIn("'mine' exists", stderr)
        self.assertTrue((self.root / "mine/file").exists())


if __name__ == "__main__":
    unittest.main()
