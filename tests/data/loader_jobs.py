"""Pictures for loader_program, and what its ranks print, for loader_test.py, stage_test.py and azurite_*_test.py.

Every picture is a class of its own: its label is its number in the folder's order, and tells which one it is.
"""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

PROGRAM = "loader_program"
PYTHON = jobs.ROOT / ".deps/bin/python"
# One thread an operation, so that ranks do not take each other's cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def path_of(number):
    """Of a picture below the folder."""
    return f"{number:03d}/picture.{'png' if number % 4 == 3 else 'jpg'}"


def make_pictures(folder, count):
    """Has the project's Python write them, which has Pillow."""
    subprocess.run([PYTHON, Path(__file__).resolve(), folder, str(count)], check=True, timeout=120)


def write_pictures(folder, count):
    from PIL import Image

    for number in range(count):
        mode = "L" if number % 5 == 4 else "RGB"
        small = Image.frombytes(mode, (9, 7), random.Random(number).randbytes(9 * 7 * len(mode)))
        path = folder / path_of(number)
        path.parent.mkdir(parents=True)
        small.resize((40 + number % 7 * 8, 36 + number % 6 * 9), Image.Resampling.BICUBIC).save(path)


def pack(images, output, kind, shards):
    """The command that writes so many shards of a folder of images."""
    return [jobs.program("libtrain-pack"), "--quiet", "--input", images, "--output", output, "--format", kind,
            "--shards", shards]


def make_shards(images, output, kind, shards):
    job = jobs.run(pack(images, output, kind, shards))
    if job.exit_code != 0:
        raise AssertionError(str(job))


def run_rank(*words):
    return jobs.run([jobs.program(PROGRAM), *words], time_limit=120, environment=ENVIRONMENT)


def run_ranks(world_size, words_of):
    """The jobs of all ranks, `words_of(rank)` being what a rank is told beside who it is."""
    def run(rank):
        return run_rank("--rank", rank, "--world-size", world_size, *words_of(rank))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run, range(world_size)))


def steps_of(output):
    """What a rank got: for each (epoch, step) its samples as (label, checksum), in their order."""
    steps = {}
    for record in map(json.loads, output.splitlines()):
        if "label" in record:
            samples = steps.setdefault((record["epoch"], record["step"]), [])
            assert record["position"] == len(samples), record
            samples.append((record["label"], record["crc32c"]))
    return steps


def joined(ranks):
    """For each step the samples of all ranks, those of rank 0 first. `ranks`: what steps_of() says of each."""
    keys = sorted({key for steps in ranks for key in steps})
    return [[sample for steps in ranks for sample in steps.get(key, [])] for key in keys]


def flat(steps):
    return [sample for samples in steps for sample in samples]


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]), int(sys.argv[2]))
