"""Builds mla images: python3 build_images.py OUT_FOLDER NAME=ALIAS[:TYPE[:MACRO=VALUE]…] …

Writes manifest.json and the combine kernels; prints registers, spills and what ptxas gave up.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.environ.get("MLA_SOURCE", f"{ROOT}/src")


def nvcc(source, out, macros):
    done = subprocess.run(["nvcc", "-std=c++20", f"-I{SOURCE}", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v",
                           *[f"-D{k}={v}" for k, v in macros.items()], f"{SOURCE}/backends/cuda_mla/image/{source}.cu", "-o", out],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def build(folder, name, fields):
    alias, *rest = fields
    dtype = rest[0] if rest else "bf16"
    macros = {"ATTNSCOPE_ALIAS": alias, "ATTNSCOPE_TYPE": {"bf16": "kBf16", "f16": "kF16"}[dtype]}
    for extra in rest[1:]: macros.update([extra.split("=")])
    status, log = nvcc("forward", f"{folder}/{name}.cubin", macros)
    if status: return None, f"{name}: {log}"
    spills, registers = re.search(r"(\d+) bytes spill stores", log), re.search(r"Used (\d+) registers", log)
    lost = " ".join(sorted(set(re.findall(r"C75\d\d", log))))
    return (dict(name=name, file=f"{name}.cubin", alias=int(alias), dtype=dtype),
            f"{name}: {registers.group(1)} registers, spills {spills.group(1)} {lost}")


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    jobs = [(n, v.split(":")) for n, v in (a.split("=", 1) for a in sys.argv[2:])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tools = [pool.submit(nvcc, "combine", f"{folder}/combine_{t}.cubin", {"ATTNSCOPE_TYPE": k}) for t, k in (("bf16", "kBf16"), ("f16", "kF16"))]
        done = list(pool.map(lambda job: build(folder, *job), jobs))
        for t in tools:
            if t.result()[0]: print(t.result()[1])
    for _, log in done: print(log)
    json.dump([info for info, _ in done if info], open(f"{folder}/manifest.json", "w"), indent=1)


main()
