#!/usr/bin/env python3
"""Fails where an #include under libtrain/ points up: the dependencies between its folders go one way.

usage: check_includes.py [CHECKOUT]    (default: the checkout that this script lies in)
"""

import re
import sys
from pathlib import Path

# What the files of each folder may include besides their own folder.
MAY_INCLUDE = {
    "base": set(),
    "numeric": {"base"},
    "launch": {"base"},
    "comm": {"base", "numeric", "launch"},
    "sync": {"base", "numeric", "launch", "comm", "optim"},
    "optim": {"base", "numeric", "launch", "comm"},
    "data": {"base", "numeric"},
    "observe": {"base"},
    "checkpoint": {"base"},
    "train": {"base", "numeric", "launch", "comm", "sync", "optim", "data", "observe", "checkpoint"},
    "models": set(),
}
# Files at the top, such as the umbrella header, may include everything but the models, which are a library apart.
TOP_MAY_INCLUDE = set(MAY_INCLUDE) - {"models"}

# These compile without LibTorch, MPI and CUDA, and so does everything that they include.
FREE_OF_TORCH = [
    "base/**/*",
    "launch/**/*",
    "numeric/**/*",
    "optim/schedule.*",
    "sync/bucket_plan.*",
    "sync/bucket_tuning.*",
    "sync/sharding/shard_layout.*",
    "data/block_order.*",
    "data/loader_state.*",
    "data/permutation.*",
    "data/read_ahead.*",
    "data/sample_origin.*",
    "data/sampler.*",
    "data/shard.*",
    "data/sample_random.*",
    "data/stage_clock.*",
    "data/formats/*.*",
    "data/image/*.*",
    "data/loader/bad_samples.*",
    "data/loader/batch_engine.*",
    "data/loader/loader_statistics.*",
    "data/sources/*.*",
    "data/storage/*.*",
]
HEAVY = re.compile(r"(torch|ATen|c10|caffe2)/|(mpi|nccl|cuda\w*)\.h$")

SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", re.MULTILINE)


def is_source(path):
    return path.suffix in SOURCES and path.is_file()


def includes(path):
    """The (opening character, name) pairs of a file's includes."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def arrow_errors(root):
    """Includes that a folder may not have, and those whose target cannot be told from their text."""
    for path in sorted(filter(is_source, (root / "libtrain").rglob("*"))):
        place = path.relative_to(root)
        folder = place.parts[1] if len(place.parts) > 2 else None
        if folder and folder not in MAY_INCLUDE:
            yield f"{place}: the folder libtrain/{folder} has no rule in scripts/check_includes.py"
            continue
        allowed = MAY_INCLUDE[folder] | {folder} if folder else TOP_MAY_INCLUDE
        for opening, name in includes(path):
            if opening == '"':
                yield f'{place}: write #include "{name}" as <libtrain/...>, from the root of the checkout'
            parts = name.split("/")
            if parts[0] == "libtrain" and (len(parts) < 3 or parts[1] not in allowed):
                yield f"{place}: must not include <{name}> (may: {', '.join(sorted(allowed))})"


def way_to_torch(root, path, seen):
    """The chain of includes from a file to a header of LibTorch, MPI or CUDA; empty where there is none."""
    for _, name in includes(path):
        if HEAVY.match(name):
            return [f"<{name}>"]
        target = root / name
        if name.startswith("libtrain/") and target.is_file() and target not in seen:
            seen.add(target)
            chain = way_to_torch(root, target, seen)
            if chain:
                return [f"<{name}>", *chain]
    return []


def torch_errors(root):
    for pattern in FREE_OF_TORCH:
        files = sorted(filter(is_source, (root / "libtrain").glob(pattern)))
        if not files:
            yield f"libtrain/{pattern}: no such file (the list FREE_OF_TORCH of scripts/check_includes.py is out of date)"
        for path in files:
            chain = way_to_torch(root, path, {path})
            if chain:
                yield f"{path.relative_to(root)}: must compile without LibTorch, MPI and CUDA: {' -> '.join(chain)}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    errors = [*arrow_errors(root), *torch_errors(root)]
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        sys.exit(1)
    print("includes: every arrow points down.")


if __name__ == "__main__":
    main()
