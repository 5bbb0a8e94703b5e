#!/usr/bin/env bash
# usage: scripts/fuzz.sh [seconds for each target]
#
# Builds the fuzz targets of tests/fuzz in build/fuzz, with Clang, libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer, and runs each of them for the given number of seconds (default 120). Prints how many
# inputs each one executed. Exits with 1 if one crashes; build/fuzz/crashes then has the input. Inputs that reached new
# code stay in build/fuzz/corpus, from which the next run starts.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case ${1:-} in --help | -h) print_usage scripts/fuzz.sh && exit 0 ;; esac
seconds=${1:-120}
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz: the seconds for each target are '$seconds'. Give a whole number of at least 1." >&2
  exit 2
fi

has_libfuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -fsanitize=fuzzer,address,undefined -x c++ - -o /dev/null 2>/dev/null
}

tree=build/fuzz
set_up
if ! has_libfuzzer && [ "$(id -u)" -eq 0 ]; then
  { apt-get -q update && apt-get -q -y --no-install-recommends install clang libclang-rt-dev; } >/dev/null || true
fi
if ! has_libfuzzer; then
  echo "fuzz: clang++ with libFuzzer is missing. Install the Debian packages clang and libclang-rt-dev." >&2
  exit 3
fi
# The compiler of the other builds checks warnings.
configure asan "$tree" -DCMAKE_CXX_COMPILER=clang++ -DLIBTRAIN_SANITIZE=address,undefined,fuzzer-no-link \
  -DLIBTRAIN_WERROR=OFF
cmake --build "$tree" -j "$jobs" --target fuzz_targets

mkdir -p "$tree/crashes"
failed=0
for target in tests/fuzz/*_fuzz.cpp; do
  name=$(basename "$target" _fuzz.cpp)
  corpus=$tree/corpus/$name
  log=$tree/$name.log
  mkdir -p "$corpus"
  "$tree/tests/${name}_fuzz" --write-seeds "$corpus"
  if "$tree/tests/${name}_libfuzzer" -max_total_time="$seconds" -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$tree/crashes/$name-" "$corpus" >"$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions"
  else
    failed=1
    grep -E '^(==|SUMMARY|artifact_prefix|.*runtime error)' "$log" || tail -20 "$log"
    echo "$name: failed, see $log"
  fi
done
exit $failed
