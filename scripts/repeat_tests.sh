#!/usr/bin/env bash
# usage: scripts/repeat_tests.sh TIMES [option of ctest]...
#
# Runs every test of the release build TIMES times in a row, or until it fails, while a loop keeps each core busy: a
# test that passes only on a quiet machine fails here. Takes hours for all tests; -L and -R select some. For example
#   scripts/repeat_tests.sh 20                                    every test
#   scripts/repeat_tests.sh 50 -R 'core_tests.Tcp'                the tests whose names match
# ctest's output goes to the terminal and, line by line, to build/release/repeat.log. Build first: scripts/test.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help | -h) print_usage scripts/repeat_tests.sh && exit 0 ;; esac
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || { print_usage scripts/repeat_tests.sh >&2 && exit 2; }
times=$1
shift

tree=build/release
[ -f "$tree/CTestTestfile.cmake" ] || { echo "repeat_tests: $tree is not built. Run scripts/test.sh." >&2 && exit 3; }

# Each loop ends with this script, even if the script is killed.
busy=()
for ((i = 0; i < cores; i++)); do
  (while [ -d /proc/$$ ]; do for ((j = 0; j < 1000000; j++)); do :; done; done) &
  busy+=($!)
done
trap 'kill "${busy[@]}"' EXIT

"$python" -u scripts/run_tests.py "$tree" -j "$slots" --repeat "until-fail:$times" --output-on-failure --no-tests=error "$@" 2>&1 |
  tee "$tree/repeat.log"
