#!/usr/bin/env bash
# usage: scripts/demo.sh [option of digits]...
#
# Sets up, builds the digits example, trains it on 2 ranks of this machine, and prints its accuracy on held-out images.
# Output goes to outputs/digits-demo. The options of the example: build/release/bin/digits --help
#
# LIBTRAIN_RANKS  how many ranks to start (default 2)
# LIBTRAIN_CMAKE_OPTIONS  options for configuring, such as -DLIBTRAIN_CUDA=OFF
# LIBTRAIN_JOBS   how many files to compile at once (default: at most 2, to save memory)
# LIBTRAIN_BIN    a folder with the program digits to run; nothing is set up or built
# LIBTRAIN_OUTPUT  the output folder (default outputs/digits-demo)
# LIBTRAIN_MPIRUN  the command that starts the ranks (default mpirun)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help | -h) print_usage scripts/demo.sh && exit 0 ;; esac

ranks=${LIBTRAIN_RANKS:-2}
output=${LIBTRAIN_OUTPUT:-outputs/digits-demo}
if [ -z "${LIBTRAIN_BIN:-}" ]; then
  set_up
  build release --target digits
fi
mapfile -t options < <(mpirun_options "$ranks")
# The table must not show an earlier run.
rm -f "$output/metrics.jsonl"
"${LIBTRAIN_MPIRUN:-mpirun}" "${options[@]}" -n "$ranks" "${LIBTRAIN_BIN:-build/release/bin}/digits" --output "$output" \
  --resume none "$@"
"$python" scripts/demo_table.py "$output/metrics.jsonl"
