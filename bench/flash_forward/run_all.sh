#!/bin/sh
# Everything there is to know about the forward kernel on this GPU, into folder $1: images built as the library embeds
# them, checked against float64, mutants caught, memcheck and synccheck, then timed beside cuDNN and PyTorch flash.
set -u
out=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cd "$here" || exit 1
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
python3 build_images.py "$work/images" --embedded | grep -v 'spills 0 B; $'
python3 mutants.py "$work/mutants"
python3 -c "
import json
for i in json.load(open('$work/mutants/manifest.json')):
    json.dump([i], open('$work/mutants/' + i['name'] + '.json', 'w')); print(i['name'])" |
  xargs -P6 -I{} sh -c "timeout 40 python3 harness.py $work/mutants/{}.json $work --skip-time >$work/{}.txt 2>&1; status=\$?
    if [ \$status = 124 ]; then echo 'caught {}: hangs'; else grep -E 'caught|CAUGHT|right|WRONG|FAILED' $work/{}.txt | tail -1; fi" |
  tee "$out/mutants.txt"
for tool in memcheck synccheck; do
  for image in e64_v64_k128_w3_c1_bf16 e128_v128_k128_w2_c0_bf16 e256_v256_k80_w2_c1_bf16; do echo "$tool $image"; done
done | xargs -P6 -L1 sh -c "timeout 90 compute-sanitizer --tool \$0 --kernel-name kernel_substring=flash_forward python3 once.py $work/images/manifest.json \$1 1 3 700 1 2>&1 |
  grep 'ERROR SUMMARY' | sed \"s/^=* /\$0 \$1: /\"" | tee "$out/sanitizer.txt"
timeout 200 python3 harness.py "$work/images/manifest.json" "$out" --rounds 5 --budget-ms 8 --gqa --name flash_forward_h200 >"$out/log.txt" 2>&1
cat "$out/log.txt"
rm -rf "$work"
