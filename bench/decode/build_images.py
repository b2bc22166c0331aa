"""Builds decode images: python3 build_images.py OUT_FOLDER NAME=E:EV:ROW_WARPS:TEAMS:UNITS:STAGES:BLOCKS_PER_SM[:TYPE[:PREFETCH]] …

PREFETCH 64, 128, 256.

Writes manifest.json, the joining and the appending kernels; prints registers and spills.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.environ.get("DECODE_SOURCE", f"{ROOT}/src")
EXTRA = os.environ.get("DECODE_FLAGS", "").split()


def nvcc(source, out, macros):
    done = subprocess.run(["nvcc", "-std=c++20", f"-I{SOURCE}", "-cubin", "-gencode", "arch=compute_90,code=sm_90", "-Xptxas", "-v", *EXTRA,
                           *[f"-DATTNSCOPE_{k}={v}" for k, v in macros.items()], f"{SOURCE}/backends/{source}.cu", "-o", out],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def build(folder, name, fields):
    e, ev, row_warps, teams, units, stages, blocks, *rest = fields
    dtype = rest[0] if rest else "bf16"
    extra = {}
    if len(rest) > 1: extra["L2_PREFETCH"] = f'".L2::{rest[1]}B"'
    status, log = nvcc("cuda_decode/image/forward", f"{folder}/{name}.cubin", dict(E=e, EV=ev, ROW_WARPS=row_warps, TEAMS=teams, UNITS=units, STAGES=stages,
                                                                 BLOCKS_PER_SM=blocks, TYPE={"bf16": "kBf16", "f16": "kF16"}[dtype], **extra))
    if status: return None, f"{name}: {log}"
    spills, registers = re.search(r"(\d+) bytes spill stores", log), re.search(r"Used (\d+) registers", log)
    info = dict(name=name, file=f"{name}.cubin", e=int(e), ev=int(ev), row_warps=int(row_warps), teams=int(teams), units=int(units),
                stages=int(stages), blocks_per_sm=int(blocks), dtype=dtype)
    return info, f"{name}: {registers.group(1)} registers, spills {spills.group(1)}"


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    jobs = [(n, v.split(":")) for n, v in (a.split("=") for a in sys.argv[2:])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tools = [pool.submit(nvcc, "cuda_decode/image/combine", f"{folder}/combine_{t}.cubin", dict(TYPE=k)) for t, k in (("bf16", "kBf16"), ("f16", "kF16"))]
        tools.append(pool.submit(nvcc, "cuda_append/image/entry", f"{folder}/append.cubin", {}))
        done = list(pool.map(lambda job: build(folder, *job), jobs))
        for t in tools:
            if t.result()[0]: print(t.result()[1])
    for _, log in done: print(log)
    json.dump([info for info, _ in done if info], open(f"{folder}/manifest.json", "w"), indent=1)


main()
