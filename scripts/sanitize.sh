#!/usr/bin/env bash
# usage: scripts/sanitize.sh [option of ctest]...
#
# Builds under AddressSanitizer with UndefinedBehaviorSanitizer and then under ThreadSanitizer, and runs the tests that
# the presets asan and tsan choose.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help | -h) print_usage scripts/sanitize.sh && exit 0 ;; esac

for preset in asan tsan; do
  echo "== $preset"
  LIBTRAIN_PRESET=$preset scripts/test.sh "$@"
done
