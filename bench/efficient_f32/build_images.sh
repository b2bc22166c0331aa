#!/usr/bin/env bash
# Compiles configurations of the f32 kernels for harness.py, on the machine it runs on.
# Usage: build_images.sh OUT_FOLDER [ARCH]   lines on stdin: E MTILES KEYS WARPS FEATURED BLOCKS, or for Hopper's own kernel
#                                            sm90 E CONSUMERS STAGES FEATURED (0, 1, 2: with dropout)
#   printf '64 1 64 4 0 2\nsm90 128 2 1 0\n' | build_images.sh images && python3 harness.py images out
set -euo pipefail
out=${1:?output folder}
arch=${2:-90}
source=$(cd "$(dirname "$0")/../.." && pwd)/src
mkdir -p "$out"
compile() { # ARCH ENTRY NAME -D…
  nvcc -std=c++20 -I"$source" -gencode "arch=compute_$1,code=sm_$1" -Xptxas -v -cubin -c "$source/backends/cuda_efficient/image/$2" "${@:4}" \
    -o "$out/$3.cubin" 2>&1 | grep -E 'error|C75|registers|spill' || true
}
while read -r e tiles keys warps featured blocks; do
  if [ "$e" = sm90 ]; then
    compile 90a f32_sm90_entry.cu "f32_sm90_${tiles}_${keys}_${warps}_${featured}" -DATTNSCOPE_E="$tiles" -DATTNSCOPE_CONSUMERS="$keys" \
      -DATTNSCOPE_STAGES="$warps" -DATTNSCOPE_FEATURED=$((featured > 0)) -DATTNSCOPE_DROPOUT=$((featured > 1))
    continue
  fi
  compile "$arch" f32_entry.cu "f32_${e}_${tiles}_${keys}_${warps}_${featured}" -DATTNSCOPE_E="$e" -DATTNSCOPE_M_TILES="$tiles" \
    -DATTNSCOPE_KEYS="$keys" -DATTNSCOPE_WARPS="$warps" -DATTNSCOPE_FEATURED="$featured" -DATTNSCOPE_BLOCKS="$blocks"
done
