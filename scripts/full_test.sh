#!/usr/bin/env bash
# usage: scripts/test.sh --full [part]...
#
# Runs every test that one machine can run, which takes hours: the given parts, or all of them. If a part fails, the
# others still run. Prints a table of results and seconds at the end, and fails if a part failed.
#   push         what every push runs, and the tests of ctest's configuration "full"
#   shell        shellcheck on all shell scripts
#   asan, tsan   under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer
#   no-mpi       built without the MPI backend; like no-cuda and other-torch, runs the tests that a build can change
#   no-cuda      built without CUDA and NCCL
#   no-unity     built one file at a time, which finds missing includes
#   other-torch  built against a LibTorch from elsewhere: the torch wheel for Python 3.12, outside any environment
#   mpich        built against Debian's MPICH; the tests of ranks run under its mpiexec
#   launchers    jobs under Debian's Slurm, installed if missing, and under torchrun with one and two agents
#   fuzz         every fuzz target for LIBTRAIN_FUZZ_SECONDS (default 120)
#
# LIBTRAIN_JOBS  how many files to compile at once (default: at most 2, to save memory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

parts=(push shell asan tsan no-mpi no-cuda no-unity other-torch mpich launchers fuzz)

# The tests that a build variant can change: how programs link, start, connect and exit.
of_a_build='^core_tests|^tools|^packaging|^base|^jobs\.(examples|no_mpi|seeds|sockets|tcp_launch|tcp_network)'

# test_variant <name> <options of cmake, separated by spaces> [option of ctest]...
test_variant() {
  local tree=build/matrix-$1 options
  read -r -a options <<<"$2"
  shift 2
  configure release "$tree" "${options[@]}"
  cmake --build "$tree" -j "$jobs"
  "$python" scripts/run_tests.py "$tree" -j "$slots" --output-on-failure --no-tests=error "$@"
}

# Installs Debian packages if a command is missing.
require_command() {
  local name=$1
  shift
  command -v "$name" >/dev/null && return
  [ "$(id -u)" -ne 0 ] || DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@" >/dev/null || true
  command -v "$name" >/dev/null || { echo "test: $name is missing. Install the Debian packages $*." >&2 && exit 3; }
}

# Prints the torch folder of an unpacked wheel, downloaded once; NVIDIA's libraries are beside it as in an environment.
# It is outside the checkout, like a user's: CMake installs no run path that points into its own source tree.
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

run_part() {
  case $1 in
    push) scripts/test.sh -C full ;;
    shell)
      require_command shellcheck shellcheck
      git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck
      ;;
    asan | tsan) LIBTRAIN_PRESET=$1 scripts/test.sh ;;
    no-mpi) test_variant "$1" -DLIBTRAIN_MPI=OFF -R "$of_a_build" ;;
    no-cuda) test_variant "$1" -DLIBTRAIN_CUDA=OFF -R "$of_a_build" ;;
    no-unity) test_variant "$1" -DCMAKE_UNITY_BUILD=OFF -R '^core_tests' ;;
    other-torch)
      local torch
      torch=$(other_torch)
      test_variant "$1" "-DLIBTRAIN_TORCH_ROOT=$torch" -R "$of_a_build"
      ;;
    mpich)
      require_command mpicxx.mpich mpich libmpich-dev
      local bin
      bin=$(dirname "$(command -v mpicxx.mpich)")
      # MPICH polls, which is too slow with more ranks than cores. The fault tests expect Open MPI's exit behaviour.
      test_variant "$1" "-DMPI_CXX_COMPILER=$bin/mpicxx.mpich -DMPIEXEC_EXECUTABLE=$bin/mpiexec.mpich \
        -DLIBTRAIN_MPIRUN=$bin/mpiexec.mpich" \
        -R '^mpi_tests.*(comm|other)\.ranks_[12]$|^tools.libtrain_info|^jobs.(ddp_parity|seeds)'
      ;;
    launchers)
      PATH=$PATH:/usr/sbin require_command slurmctld slurmctld slurmd slurm-client munge libpmix-dev
      scripts/test.sh -C launchers -L launchers
      ;;
    fuzz) scripts/fuzz.sh "${LIBTRAIN_FUZZ_SECONDS:-120}" ;;
  esac
}

chosen=("$@")
[ $# -gt 0 ] || chosen=("${parts[@]}")
for part in "${chosen[@]}"; do
  [[ $part != --help && $part != -h ]] || { print_usage scripts/full_test.sh && exit 0; }
  case " ${parts[*]} " in
    *" $part "*) ;;
    *) print_usage scripts/full_test.sh >&2 && exit 2 ;;
  esac
done

set_up
table=""
failed=0
for part in "${chosen[@]}"; do
  echo "== $part"
  began=$SECONDS
  # A subshell, in which the first failing command ends the part.
  set +e
  (set -e; run_part "$part")
  code=$?
  set -e
  result=passed
  [ $code -eq 0 ] || { result=failed && failed=$((failed + 1)); }
  table+=$(printf '%-12s %-7s %6d s' "$part" $result $((SECONDS - began)))$'\n'
done
printf '\n%sfull: %d of %d parts failed\n' "$table" $failed ${#chosen[@]}
[ $failed -eq 0 ]
