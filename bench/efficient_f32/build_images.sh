#!/usr/bin/env bash
# Compiles configurations of the f32 kernel for harness.py, on the machine it runs on.
# Usage: build_images.sh OUT_FOLDER [ARCH]   lines on stdin: E MTILES KEYS WARPS FEATURED BLOCKS
#   printf '64 1 64 4 0 2\n128 1 64 4 0 2\n' | build_images.sh images && python3 harness.py images out
set -euo pipefail
out=${1:?output folder}
arch=${2:-90}
source=$(cd "$(dirname "$0")/../.." && pwd)/src
mkdir -p "$out"
while read -r e tiles keys warps featured blocks; do
  nvcc -std=c++20 -I"$source" -gencode "arch=compute_$arch,code=sm_$arch" -Xptxas -v -cubin -c "$source/backends/cuda_efficient/image/f32_entry.cu" \
    -DATTNSCOPE_E="$e" -DATTNSCOPE_M_TILES="$tiles" -DATTNSCOPE_KEYS="$keys" -DATTNSCOPE_WARPS="$warps" -DATTNSCOPE_FEATURED="$featured" \
    -DATTNSCOPE_BLOCKS="$blocks" -o "$out/f32_${e}_${tiles}_${keys}_${warps}_${featured}.cubin" 2>&1 | grep -E 'error|registers|spill' || true
done
