"""Builds flash_forward images: python3 build_images.py OUT_FOLDER NAME=KEY:VALUE,… …  (keys: the macros of image/entry.cu)

--embedded instead of names builds those that the library embeds (images.cmake).

Prints spills and lost warp-group optimisations (ptxas C75xx).
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.environ.get("FLASH_SOURCE", f"{ROOT}/src")  # another tree, to try a change
DEFAULT = {"e": 128, "columns": 128, "consumers": 2, "causal": 0, "store": "kStaged", "order": "kProducts", "q_stages": 1, "type": "kBf16"}


def build(folder, name, macros):
    values = {**DEFAULT, **macros}
    flags = [f"-DATTNSCOPE_{k.upper()}={v}" for k, v in values.items()]
    command = ["nvcc", "-std=c++20", f"-I{SOURCE}", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", *flags,
               f"{SOURCE}/backends/cuda_flash_sm90/image/entry.cu", "-o", f"{folder}/{name}.cubin"]
    text = subprocess.run(command, capture_output=True, text=True)
    log = text.stdout + text.stderr
    if text.returncode: return None, log
    spills = re.search(r"(\d+) bytes spill stores", log)
    notes = [line for line in log.splitlines() if "C75" in line]
    bad = int(spills.group(1)) if spills else 0
    info = {"name": name, "file": f"{name}.cubin", "e": int(values["e"]), "ev": int(values.get("ev", values["e"])),
            "columns": int(values["columns"]), "consumers": int(values["consumers"]), "causal": bool(int(values["causal"])),
            "dtype": {"kBf16": "bf16", "kF16": "f16"}[values["type"]], "macros": values,
            "spill_bytes": bad, "any_output": values["store"] == "kElements"}
    return info, f"{name}: spills {bad} B; " + "; ".join(n[:100] for n in notes)


def embedded():
    """The rows of images.cmake as jobs."""
    text = open(f"{SOURCE}/backends/cuda_flash_sm90/images.cmake").read()
    jobs = []
    for row in re.findall(r'"(\d+ +\d+ [^"]*)"', text):
        e, ev, keys, warpgroups, causal, order, store = row.split()
        for type_name in ("kBf16", "kF16"):
            name = f"e{e}_v{ev}_k{keys}_w{warpgroups}_c{causal}_{type_name[1:].lower()}" + ("_any_output" if store == "kElements" else "")
            jobs.append((name, {"e": e, "ev": ev, "columns": keys, "consumers": warpgroups, "causal": causal, "order": order, "store": store,
                                "type": type_name}))
    return jobs


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    jobs = []
    if sys.argv[2:] == ["--embedded"]: jobs = embedded()
    for argument in [] if jobs else sys.argv[2:]:
        name, _, rest = argument.partition("=")
        jobs.append((name, dict(pair.split(":") for pair in rest.split(",") if pair)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda job: build(folder, *job), jobs))
    for _, log in done: print(log)
    json.dump([info for info, _ in done if info], open(f"{folder}/manifest.json", "w"), indent=1)


main()
