#!/usr/bin/env python3
"""Speed and memory of reading traces, beside Python's json in the same run.

  bench/trace_read/trace_read.py BUILD_DIR [--files FILE.json.gz ...] [--bytes 6.2e9] [--out RESULT.json]

Every file is read plain and from gzip, best of several by processor time; then a generated trace goes through
a pipe. Rates are plain megabytes (10^6) per second of one core's processor time; wall-clock rates stand beside.
"""
import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

REPEATS = 15


def reader(build, path, repeats=1, stdin=None):
    done = subprocess.run([f"{build}/bench/trace_read", path, str(repeats)], stdin=stdin, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def python_json(plain):
    """Best of three, processor time."""
    best = 1e30
    for _ in range(3):
        begin = time.process_time()
        json.loads(plain)
        best = min(best, time.process_time() - begin)
    return len(plain) / 1e6 / best


def measure_file(build, path):
    packed = open(path, "rb").read()
    plain = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    result = {"file": os.path.basename(path)}
    with tempfile.NamedTemporaryFile(suffix=".json") as copy:
        copy.write(plain)
        copy.flush()
        result["plain"] = reader(build, copy.name, REPEATS)
    if plain is not packed:
        result["gzip"] = reader(build, path, REPEATS)
    result["python_json_mb_per_cpu_s"] = round(python_json(plain))
    result["times_python"] = round(result["plain"]["read_and_link_mb_per_cpu_s"] / result["python_json_mb_per_cpu_s"], 1)
    return result


def measure_pipe(build, size):
    begin = time.monotonic()
    with subprocess.Popen([f"{build}/bench/generate_trace", str(size)], stdout=subprocess.PIPE) as source:
        result = reader(build, "-", stdin=source.stdout)
        source.stdout.close()
    result["wall_s"] = round(time.monotonic() - begin, 1)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--bytes", type=float, default=6.2e9)
    parser.add_argument("--out")
    args = parser.parse_args()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    result = {
        "schema": "attnscope.bench.trace_read/1",
        "machine": {"cpu": cpu, "cores": os.cpu_count(), "load_1min_before": os.getloadavg()[0], "system": platform.system()},
        "files": [measure_file(args.build, f) for f in args.files],
    }
    if args.bytes > 0:
        result["generated_through_a_pipe"] = measure_pipe(args.build, args.bytes)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        open(args.out, "w").write(text + "\n")


if __name__ == "__main__":
    main()
