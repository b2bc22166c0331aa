#!/usr/bin/env bash
# `attnscope record` on a program with NVTX ranges and no GPU: it ends well, fails, crashes, is killed, forks; and what
# is refused. Usage: record_test.sh ATTNSCOPE INJECT_LIBRARY PROGRAM
set -uo pipefail
attnscope=$1 program=$3
export ATTNSCOPE_INJECT=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect EXIT TEXT COMMAND…: the exit code and a text on stderr
expect() {
  local code=$1 text=$2 got
  shift 2
  "$@" > "$work/out" 2> "$work/err"
  got=$?
  if [ "$got" -ne "$code" ] || ! grep -qF -- "$text" "$work/err"; then
    echo "FAILED: $* gave exit $got, expected $code and '$text':"
    cat "$work/err"
    failures=$((failures + 1))
  fi
}
# spans FILE NAME COUNT: how many events of a name a trace holds
spans() {
  local got
  got=$(python3 -c 'import json, sys; print(sum(e.get("name") == sys.argv[2] for e in json.load(open(sys.argv[1]))["traceEvents"]))' "$1" "$2")
  [ "$got" = "$3" ] || { echo "FAILED: $1 holds $got of $2, expected $3"; failures=$((failures + 1)); }
}

expect 0 "6 ranges" "$attnscope" record -o "$work/t.json" -- "$program"
spans "$work/t.json" attn_fwd 3
spans "$work/t.json" aten::mm 3
expect 3 "6 ranges" "$attnscope" record -o "$work/f.json" -- "$program" fail
expect 134 "signal 6" "$attnscope" record -o "$work/c.json" -- "$program" crash
spans "$work/c.json" attn_fwd 3
expect 137 "signal 9" "$attnscope" record -o "$work/k.json" -- "$program" kill
spans "$work/k.json" attn_fwd 3
expect 0 "process" "$attnscope" record -o "$work/o.json" -- "$program" fork
spans "$work/o.json" attn_fwd 3
child=$(ls "$work"/o.*.json)
spans "$child" "in the child" 1
spans "$child" attn_fwd 0
expect 0 "3 ranges" "$attnscope" record --steps attn_fwd -o "$work/s.json" -- "$program"
spans "$work/s.json" "ProfilerStep#2" 1
expect 4 "neither CUDA nor NVTX" "$attnscope" record -o "$work/n.json" -- true
expect 4 "neither CUDA nor NVTX" "$attnscope" record --ranges none -o "$work/n.json" -- "$program"
expect 2 "could not be run" "$attnscope" record -o "$work/n.json" -- "$work/no-such-program"
expect 2 "no length of time" "$attnscope" record --duration soon -o "$work/n.json" -- true
expect 3 "no folder" "$attnscope" record -o "$work/no/such/t.json" -- true
expect 2 "" "$attnscope" record -o "$work/n.json"
[ -z "$(ls -d /dev/shm/attnscope-* 2>/dev/null)" ] || echo "note: other recordings are running"
exit "$((failures > 0))"
