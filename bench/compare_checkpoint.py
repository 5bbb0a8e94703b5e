"""Seconds to write and to load a checkpoint of ResNet-50 with its optimizer: bench_checkpoint against dd and torch.save.

All write as many bytes to the same disk and end with fsync, in turns whose order is swapped every time. Loading is from
the page cache; libtrain's verifies a checksum of every tensor.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
RUN_TIMEOUT_S = 300


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="timed runs of each (default: 15)")
    parser.add_argument("--folder", default=".", help="folder on the disk to measure (default: this one)")
    parser.add_argument("--program", default=ROOT / "build/release/bin/bench_checkpoint")
    parser.add_argument("--json", metavar="FILE", help="append the records to this file")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    return options


def libtrain(options, folder, _size):
    command = [options.program, "--output", folder, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{options.program} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def dd(_options, folder, size):
    count = -(-size // MIB)
    start = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={folder}/zeros", f"bs={MIB}", f"count={count}", "conv=fsync", "status=none"],
                   timeout=RUN_TIMEOUT_S, check=True)
    return {"write_s": time.perf_counter() - start}


def torch_save(_options, folder, size):
    import torch

    elements = size // 4 // 320
    state = {f"tensor{index}": torch.ones(elements) for index in range(320)}  # about as many tensors as ResNet-50 has
    path = pathlib.Path(folder) / "state.pth"
    start = time.perf_counter()
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    written = time.perf_counter()
    torch.load(path, weights_only=True)
    return {"write_s": written - start, "load_s": time.perf_counter() - written}


def run_in_turns(options):
    with tempfile.TemporaryDirectory(prefix="compare_checkpoint_", dir=options.folder) as folder:
        size = libtrain(options, folder, 0)["bytes"]
    contenders = {"libtrain": libtrain, "dd": dd, "torch_save": torch_save}
    results = {name: [] for name in contenders}
    for number in range(options.runs + 1):
        for name in list(contenders) if number % 2 == 0 else reversed(contenders):
            with tempfile.TemporaryDirectory(prefix="compare_checkpoint_", dir=options.folder) as folder:
                times = contenders[name](options, folder, size)
            if number > 0:  # the first run warms up
                results[name].append(times)
    return size, results


def row(name, times, key):
    values = [one[key] for one in times]
    return f"{name:<12}{key:<10}{min(values):>12.3f}{statistics.median(values):>12.3f}"


def main():
    options = parse_arguments()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"There is no program {options.program}; build it, or name it with --program.")
    size, results = run_in_turns(options)
    print(f"{size / 1e6:.0f} MB, {options.runs} runs of each\n{'':<12}{'':<10}{'minimum s':>12}{'median s':>12}")
    for name, times in results.items():
        for key in ("stall_s", "write_s", "load_s"):
            if key in times[0]:
                print(row(name, times, key))
    for peer in ("dd", "torch_save"):
        ratios = [theirs["write_s"] / ours["write_s"] for ours, theirs in zip(results["libtrain"], results[peer])]
        print(f"libtrain's writing speed / {peer}'s: median {statistics.median(ratios):.2f}, "
              f"from {min(ratios):.2f} to {max(ratios):.2f}")
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            for name, times in results.items():
                record = {"event": "checkpoint", "implementation": name, "bytes": size, "runs": options.runs}
                for key in times[0]:
                    if key.endswith("_s"):
                        values = [one[key] for one in times]
                        record |= {f"min_{key}": min(values), f"median_{key}": statistics.median(values)}
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
