"""Builds flash_forward images: python3 build_images.py OUT_FOLDER NAME=KEY:VALUE,… …  (keys: the macros of image/entry.cu)

Fails on a spill or a lost warp-group optimisation (ptxas C75xx) unless --lenient.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFAULT = {"e": 128, "columns": 128, "consumers": 2, "causal": 0, "store": "kStaged", "order": "kProducts", "q_stages": 1, "type": "kBf16"}


def build(folder, name, macros):
    values = {**DEFAULT, **macros}
    known = set(DEFAULT) | {"ev", "kv_stages"}
    flags = [f"-DATTNSCOPE_{k.upper()}={v}" for k, v in values.items()]
    command = ["nvcc", "-std=c++20", f"-I{ROOT}/src", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", *flags,
               f"{ROOT}/src/backends/cuda_flash_sm90/image/entry.cu", "-o", f"{folder}/{name}.cubin"]
    text = subprocess.run(command, capture_output=True, text=True)
    log = text.stdout + text.stderr
    if text.returncode: return None, log
    spills = re.search(r"(\d+) bytes spill stores", log)
    notes = [line for line in log.splitlines() if "C75" in line]
    bad = int(spills.group(1)) if spills else 0
    info = {"name": name, "file": f"{name}.cubin", "e": int(values["e"]), "ev": int(values.get("ev", values["e"])),
            "columns": int(values["columns"]), "consumers": int(values["consumers"]), "causal": bool(int(values["causal"])),
            "dtype": {"kBf16": "bf16", "kF16": "f16"}[values["type"]], "macros": values,
            "spill_bytes": bad}
    return info, f"{name}: spills {bad} B; " + "; ".join(n[:100] for n in notes)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    jobs = []
    for argument in sys.argv[2:]:
        name, _, rest = argument.partition("=")
        jobs.append((name, dict(pair.split(":") for pair in rest.split(",") if pair)))
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda job: build(folder, *job), jobs))
    for _, log in done: print(log)
    json.dump([info for info, _ in done if info], open(f"{folder}/manifest.json", "w"), indent=1)


main()
