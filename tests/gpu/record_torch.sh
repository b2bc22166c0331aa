#!/usr/bin/env bash
# Records tests/gpu/record_torch.py and checks what explain finds: kernels per call and true occupancies.
# Usage: record_torch.sh ATTNSCOPE BUNDLE_FOLDER OUT
set -uo pipefail
attnscope=$1 out=$3
here=$(cd "$(dirname "$0")" && pwd)
export ATTNSCOPE_INJECT=$2/lib/libattnscope_inject.so
trace=$out/record_torch.json.gz
python3 "$here/record_torch.py" "$out/plain.json" >/dev/null 2>&1
"$attnscope" record -o "$trace" -- python3 "$here/record_torch.py" "$out/recorded.json" >"$out/record.log" 2>&1
cat "$out/record.log"
python3 - "$out" <<'PY'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
plain, recorded = (json.loads((out / f"{n}.json").read_text())["host_us_per_call"] for n in ("plain", "recorded"))
print(f"host time of a small call: {plain:.1f} us without, {recorded:.1f} us under record")
(out / "record_cost.json").write_text(json.dumps({"plain_us_per_call": plain, "recorded_us_per_call": recorded}))
PY
"$attnscope" explain "$trace" --json "$out/record_torch.explain.json" | head -60
python3 - "$out/record_torch.explain.json" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
kernels = {r["name"]: r for r in report["ranges"] if r["name"] in ("flash", "cudnn", "math")}
ok = True
for name, expected in (("flash", 1), ("cudnn", 1), ("math", 20)):
    r = kernels.get(name)
    got = r["own_thread"]["kernels"] / r["calls"] if r else None
    print(f"{name}: {got} kernels per call, expected {expected}")
    ok &= got == expected
for k in report["kernels"]:
    if "flash" in k["name"]:
        print(k["name"][:90], k.get("occupancy_theoretical_pct"), k.get("occupancy_limiter"))
sys.exit(not ok)
PY
