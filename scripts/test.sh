#!/usr/bin/env bash
# usage: scripts/test.sh [option of ctest]...
#        scripts/test.sh --full [part]...
#
# Sets up, builds, and runs the tests; ends with ctest's summary. A skip that tests/skips.txt does not allow counts
# as a failure. For example
#   scripts/test.sh -R BucketPlan       only the tests whose names match
#   scripts/test.sh -L mpi              only the tests with that label
# --full runs everything, including sanitizers and build variants: scripts/test.sh --full --help
#
# LIBTRAIN_PRESET  what to build: release (default), debug, asan or tsan; the tree is build/<preset>
# LIBTRAIN_CMAKE_OPTIONS  options for configuring, such as -DLIBTRAIN_CUDA=OFF
# LIBTRAIN_ALLOW_SKIPS=emulators  tests of object stores may be skipped if their emulators cannot be installed
# LIBTRAIN_JOBS    how many files to compile at once (default: at most 2, to save memory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in
  --help | -h) print_usage scripts/test.sh && exit 0 ;;
  --full) exec scripts/full_test.sh "${@:2}" ;;
esac

preset=${LIBTRAIN_PRESET:-release}
set_up
build "$preset"
"$python" scripts/run_tests.py "build/$preset" -j "$slots" --output-on-failure --no-tests=error "$@"
