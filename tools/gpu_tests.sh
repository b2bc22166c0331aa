#!/usr/bin/env bash
# Runs everything that needs a GPU, from the bundle that tools/gpu_bundle made: tests, compare, PyTorch's figures beside
# ours, record, compute-sanitizer. A step that fails is noted and the rest goes on. Results are JSON and logs in OUT.
# Usage: tools/gpu_tests.sh BUNDLE.tar.xz OUT [step …]   steps: machine tests compare tune traces peers record sanitizer
# SANITIZER_SECONDS and TUNE_SECONDS bound those steps (300 each), SANITIZER_JOBS run side by side (as many as processors).
set -uo pipefail
bundle=${1:?bundle}
out=${2:?output folder}
shift 2
steps=${*:-machine tests compare tune traces peers record sanitizer}
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
  printf '{"step": "%s", "exit": %s}\n' "$name" "$code" >> "$work/steps.jsonl"
  { echo "==== $name (exit $code)"; tail -c 60000 "$work/$name.log"; } >> "$out/log.txt"
  return $code
}

for step in $steps; do
  case $step in
    machine)
      nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.max.sm --format=csv > "$out/machine.csv" 2>&1
      note doctor 60 "$attnscope" doctor ;;
    tests)
      # Side by side, but for the one that looks at free memory and at CUPTI's counts.
      for test in "$work"/tests/*_test; do
        [[ $test == *cuda_backend_test ]] || note "$(basename "$test")" 200 "$test" --gtest_brief=1 &
      done
      wait
      note backends_cuda_backend_test 200 "$work"/tests/backends_cuda_backend_test --gtest_brief=1
      note record_without_gpu 60 bash "$root/tests/gpu/record_test.sh" "$attnscope" "$work/lib/libattnscope_inject.so" "$work/tests/nvtx_program" ;;
    compare)
      note compare 120 "$attnscope" compare --device cuda --json "$work/compare.json"
      cp "$work/compare.json" "$out/" 2>/dev/null ;;
    tune)  # the order of the backends here, as src/attention/orders/ holds it
      note tune "${TUNE_SECONDS:-300}" "$attnscope" compare --tune --device cuda --min-time 0.02 --tune-output "$work/tuned.order" --json "$work/tune.json"
      cp "$work/tuned.order" "$work/tune.json" "$out/" 2>/dev/null ;;
    traces) note compare_traces 100 python3 "$root/tests/cli/compare_traces.py" "$attnscope" --device cuda --min-time 0.02 ;;
    peers)
      note peers 200 python3 "$root/bench/gpu_vs_torch/peers.py" --json "$out/peers.json" ;;
    record)
      note record 120 bash "$root/tests/gpu/record_torch.sh" "$attnscope" "$work" "$out" ;;
    sanitizer)
      # memcheck and synccheck see every kernel, the libraries' too; each test is a run of its own, many side by side. What is
      # not done in time is listed as such. cuDNN's kernels are left out of synccheck: they hold more barriers than it tracks
      # ("overflow of tracked cuda::barrier structures"), and then fail to launch under it. racecheck cannot run cuBLAS's kernels
      # for 16-bit data (it ends with an error of its own), so it gets f32 and our kernels; it does not see what TMA writes.
      for tool in memcheck synccheck; do
        for name in cuda_conformance cuda_decode cuda_mla mma_gpu flash_sm90_gpu efficient_sm90_gpu efficient_f32_gpu; do
          "$work/tests/backends_${name}_test" --gtest_list_tests | awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}' |
            grep -vE '/f16$' | sed "s#^#$tool backends_${name}_test #"
        done
      done > "$work/jobs"
      echo 'racecheck backends_cuda_conformance_test *EveryLayout/f32:*Windows/f32' >> "$work/jobs"
      export work out
      # shellcheck disable=SC2016
      timeout "${SANITIZER_SECONDS:-300}" xargs -P "${SANITIZER_JOBS:-$(nproc)}" -L 1 bash -c '
        log=$work/$BASHPID.san  # BASHPID is another one in a redirection
        options=(); [ "$0" = racecheck ] && options=(--kernel-name kns=attnscope)
        [ "$0" = synccheck ] && options=(--kernel-name-exclude kns=cudnn)
        compute-sanitizer --tool "$0" --error-exitcode 9 "${options[@]}" "$work/tests/$1" --gtest_brief=1 "--gtest_filter=$2" > "$log" 2>&1
        code=$?
        echo "$code $0 $1 $2: $(grep "ERROR SUMMARY" "$log" | tail -1)" >> "$work/sanitized"
        [ $code = 0 ] || { echo "== $0 $1 $2"; head -c 3000 "$log"; } >> "$out/sanitizer_messages.txt"' < "$work/jobs"
      sort "$work/sanitized" > "$out/sanitizer.txt"
      printf 'sanitizer: %s of %s runs ended, %s clean\n' "$(wc -l < "$out/sanitizer.txt")" "$(wc -l < "$work/jobs")" "$(grep -c '^0 ' "$out/sanitizer.txt")" | tee -a "$summary"
      printf '{"step": "sanitizer", "runs": %s, "ended": %s, "clean": %s}\n' "$(wc -l < "$work/jobs")" "$(wc -l < "$out/sanitizer.txt")" \
        "$(grep -c '^0 ' "$out/sanitizer.txt")" >> "$work/steps.jsonl" ;;
    *) echo "no step $step" >&2 ;;
  esac
done
cat "$summary"
# One JSON for bench/results/: the machine, every step's outcome, what record found.
python3 - "$work/steps.jsonl" "$out" <<'PY'
import json, pathlib, sys
steps, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
result = {"schema": "attnscope.gpu_tests/1", "steps": [json.loads(line) for line in steps.read_text().splitlines()] if steps.exists() else []}
machine, record = out / "machine.csv", out / "record_torch.explain.json"
if machine.exists():
    result["machine"] = machine.read_text().splitlines()
if record.exists():
    report = json.loads(record.read_text())
    result["record_torch"] = {"ranges": [r for r in report["ranges"] if r["name"] in ("flash", "cudnn", "math")],
                              "occupancies": sorted({(k["name"][:80], k.get("occupancy_theoretical_pct"), k.get("occupancy_limiter"))
                                                     for k in report["kernels"] if "flash" in k["name"]})}
cost = out / "record_cost.json"
if cost.exists():
    result["record_cost"] = json.loads(cost.read_text())
(out / "gpu_tests.json").write_text(json.dumps(result, indent=1) + "\n")
PY
