#!/usr/bin/env python3
"""Fails if an #include under libtrain/ points up, or from a public header to a private one, and on wrong namespaces.

The dependencies between the folders go one way. A header in a folder `detail` is private: no public header and no
example includes it, its names are in a namespace detail, and it is not installed. All other headers are public, and the
umbrella header includes them.

usage: check_includes.py [CHECKOUT]    (default: the checkout of this script)
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
    "text": {"base"},
    "data": {"base", "numeric"},
    "observe": {"base"},
    "checkpoint": {"base"},
    "train": {"base", "numeric", "launch", "comm", "sync", "optim", "text", "data", "observe", "checkpoint"},
    "models": {"base"},
}
# Files at the top, such as the umbrella header, may include everything except the models, which are a separate library.
TOP_MAY_INCLUDE = set(MAY_INCLUDE) - {"models"}

# The sources of these targets compile without LibTorch, MPI and CUDA, and so does everything that they include, except
# those that get a foreign library's headers from libtrain_use_in_sources().
FREE_OF_TORCH = ("libtrain_core", "libtrain_data")
HEAVY = re.compile(r"(torch|ATen|c10|caffe2)/|(mpi|nccl|cuda\w*)\.h$")

SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", re.MULTILINE)


def is_source(path):
    return path.suffix in SOURCES and path.is_file()


def includes(path):
    """The (opening character, name) pairs of a file's includes."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def arrow_errors(root):
    """Includes that a folder must not have, and those whose target is unclear from their text."""
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
    """The chain of includes from a file to a header of LibTorch, MPI or CUDA; empty if there is none."""
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
    checked = 0
    for lists in sorted((root / "libtrain").rglob("CMakeLists.txt")):
        text = lists.read_text(encoding="utf-8")
        foreign = " ".join(re.findall(r"libtrain_use_in_sources\([^)]*SOURCES([^)]*)\)", text)).split()
        for target, names in re.findall(r"target_sources\((\w+) PRIVATE([^)]*)\)", text):
            if target not in FREE_OF_TORCH:
                continue
            for name in set(names.split()) - set(foreign):
                for path in (lists.parent / name, (lists.parent / name).with_suffix(".hpp")):
                    if path.suffix == ".cu" or not path.is_file():
                        continue
                    checked += 1
                    chain = way_to_torch(root, path, {path})
                    if chain:
                        way = " -> ".join(chain)
                        yield f"{path.relative_to(root)}: must compile without LibTorch, MPI and CUDA: {way}"
    if checked == 0:
        yield f"libtrain/: no CMakeLists.txt has a source of {' or '.join(FREE_OF_TORCH)}"


NESTED = ("data", "models", "optim")  # folders with their own namespace


def is_private(place):
    return "detail" in place.parts


def door_errors(root):
    public = {path for path in (root / "libtrain").rglob("*.hpp") if not is_private(path.relative_to(root))}
    users = [path for path in (root / "examples").rglob("*") if is_source(path)] if (root / "examples").is_dir() else []
    for path in sorted([*public, *users]):
        for _, name in includes(path):
            if name.startswith("libtrain/") and is_private(Path(name)):
                yield f"{path.relative_to(root)}: must not include <{name}>, which is private and not installed"
    reached = set()
    ahead = [root / "libtrain" / "libtrain.hpp"]
    while ahead:
        path = ahead.pop()
        if path not in reached and path.is_file():
            reached.add(path)
            ahead += [root / name for _, name in includes(path) if name.startswith("libtrain/")]
    for path in sorted(public - reached):
        if path.relative_to(root).parts[1] != "models":
            yield (f"{path.relative_to(root)}: libtrain/libtrain.hpp does not reach it; "
                   "include it there, or move it to a folder detail")


def namespace_errors(root):
    for path in sorted((root / "libtrain").rglob("*.hpp")):
        place = path.relative_to(root)
        namespace = "libtrain::" + place.parts[1] if place.parts[1] in NESTED else "libtrain"
        right = [f"{namespace}::detail"] if is_private(place) else [namespace, f"{namespace}::detail"]
        for found in re.findall(r"^namespace (libtrain[\w:]*) \{", path.read_text(encoding="utf-8"), re.MULTILINE):
            if found not in right and path.name != "sharded_optimizer_state.hpp":  # of a type in a public class
                yield f"{place}: namespace {found}, not {right[0]}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    errors = [*arrow_errors(root), *door_errors(root), *namespace_errors(root), *torch_errors(root)]
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        sys.exit(1)
    print("includes: no include points up, and the umbrella header reaches every public header.")


if __name__ == "__main__":
    main()
