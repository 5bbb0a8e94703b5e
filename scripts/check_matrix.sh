#!/usr/bin/env bash
# usage: scripts/check_matrix.sh [no-mpi|no-cuda|other-torch]...
#
# Builds and tests the library as users with other machines have it, each variant in build/matrix-<name>; all three
# where none is named.
#   no-mpi       without the MPI backend
#   no-cuda      without CUDA and NCCL
#   other-torch  against a LibTorch from elsewhere: the torch wheel for Python 3.12, unpacked outside any environment
#
# LIBTRAIN_JOBS  how many files to compile at once (default: 2 at most, for want of memory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# check <name> [option of cmake]...: configures, builds and tests one variant.
check() {
  local tree=build/matrix-$1
  shift
  configure release "$tree" "$@"
  cmake --build "$tree" -j "$jobs"
  "$python" scripts/run_tests.py "$tree" -j "$jobs" --output-on-failure --no-tests=error
}

# Prints the torch folder of an unpacked wheel, downloaded once; NVIDIA's libraries lie beside it as in an environment.
# Outside the checkout, as a user's would be: CMake keeps no run path into its own source tree when it installs.
other_torch() {
  local folder pin
  folder=$(dirname "$(readlink -f .deps)")/other-torch
  if [ ! -e "$folder/complete" ]; then
    pin=$(grep '^torch==' requirements.txt)
    rm -rf "$folder"
    mkdir -p "$folder/wheel" "$folder/packages"
    "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
      --python-version 3.12 --dest "$folder/wheel" "${pin/==/===}" >&2
    "$python" -m zipfile -e "$folder"/wheel/*.whl "$folder/packages"
    rm -r "$folder/wheel"
    ln -s "$root"/.deps/lib/python3*/site-packages/nvidia "$folder/packages/nvidia"
    touch "$folder/complete"
  fi
  echo "$folder/packages/torch"
}

variants=("$@")
[ $# -gt 0 ] || variants=(no-mpi no-cuda other-torch)
for variant in "${variants[@]}"; do
  case $variant in
    no-mpi | no-cuda | other-torch) ;;
    --help | -h) print_usage scripts/check_matrix.sh && exit 0 ;;
    *) print_usage scripts/check_matrix.sh >&2 && exit 2 ;;
  esac
done

set_up
for variant in "${variants[@]}"; do
  echo "== $variant"
  case $variant in
    no-mpi) check no-mpi -DLIBTRAIN_MPI=OFF ;;
    no-cuda) check no-cuda -DLIBTRAIN_CUDA=OFF ;;
    other-torch)
      other=$(other_torch)
      check other-torch "-DLIBTRAIN_TORCH_ROOT=$other"
      ;;
  esac
done
echo "matrix: ${variants[*]} built and passed."
