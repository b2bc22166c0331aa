"""Instances of the featured kernel between the embedded head sizes beside the embedded images over zeros: featured_sizes.py SOURCE_FOLDER OUT_FOLDER

Compiles both, compares their results, then times them interleaved: a window of 1024 and, with softcap, a causal mask.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from featured_launcher import Featured

SOURCE, OUT = sys.argv[1:3]
# E Ev · keys · warpgroups · turns · transform · stages of Q
EMBEDDED = ["64 64 128 3 kProducts 0 2", "128 128 128 2 kFree 0 2", "256 256 80 2 kFree 0 1", "128 128 128 2 kFree 1 2", "256 256 64 2 kFree 1 1"]
EXACT = ["48 64 128 3 kProducts 0 2", "80 96 128 2 kFree 0 2", "96 96 128 2 kFree 0 2", "96 96 144 2 kFree 0 2", "144 160 96 2 kFree 0 1", "144 160 112 2 kFree 0 1",
         "160 160 96 2 kFree 0 1", "160 160 112 2 kFree 0 1", "192 192 96 2 kFree 0 1", "192 192 80 2 kFree 0 1", "224 224 80 2 kFree 0 1",
         "96 96 128 2 kFree 1 2", "160 160 80 2 kFree 1 1", "160 160 96 2 kFree 1 1", "192 192 80 2 kFree 1 1", "192 192 96 2 kFree 1 1", "224 224 64 2 kFree 1 1"]


def build(row, embedded):
    e, ev, keys, groups, order, transform, q_stages = row.split()
    name = f"{'image' if embedded else 'exact'}_e{e}_v{ev}_k{keys}_t{transform}"
    began = time.time()
    done = subprocess.run(["nvcc", "-std=c++20", f"-I{SOURCE}", "-cubin", "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", f"-DATTNSCOPE_E={e}",
                           f"-DATTNSCOPE_EV={ev}", f"-DATTNSCOPE_COLUMNS={keys}", f"-DATTNSCOPE_CONSUMERS={groups}", f"-DATTNSCOPE_ORDER={order}",
                           f"-DATTNSCOPE_TRANSFORM={transform}", f"-DATTNSCOPE_Q_STAGES={q_stages}", "-DATTNSCOPE_STORE=kDirect", "-DATTNSCOPE_TYPE=kBf16",
                           f"{SOURCE}/backends/cuda_flash_sm90/featured/exact.cu", "-o", f"{OUT}/{name}.cubin"], capture_output=True, text=True)
    log = done.stdout + done.stderr
    spills = re.search(r"([1-9]\d*) bytes spill stores", log)
    if done.returncode or spills: print(name, spills[0] if spills else log[-300:])
    print(f"{name}: built in {time.time() - began:.1f} s", file=sys.stderr)
    return None if done.returncode else dict(name=name, file=name + ".cubin", e=int(e), ev=int(ev), use_e=int(e), use_ev=int(ev), columns=int(keys),
                                             consumers=int(groups), dtype="bf16", transform=transform == "1", any_output=False, embedded=embedded)


def main():
    os.makedirs(OUT, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        infos = [i for i in pool.map(lambda job: build(*job), [(r, True) for r in EMBEDDED] + [(r, False) for r in EXACT]) if i]
    torch.zeros(1, device="cuda")
    images = [Featured(i, OUT) for i in infos]
    flush, record = torch.empty(32 * 2**20, dtype=torch.int32, device="cuda"), {}
    for transform in (False, True):
        for d in (48, 80, 96, 144, 160, 192, 224):
            q, k, v = (torch.randn(4, 16, 4096, d, device="cuda").to(torch.bfloat16) for _ in range(3))
            features = dict(causal=True, softcap=20.0) if transform else dict(causal=True, left=1024)
            fit = [i for i in images if i.transform == transform and i.e >= d and i.ev >= d]
            least = min(i.e for i in fit if i.embedded)
            fit = [i for i in fit if (i.embedded and i.e == least) or (not i.embedded and i.e == d)]
            if len(fit) < 2: continue
            outs = {i.name: torch.full_like(q, float("nan")) for i in fit}
            calls = {i.name: i.prepare(q, k, v, outs[i.name], None, features) for i in fit}
            for call in calls.values(): call()
            torch.cuda.synchronize()
            want = outs[fit[0].name].double()
            for name, out in outs.items():
                error = ((out.double() - want).norm() / want.norm()).item()
                if not error < 5e-3: print(f"  WRONG {name} {d}: differs by {error:.2e}")
            times = {n: [] for n in calls}
            for _ in range(5):
                for name, call in calls.items():
                    pairs = []
                    for _ in range(5):
                        flush.zero_()
                        torch.cuda._sleep(150_000)
                        a, z = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                        a.record(); call(); z.record()
                        pairs.append((a, z))
                    torch.cuda.synchronize()
                    times[name].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
            us = {n: statistics.median(t) for n, t in times.items()}
            row = f"{d} {'softcap causal' if transform else 'window 1024'}"
            record[row] = us
            base = us[fit[0].name]
            print(f"{row}: " + ", ".join(f"{n} {t:.0f} (x{base / t:.3f})" for n, t in us.items()), flush=True)
            json.dump(record, open(f"{OUT}/featured_sizes.json", "w"), indent=1)


main()
