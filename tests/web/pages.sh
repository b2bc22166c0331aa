#!/usr/bin/env bash
# Makes pages of every kind and puts them through browser.py. Usage: pages.sh SOURCE_DIR BINARY_DIR
# The largest public trace is used when ../shared/traces/public lies beside the source; otherwise that is said.
set -euo pipefail
source_dir=$1 binary_dir=$2
attnscope=$binary_dir/bin/attnscope
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for trace in "$source_dir"/tests/data/traces/article/*.json.gz; do
  name=$(basename "$trace" .json.gz)
  "$attnscope" explain "$trace" --html "$work/explain_$name.html" >/dev/null
done
"$attnscope" explain "$source_dir/tests/web/hostile_names.json" --html "$work/explain_hostile.html" >/dev/null
"$attnscope" compare --shape 1,2,128,32 --causal --rounds 5 --html "$work/compare_cpu.html" >/dev/null
"$attnscope" compare --shape 1,2,64,32 --rounds 5 --sweep seq=32..128x2 head_dim=16,32 --html "$work/sweep_cpu.html" >/dev/null
largest=$(find "$source_dir/../shared/traces/public" -name '*.json.gz' -printf '%s %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
if [ -n "$largest" ]; then
  "$attnscope" explain "$largest" --html "$work/explain_largest.html" >/dev/null
else
  echo "skipped: no public traces beside the source"
fi
for page in "$work"/*.html; do
  size=$(stat -c %s "$page")
  data=$(sed -n 's/.*<script nonce="[^"]*" type="application\/json" id="data">//p' "$page" | wc -c)
  [ $((size - data)) -le 1500000 ] || { echo "BROKEN $(basename "$page"): $((size - data)) bytes without its data, limit 1,500,000"; exit 1; }
done
AXE_JS=$source_dir/build/deps/axe.min.js
if [ -e "$AXE_JS" ]; then export AXE_JS; else unset AXE_JS; fi
/usr/bin/python3 "$source_dir/tests/web/browser.py" "$work"/*.html ${SHOTS:+--shots "$SHOTS"}
