#!/bin/bash
# compile.sh OUT SRC VARIANTS: one cubin for sm_90 a row (name E m-tiles warps keys blocks stages features), in parallel
out=$1; src=$2; list=$3; mkdir -p $out
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
while read name E MT W K B S F extra; do
  for t in Bf16 $([[ $name == d64_k128 || $name == d128_k64 || $name == f64_k64 ]] && echo F16); do
    echo "$nvcc -std=c++20 -I$src -gencode arch=compute_80,code=sm_90 -Xptxas -v -DATTNSCOPE_E=$E -DATTNSCOPE_MTILES=$MT -DATTNSCOPE_WARPS=$W -DATTNSCOPE_KEYS=$K -DATTNSCOPE_BLOCKS=$B -DATTNSCOPE_STAGES=$S -DATTNSCOPE_FEATURES=$F -DATTNSCOPE_TYPE=k$t $extra -cubin $src/backends/cuda_mma/image/entry.cu -o $out/$name.$t.cubin > $out/$name.$t.log 2>&1"
  done
done < $list | tac | xargs -P 16 -I{} bash -c "{}"
grep -l error $out/*.log
