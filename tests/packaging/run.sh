#!/usr/bin/env bash
# usage: tests/packaging/run.sh <build tree> <source tree> find_package|fetch_content|fetch_content_configure
#
# Builds and runs a program outside the tree against libtrain: against an installation of the build tree that was moved
# to another place, or against the sources through FetchContent, which fetch_content_configure only configures.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2p' "$0" | cut -c3- >&2 && exit 2; }
build=$(cd "$1" && pwd -P)
source=$(cd "$2" && pwd -P)
mode=$3
consumer=$source/tests/packaging/consumer

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The value of a variable in the cache of the build tree; nothing where it is not there.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=$(cached CMAKE_CXX_COMPILER)" -G "$(cached CMAKE_GENERATOR)"
  "-DCMAKE_MAKE_PROGRAM=$(cached CMAKE_MAKE_PROGRAM)")
libtorch=$(cached LibTorch_CPU_LIBRARY)
[ -z "$libtorch" ] || options+=("-DLIBTRAIN_TORCH_ROOT=$(dirname "$(dirname "$libtorch")")")
mpiexec=$(cached MPIEXEC_EXECUTABLE)
[ -z "$mpiexec" ] || options+=("-DMPI_HOME=$(dirname "$(dirname "$mpiexec")")")

case $mode in
  find_package)
    cmake --install "$build" --prefix "$work/first" >/dev/null
    mv "$work/first" "$work/moved"
    if grep -rlF -e "$source/" -e "$build/" -e "$work/first" --include='*.cmake' "$work/moved"; then
      echo "packaging: the installed files above name the place they were built or installed in." >&2
      exit 1
    fi
    "$work/moved/bin/libtrain-info" --json | grep -q '"rank":{"value":0'
    options+=("-DCMAKE_PREFIX_PATH=$work/moved")
    ;;
  fetch_content*)
    # All of libtrain is compiled once more, and run for a moment.
    options+=("-DCONSUMER_FETCH=$source" "-DLIBTRAIN_MPI=$(cached LIBTRAIN_MPI)" "-DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -O0")
    launcher=$(command -v ccache || true)
    [ -z "$launcher" ] || options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher")
    ;;
  *) echo "packaging: '$mode' is none of find_package, fetch_content and fetch_content_configure." >&2 && exit 2 ;;
esac

cmake -S "$consumer" -B "$work/build" "${options[@]}"
[ "$mode" != fetch_content_configure ] || exit 0
cmake --build "$work/build" --target consumer -j 2
output=$("$work/build/consumer")
echo "$output"
expected="libtrain $(cached CMAKE_PROJECT_VERSION), 62 parameters"
[ "$output" = "$expected" ] || { echo "packaging: expected '$expected'." >&2 && exit 1; }
