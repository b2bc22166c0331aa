"""Builds the featured images that the library embeds, and the plain ones to compare with: featured_build.py OUT_FOLDER

Writes OUT_FOLDER/manifest.json and OUT_FOLDER/plain/manifest.json; prints spills.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = f"{ROOT}/src/backends/cuda_flash_sm90"
FLAGS = ["-std=c++20", f"-I{ROOT}/src", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v"]


def rows(file, fields):
    return [r.split() for r in re.findall(r'^  "([^"]+)"\)?$', open(file).read(), re.M) if len(r.split()) == fields and r[0].isdigit()]


def compile_image(folder, source, info, macros):
    result = subprocess.run(["nvcc", *FLAGS, *(f"-DATTNSCOPE_{k}={v}" for k, v in macros.items()), source, "-o", f"{folder}/{info['file']}"],
                            capture_output=True, text=True)
    log = result.stdout + result.stderr
    spill = re.search(r"([1-9]\d*) bytes spill stores", log)
    if result.returncode or spill: print(info["name"], spill[0] if spill else log[-300:])
    return None if result.returncode else info


def main():
    folder = sys.argv[1]
    os.makedirs(folder + "/plain", exist_ok=True)
    featured, plain = [], []
    for type_name in ("kBf16", "kF16"):
        dtype = type_name[1:].lower()
        for e, ev, keys, groups, order, transform, store, mask, mask_stages, q_stages in rows(f"{FOLDER}/featured/images.cmake", 10):
            name = f"e{e}_v{ev}_{mask[1:].lower()}_{dtype}"
            featured.append((dict(name=name, file=name + ".cubin", e=int(e), ev=int(ev), columns=int(keys), consumers=int(groups), dtype=dtype,
                                  transform=False, any_output=False, mask=mask[1:].lower()),
                             dict(E=e, EV=ev, COLUMNS=keys, CONSUMERS=groups, ORDER=order, TRANSFORM=transform, STORE=store, TYPE=type_name,
                                  MASK=mask, MASK_STAGES=mask_stages, Q_STAGES=q_stages)))
        for e, ev, keys, groups, order, transform, store in rows(f"{FOLDER}/featured/images.cmake", 7):
            name = f"e{e}_v{ev}_t{transform}_{dtype}" + ("_any" if store == "kElements" else "")
            featured.append((dict(name=name, file=name + ".cubin", e=int(e), ev=int(ev), columns=int(keys), consumers=int(groups), dtype=dtype,
                                  transform=transform == "1", any_output=store == "kElements"),
                             dict(E=e, EV=ev, COLUMNS=keys, CONSUMERS=groups, ORDER=order, TRANSFORM=transform, STORE=store, TYPE=type_name)))
        for e, ev, keys, groups, causal, order, store in rows(f"{FOLDER}/images.cmake", 7):
            name = f"e{e}_v{ev}_k{keys}_w{groups}_c{causal}_{dtype}" + ("_any" if store == "kElements" else "")
            if dtype == "bf16":
                plain.append((dict(name=name, file=name + ".cubin", e=int(e), ev=int(ev), columns=int(keys), consumers=int(groups), dtype=dtype,
                                   causal=causal == "1", any_output=store == "kElements"),
                              dict(E=e, EV=ev, COLUMNS=keys, CONSUMERS=groups, CAUSAL=causal, ORDER=order, STORE=store, TYPE=type_name)))
    compile_image(folder, f"{FOLDER}/featured/kept.cu", dict(name="mask_tiles", file="mask_tiles.cubin"), {})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        first = pool.map(lambda j: compile_image(folder, f"{FOLDER}/featured/entry.cu", *j), featured)
        second = pool.map(lambda j: compile_image(folder + "/plain", f"{FOLDER}/image/entry.cu", *j), plain)
        json.dump([i for i in first if i], open(folder + "/manifest.json", "w"), indent=1)
        json.dump([i for i in second if i], open(folder + "/plain/manifest.json", "w"), indent=1)


main()
