"""Images that must fail and images that must not: mutants.py OUT_FOLDER

Each wait of the kernel removed on purpose must be caught by harness.py's checks (expect: wrong): racecheck does not
see what the copy engine writes. Delays at the roles' hand-over points must change nothing (expect: right).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KERNEL = "backends/cuda_flash_sm90/kernel.cuh"
DELAY = "__nanosleep((clock() * 2654435761u >> 7) % 3000u);"
MUTANTS = {  # name: (expectation, text, replacement)
    "no_k_empty": ("wrong", "barrier_wait(shared.k_empty[slot.stage], slot.parity ^ 1);", ""),
    "no_v_empty": ("wrong", "barrier_wait(shared.v_empty[slot.stage], slot.parity ^ 1);", ""),
    "no_q_empty": ("wrong", "barrier_wait(shared.q_empty[q_slot.stage][w], q_slot.parity ^ 1);", ""),
    "no_k_full": ("wrong", "barrier_wait(shared.k_full[k_slot.stage], k_slot.parity);", ""),
    "no_v_full": ("wrong", "barrier_wait(shared.v_full[v_slot.stage], v_slot.parity);", ""),
    "no_q_full": ("wrong", "barrier_wait(shared.q_full[q_slot.stage][warpgroup], q_slot.parity);", ""),
    "no_store_wait": ("wrong", "tma_store_wait_read();", "{}"),
    "slow_producer": ("right", "barrier_wait(shared.k_empty[slot.stage], slot.parity ^ 1);",
                      "barrier_wait(shared.k_empty[slot.stage], slot.parity ^ 1); " + DELAY),
    "slow_values": ("right", "barrier_wait(shared.v_empty[slot.stage], slot.parity ^ 1);",
                    "barrier_wait(shared.v_empty[slot.stage], slot.parity ^ 1); " + DELAY),
    "slow_warps": ("right", "bool moved = move_reference(0);", "bool moved = move_reference(0); " + DELAY),
    "slow_epilogue": ("right", "const Tile<C> tile(p, turn);\n    const int t = thread_again();",
                      "const Tile<C> tile(p, turn);\n    const int t = thread_again(); " + DELAY),
}


def build(out, name, expect, text, replacement):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(f"{ROOT}/src", f"{folder}/src")
        source = open(f"{folder}/src/{KERNEL}").read()
        if text not in source: sys.exit(f"{name}: the kernel has no '{text}' any more")
        open(f"{folder}/src/{KERNEL}", "w").write(source.replace(text, replacement))
        subprocess.run(["nvcc", "-std=c++20", f"-I{folder}/src", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-DATTNSCOPE_E=128",
                        "-DATTNSCOPE_COLUMNS=128", "-DATTNSCOPE_CAUSAL=1", f"{folder}/src/backends/cuda_flash_sm90/image/entry.cu",
                        "-o", f"{out}/{name}.cubin"], check=True)
    return {"name": name, "file": f"{name}.cubin", "e": 128, "ev": 128, "columns": 128, "consumers": 2, "causal": True, "dtype": "bf16",
            "expect": expect}


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        infos = list(pool.map(lambda item: build(out, item[0], *item[1]), MUTANTS.items()))
    json.dump(infos, open(f"{out}/manifest.json", "w"), indent=1)


main()
