#!/usr/bin/env bash
# usage: scripts/format.sh [--check]
#
# Applies .clang-format to every C++ and CUDA file; with --check, changes nothing and fails with a list of the files
# that it would change.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(find libtrain examples bench tests tools -regex '.*\.\(hpp\|cpp\|cu\|cuh\)' | sort)
[ ${#files[@]} -gt 0 ] || { echo "format: found no source files." >&2 && exit 1; }
case ${1:-} in
  "") clang-format -i "${files[@]}" ;;
  --check)
    unformatted=$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9:]* warning: .*\[-Wclang-format-violations\]$/\1/p' | sort -u)
    if [ -n "$unformatted" ]; then
      printf 'These files are not formatted; run scripts/format.sh:\n%s\n' "$unformatted" >&2
      exit 1
    fi
    echo "format: ${#files[@]} files are formatted."
    ;;
  *) print_usage scripts/format.sh && exit 2 ;;
esac
