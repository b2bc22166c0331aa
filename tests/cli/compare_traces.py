"""The traces that compare writes say in explain what compare's JSON says.

    compare_traces.py ATTNSCOPE [--device cpu|cuda] [more options of compare]

For every variant that ran: kernels, copies and fills of a call; each kernel's name, count, time, registers, shared memory and
occupancy; and Perfetto's rules for the file (complete events with a duration, flows in pairs, every launch's correlation met).
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ATTNSCOPE, OPTIONS = sys.argv[1], sys.argv[2:] or ["--device", "cpu", "--shape", "1,2,64,32", "--min-time", "0.01"]
problems = []


def expect(variant, what, got, wanted):
    if got != wanted:
        problems.append(f"{variant}: {what}: explain says {got}, compare {wanted}")


def near(a, b, slack):
    return abs(a - b) <= slack * max(abs(a), abs(b), 1e-9)


def check_counts(variant, report):
    name, calls = variant["name"], variant["recorded_calls"]
    ranges = {r["name"]: r for r in report["ranges"]}
    seen = ranges["attn_fwd"]["process"]
    for kind in ("kernels", "copies", "fills"):
        expect(name, kind, seen[kind], calls * variant[f"{kind}_per_forward"])
    per_call = sum(row["time_us"] for row in variant["kernels"])
    if not near(seen["device_us"], calls * per_call, 0.005):
        problems.append(f"{name}: device time: explain {seen['device_us']:.3f} us, compare {calls * per_call:.3f} us")


def check_kernels(variant, report):
    name, calls = variant["name"], variant["recorded_calls"]
    wanted, example = collections.Counter(), {}
    for row in variant["kernels"]:
        wanted[row["name"]] += calls
        example[row["name"]] = row
    got = collections.Counter()
    for kernel in report["kernels"]:
        got[kernel["name"]] += kernel["count"]
        row = example.get(kernel["name"])
        if row is None or row["event"] != "kernel" or row["registers"] is None:
            continue
        expect(name, f"registers of {kernel['name'][:50]}", kernel["registers"], row["registers"])
        expect(name, f"occupancy of {kernel['name'][:50]}", kernel["occupancy_theoretical_pct"], row["occupancy_pct"])
    expect(name, "names and counts", dict(got), dict(wanted))


def check_format(name, path):
    events = json.loads(path.read_text())["traceEvents"]
    starts, ends = collections.Counter(), collections.Counter()
    for event in events:
        phase = event["ph"]
        if phase == "X" and not (event["dur"] >= 0 and event["ts"] >= 0 and "pid" in event and "tid" in event):
            problems.append(f"{name}: not a complete event: {event}")
        if phase in "sf":
            (starts if phase == "s" else ends)[(event["cat"], event["id"])] += 1
            if phase == "f" and event.get("bp") != "e":
                problems.append(f"{name}: a flow's end binds to no slice: {event}")
    if starts != ends:
        problems.append(f"{name}: {sum(starts.values())} flows begin, {sum(ends.values())} end")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([ATTNSCOPE, "compare", *OPTIONS, "--json", folder / "compare.json", "--trace-dir", folder / "traces"],
                       check=True, stdout=subprocess.DEVNULL)
        compared = [v for v in json.loads((folder / "compare.json").read_text())["variants"] if v["status"] == "ok"]
        for variant in compared:
            path = folder / "traces" / (variant["name"] + ".json")
            text = subprocess.run([ATTNSCOPE, "explain", path, "--json", "-"], check=False, capture_output=True, text=True).stdout
            report = json.loads(text)
            check_counts(variant, report)
            check_kernels(variant, report)
            check_format(variant["name"], path)
    print("\n".join(problems) or f"{len(compared)} variants: explain and compare agree: {', '.join(v['name'] for v in compared)}")
    return 1 if problems or not compared else 0


sys.exit(main())
