"""The bound that decode is measured against: kernels that only read as many bytes, timed as harness.py does.

  python3 reader.py READER.cubin OUT_FOLDER      (nvcc -cubin -arch=sm_90 reader.cu -o READER.cubin)
"""

import json
import sys

import torch

from harness import Timing
from launcher import Reader

MODES = ("a run of K and one of V each", "side by side", "from a counter")
WAYS = ((1, 16384, 12), (1, 32768, 6), (1, 8192, 24), (8, 8192, 3), (8, 4096, 6), (8, 4096, 3))  # warps, chunk, stages


def main():
    torch.zeros(1, device="cuda")
    reader, timing, record = Reader(sys.argv[1]), Timing(), {}
    for name, mib in (("16x8k", 512), ("1x8k", 32)):
        data = torch.zeros(mib * 2**20, dtype=torch.uint8, device="cuda")
        one = torch.zeros(1, device="cuda")
        calls = {"empty": one.zero_}
        for blocks in (64, 128, 132, 264):
            if blocks == 64 and mib > 100: continue
            for mode, how in enumerate(MODES):
                for warps, chunk, stages in WAYS:
                    if blocks == 264: stages //= 2
                    for policy, hint in enumerate(("evict_first", "evict_unchanged")):
                        label = f"{blocks} blocks, {how}, {warps} warps x {stages} x {chunk} B, {hint}"
                        calls[label] = reader.prepare(data, blocks, warps, chunk, stages, mode, policy)
        for call in calls.values(): call()
        torch.cuda.synchronize()
        times = timing.rounds(calls, 3, 2.0)
        record[name] = times
        best = sorted((t, n) for n, t in times.items() if n != "empty")
        print(f"reader {name}: empty {times['empty']:.1f}")
        for how in MODES:
            t, n = next(x for x in best if how in x[1])
            print(f"   {t:.1f} ({mib * 2**20 / t / 1e6:.2f} TB/s): {n}")
        json.dump(record, open(f"{sys.argv[2]}/reader.json", "w"), indent=1)


main()
