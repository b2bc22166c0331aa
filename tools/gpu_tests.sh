#!/usr/bin/env bash
# Runs everything that needs a GPU, from the bundle that tools/gpu_bundle made: tests, compare, PyTorch's figures beside
# ours, record, compute-sanitizer. A step that fails is noted and the rest goes on. Results are JSON and logs in OUT.
# Usage: tools/gpu_tests.sh BUNDLE.tar.xz OUT [step …]   steps: machine tests compare peers record sanitizer
set -uo pipefail
bundle=${1:?bundle}
out=${2:?output folder}
shift 2
steps=${*:-machine tests compare peers record sanitizer}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xJf "$bundle" -C "$work" || exit 1
export LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export ATTNSCOPE_LIBRARY="$work/lib/libattnscope.so" PYTHONPATH="$root/python${PYTHONPATH:+:$PYTHONPATH}"
attnscope="$work/bin/attnscope"
summary="$out/summary.txt"
: > "$summary"

# note NAME LIMIT COMMAND…: runs, keeps the log, writes one line.
note() {
  local name=$1 limit=$2 began code
  shift 2
  began=$(date +%s.%N)
  timeout "$limit" "$@" > "$work/$name.log" 2>&1
  code=$?
  printf '%-28s exit %-3s %6.1f s\n' "$name" "$code" "$(python3 -c "import time; print(time.time() - $began)")" | tee -a "$summary"
  { echo "==== $name (exit $code)"; tail -c 60000 "$work/$name.log"; } >> "$out/log.txt"
  return $code
}

for step in $steps; do
  case $step in
    machine)
      nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv > "$out/machine.csv" 2>&1
      note doctor 60 "$attnscope" doctor ;;
    tests)
      for test in "$work"/tests/*_test; do
        note "$(basename "$test")" 200 "$test" --gtest_brief=1
      done ;;
    compare)
      note compare 120 "$attnscope" compare --device cuda --json "$work/compare.json"
      cp "$work/compare.json" "$out/" 2>/dev/null ;;
    peers)
      note peers 200 python3 "$root/bench/gpu_vs_torch/peers.py" --json "$out/peers.json" ;;
    record)
      note record 120 bash "$root/tests/gpu/record_torch.sh" "$attnscope" "$work" "$out" ;;
    sanitizer)
      for tool in memcheck racecheck; do
        note "sanitizer-$tool" 150 compute-sanitizer --tool "$tool" --error-exitcode 9 \
          "$work/tests/backends_cuda_conformance_test" --gtest_brief=1 --gtest_filter='*EveryLayout/bf16:*Windows/bf16'
      done ;;
    *) echo "no step $step" >&2 ;;
  esac
done
cat "$summary"
