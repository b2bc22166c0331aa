"""Times the featured images beside the plain ones and cuDNN: featured_timing.py FOLDER_OF_featured_build OUT_FOLDER [ROW_REGEX]

Windows against their share of key steps, packed sequences against the same work dense.
"""

import json
import random
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from launcher import Image
from featured_launcher import Featured
only = sys.argv[3] if len(sys.argv) > 3 else "."
plain_m, feat_m, out = sys.argv[1] + "/plain/manifest.json", sys.argv[1] + "/manifest.json", sys.argv[2]
torch.zeros(1, device="cuda")
load = lambda cls, m: {i["name"]: cls({**i, "use_e": i["e"], "use_ev": i["ev"]}, m.rsplit("/", 1)[0]) for i in json.load(open(m))}
plain, feat = load(Image, plain_m), load(Featured, feat_m)
flush = torch.empty(32 * 2**20, dtype=torch.int32, device="cuda")
record, began = [], time.time()
def rnd(*s): return torch.randn(*s, device="cuda").to(torch.bfloat16)
def measure(title, calls, rounds=3, budget=6.0):
    if not re.search(only, title): return
    times = {n: [] for n in calls}; guess = {}
    for n, c in calls.items():
        a, z = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        c(); a.record(); c(); z.record(); z.synchronize(); guess[n] = a.elapsed_time(z)
    for _ in range(rounds):
        for n, c in calls.items():
            pairs = []
            for _ in range(max(2, min(15, int(budget / (guess[n] + 0.06))))):
                flush.zero_(); torch.cuda._sleep(200_000)
                a, z = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                a.record(); c(); z.record(); pairs.append((a, z))
            torch.cuda.synchronize(); times[n].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
    us = {n: statistics.median(t) for n, t in times.items()}
    base = next(iter(us.values()))
    print(f"{title}: " + " · ".join(f"{n} {t:.1f} ({t / base:.3f})" for n, t in us.items()), flush=True)
    record.append({"row": title, "us": us, "rounds": times}); json.dump(record, open(out + "/flash_featured.json", "w"), indent=1)
def cudnn(q, k, v, causal):
    def call():
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]): return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return call
def feats(names, q, k, v, f, o, groups=(None,)):
    return {f"{n}{'' if g is None else f'/g{g}'}": feat[n].prepare(q, k, v, o, None, f, group_heads=g) for n in names if n in feat for g in groups}
# The plain kernel's requests on both
short = lambda d: (f"e{d}_v{d}_t0",)
for b, h, s, d, c in ((4, 16, 4096, 128, 1), (4, 16, 4096, 128, 0), (2, 8, 4096, 256, 1), (4, 16, 4096, 64, 1), (4, 16, 4096, 64, 0)):
    q, k, v = rnd(b, h, s, d), rnd(b, h, s, d), rnd(b, h, s, d); o = torch.empty_like(q)
    calls = {"cudnn": cudnn(q, k, v, bool(c))}
    for n, i in plain.items():
        if i.e == d and i.causal == bool(c) and not i.any_output: calls[n] = i.prepare(q, k, v, o, None, d**-0.5)
    calls.update(feats([n for n in feat if n.startswith(short(d)) and n.endswith("bf16")], q, k, v, dict(causal=bool(c)), o))
    measure(f"{b},{h},{s},{d} {'causal' if c else 'full'}", calls, 5)
# window
for d, h in ((128, 16), (64, 16), (256, 8)):
    q, k, v = rnd(1, h, 16384, d), rnd(1, h, 16384, d), rnd(1, h, 16384, d); o = torch.empty_like(q)
    p = [i for i in plain.values() if i.e == d and i.causal and not i.any_output][0]
    calls = {"plain causal": p.prepare(q, k, v, o, None, d**-0.5)}
    names = [n for n in feat if n.startswith(short(d)) and n.endswith("bf16")]
    calls.update(feats(names, q, k, v, dict(causal=True, left=1024), o, (h, h // 2, 4)))
    measure(f"window 1024 of 1,{h},16384,{d}", calls)
    if not re.search(only, f"window 1024 of 1,{h},16384,{d}"): continue
    img = feat[names[0]]; R, C = img.rows, img.columns
    steps = lambda left: sum(-(-min((m + 1) * R, 16384) // C) - (0 if left < 0 else max(0, m * R - left) // C) for m in range(-(-16384 // R)))
    us = record[-1]["us"]; base = us["plain causal"]
    print("    share of steps %.4f: " % (steps(1024) / steps(-1)) + " ".join(f"{n} x{us[n] / base / (steps(1024) / steps(-1)):.3f}" for n in us if n != "plain causal"), flush=True)
# packed
for d, h, n, s in ((128, 16, 8, 2048), (128, 16, 16, 1024), (64, 16, 8, 2048), (256, 8, 8, 2048)):
    for c in (True, False):
        q, k, v = rnd(n, h, s, d), rnd(n, h, s, d), rnd(n, h, s, d); o = torch.empty_like(q)
        ps = [i for i in plain.values() if i.e == d and i.causal == c and not i.any_output]
        calls = {"plain dense" + str(i.consumers): i.prepare(q, k, v, o, None, d**-0.5) for i in ps}
        P = lambda t: t.transpose(0, 1).reshape(1, h, n * s, d).contiguous()
        cu = torch.arange(n + 1, device="cuda", dtype=torch.int32) * s
        pq, pk, pv = P(q), P(k), P(v); po = torch.empty_like(pq)
        names = [x for x in feat if x.startswith(short(d)) and x.endswith("bf16")]
        calls.update(feats(names, pq, pk, pv, dict(causal=c, cu_q=cu, cu_k=cu), po, (None, 33) if c else (None, 1)))
        measure(f"packed {n} x {s}, {h} heads, {d} {'causal' if c else 'full'}", calls, 3, 3.0)
# packed, unequal lengths, beside the featured dense call of the mean length
random.seed(1)
for c in (True, False):
    h, d, n = 16, 128, 24
    lens = [random.randint(64, 2048) for _ in range(n)]; total = sum(lens)
    cu = torch.tensor([0] + [sum(lens[: i + 1]) for i in range(n)], device="cuda", dtype=torch.int32)
    q, k, v = rnd(1, h, total, d), rnd(1, h, total, d), rnd(1, h, total, d); o = torch.empty_like(q)
    m = int((sum(x * x for x in lens) / n) ** 0.5)
    dq, dk, dv = rnd(n, h, m, d), rnd(n, h, m, d), rnd(n, h, m, d); do = torch.empty_like(dq)
    p = [i for i in plain.values() if i.e == d and i.causal == c and not i.any_output][0]
    calls = {f"plain {n} x {m}": p.prepare(dq, dk, dv, do, None, d**-0.5)}
    calls.update(feats(["e128_v128_t0_bf16"], q, k, v, dict(causal=c, cu_q=cu, cu_k=cu), o, (None, 33, 1)))
    measure(f"packed {n} unequal, rms {m}, {'causal' if c else 'full'}", calls)
print(f"timing took {time.time() - began:.0f} s")
