#!/usr/bin/env bash
# usage: scripts/demo.sh [option of digits]...
#
# Sets up, builds the digits example and trains it on 2 ranks of this machine; ends with its accuracy on held-out
# images. What it writes goes to outputs/digits-demo. The options of the example: build/release/bin/digits --help
#
# LIBTRAIN_RANKS  how many ranks to start (default 2)
# LIBTRAIN_CMAKE_OPTIONS  options for configuring, such as -DLIBTRAIN_CUDA=OFF
# LIBTRAIN_JOBS   how many files to compile at once (default: 2 at most, for want of memory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help | -h) print_usage scripts/demo.sh && exit 0 ;; esac

ranks=${LIBTRAIN_RANKS:-2}
output=outputs/digits-demo
set_up
build release --target digits
mapfile -t options < <(mpirun_options "$ranks")
# A table of an earlier run must not pass for this one's.
rm -f "$output/metrics.jsonl"
mpirun "${options[@]}" -n "$ranks" build/release/bin/digits --output "$output" "$@"
"$python" scripts/demo_table.py "$output/metrics.jsonl"
