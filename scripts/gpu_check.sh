#!/usr/bin/env bash
# usage: scripts/gpu_check.sh pack [folder]
#        scripts/gpu_check.sh [--output folder] [part]...
#
# Checks what needs a GPU: the given parts, or all of them, in less than 9 minutes. Prints a table of what was checked,
# the result, the seconds and the goal, and writes it to gpu_check.json in the output folder (default
# outputs/gpu_check), beside the output of each program. A part that fails or reaches its time limit does not prevent
# the next one.
#   tests             the multi-rank tests and the device tests, ranks as threads
#   sanitizer         some of them under compute-sanitizer, if it is installed
#   nccl              NCCL between two processes on one GPU: the multi-rank tests, and a rank that is killed
#   parity            gradients of two processes, compared with PyTorch's DistributedDataParallel over NCCL
#   resnet            steps of ResNet-50 in bf16 and channels_last, in turns with PyTorch
#   roberta           steps of RoBERTa base in bf16, in turns with transformers, which Python must have
#   synchronizations  how often the host waits for the GPU in a training step
#   mask_rcnn         Mask R-CNN and its operators, in turns with torchvision, which Python must have
# In four groups of at most 3 minutes each: tests sanitizer, nccl parity, resnet roberta, synchronizations mask_rcnn.
#
# Needs one GPU, Python 3 with PyTorch, and the programs. "pack" builds them, on any machine, for a machine that cannot
# build them, and puts them into the folder (default build/gpu-check/pack) with this script, the peers in Python and the
# shared libraries that are neither LibTorch's nor the C library's; it fails if the folder is larger than 60 MB. Copy
# the folder, and run scripts/gpu_check.sh in it; in a checkout, the script takes the programs from the default folder.
#
# LIBTRAIN_TORCH_ROOT  the folder "torch" of the LibTorch to use, of the version that "pack" was built with (default:
#                      that of Python's torch)
#
# Exit codes: 0 nothing failed, 1 a part failed, 2 usage, 3 no GPU, no PyTorch or no programs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

most_bytes=60000000
programs=(tests/gpu_tests bin/bench_mask_rcnn bin/bench_train_step bin/ddp_parity_program bin/fault_program)
files=(scripts/gpu_check.sh scripts/gpu_check.py scripts/lib.sh bench/peers tests/sync/ddp_parity_peer.py)

# Prints the shared libraries of a program that a machine with LibTorch, the C library and the C++ library may lack.
# $2 is LibTorch's folder, beside which a wheel's nvidia/ is.
foreign_libraries() {
  ldd "$1" | awk -v torch="$2/" -v nvidia="$(dirname "$2")/nvidia/" \
    '$2 == "=>" && $3 ~ "^/" && index($3, torch) != 1 && index($3, nvidia) != 1 { print $3 }' |
    { grep -v -E -e '/(lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s))\.so[^/]*$' || true; }
}

pack() {
  local folder=$1 tree=build/gpu-check program torch bytes
  if [ -e "$folder" ] && [ ! -e "$folder/.gpu_check_pack" ]; then
    echo "gpu_check: '$folder' exists without the .gpu_check_pack of an earlier pack. Delete it or name another folder." >&2
    exit 2
  fi
  set_up
  configure release "$tree" -DLIBTRAIN_ARROW=OFF -DLIBTRAIN_MPI=OFF
  cmake --build "$tree" -j "$jobs" --target "${programs[@]##*/}"
  torch=$(sed -n 's|^LibTorch_CPU_LIBRARY:[A-Z]*=\(.*\)/lib/[^/]*$|\1|p' "$tree/CMakeCache.txt")
  [ -n "$torch" ] || { echo "gpu_check: $tree/CMakeCache.txt does not say where LibTorch is." >&2 && exit 1; }
  # The results of an earlier check, in outputs/, stay.
  rm -rf "${folder:?}"/{bin,lib,scripts,bench,tests}
  mkdir -p "$folder/bin" "$folder/lib"
  touch "$folder/.gpu_check_pack"
  for program in "${programs[@]}"; do
    strip -o "$folder/bin/${program##*/}" "$tree/$program"
    foreign_libraries "$tree/$program" "$torch" | while read -r library; do cp -L "$library" "$folder/lib/"; done
  done
  for file in "${files[@]}"; do
    mkdir -p "$folder/$(dirname "$file")"
    cp -R "$file" "$folder/$file"
  done
  find "$folder" -name __pycache__ -prune -exec rm -r {} +
  bytes=$(du -s --exclude=outputs --apparent-size --block-size=1 "$folder" | cut -f 1)
  echo "gpu_check: $folder has $((bytes / 1000000)) MB"
  if [ "$bytes" -gt "$most_bytes" ]; then
    echo "gpu_check: that is more than $((most_bytes / 1000000)) MB." >&2
    du -a --exclude=outputs --apparent-size --block-size=1 "$folder" | sort -n | tail -15 >&2
    exit 1
  fi
}

case ${1:-} in
  --help | -h) print_usage scripts/gpu_check.sh && exit 0 ;;
  pack)
    [ $# -le 2 ] || { print_usage scripts/gpu_check.sh >&2 && exit 2; }
    pack "${2:-build/gpu-check/pack}"
    exit 0
    ;;
esac
folder=$root
[ -x bin/gpu_tests ] || folder=$root/build/gpu-check/pack
code=0
"$python" scripts/gpu_check.py "$folder" "$@" || code=$?
[ "$code" -ne 2 ] || print_usage scripts/gpu_check.sh >&2
exit "$code"
