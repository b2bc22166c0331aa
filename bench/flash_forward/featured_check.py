"""Every feature of the featured images against float64: featured_check.py MANIFEST [IMAGE_REGEX] [CASE_REGEX]

Outputs lie in poisoned larger buffers; every element is compared, NaN and infinities by position, then the relative L2 error and the LSE.
"""

import json
import os
import re
import sys
import time

import numpy as np
import torch
from featured_launcher import Featured

def philox(seed, offset, row, key):
    """numpy uint64 arrays row, key -> words"""
    M = np.uint64(0xFFFFFFFF)
    key = np.broadcast_to(key, np.broadcast_shapes(key.shape, row.shape)); row = np.broadcast_to(row, key.shape)
    group = key >> np.uint64(2)
    c = [group & M, row & M, ((row >> np.uint64(32)) ^ ((group >> np.uint64(32)) * np.uint64(0x85EBCA6B))) & M, np.full_like(key, offset & 0xFFFFFFFF)]
    k0, k1 = seed & 0xFFFFFFFF, ((seed >> 32) ^ ((offset >> 32) * 0x9E3779B9)) & 0xFFFFFFFF
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & M, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & M]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    low = key & np.uint64(3)
    return np.choose(low.astype(np.int64), c)

def reference(q, k, v, f):
    B, H, L, E = q.shape
    S = k.shape[2]
    out = torch.zeros(B, H, L, v.shape[3], dtype=torch.float64, device=q.device)
    lse = torch.full((B, H, L), -torch.inf, dtype=torch.float64, device=q.device)
    scale = f.get("scale", E**-0.5)
    seqs = []
    if f.get("cu_q") is not None:
        cq, ck = f["cu_q"].tolist(), f["cu_k"].tolist()
        seqs = [(0, cq[n], cq[n + 1], ck[n], ck[n + 1]) for n in range(len(cq) - 1)]
    else:
        lens = f["kv_lengths"].tolist() if f.get("kv_lengths") is not None else [S] * B
        seqs = [(b, 0, L, 0, lens[b]) for b in range(B)]
    p = f.get("dropout", 0.0)
    seed, offset = f.get("seed", 0), f.get("offset", 0)
    if f.get("seed_on_device") is not None: seed, offset = [int(x) & (2**64 - 1) for x in f["seed_on_device"].tolist()]
    for b, q0, q1, k0, k1 in seqs:
        rows, keys = q1 - q0, k1 - k0
        if rows == 0 or keys == 0: continue
        i = torch.arange(rows, device=q.device)[:, None]
        j = torch.arange(keys, device=q.device)[None, :]
        d = i + (keys - rows if f.get("lower_right") else 0)
        keep = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
        if f.get("causal"): keep &= j <= d
        if f.get("left", -1) >= 0: keep &= d - j <= f["left"]
        if f.get("right", -1) >= 0: keep &= j - d <= f["right"]
        some = keep.any(-1)
        for h in range(H):
            kk, vv = k[b, h // (H // k.shape[1]), k0:k1].double(), v[b, h // (H // v.shape[1]), k0:k1].double()
            s = (q[b, h, q0:q1].double() @ kk.T) * scale
            if f.get("softcap"): s = f["softcap"] * torch.tanh(s / f["softcap"])
            if f.get("slopes") is not None:
                slope = f["slopes"][h] if f["slopes"].dim() == 1 else f["slopes"][b, h]
                s = s - slope.double() * (d - j).abs()
            s = torch.where(keep, s, -torch.inf)
            logits = s
            if f.get("sinks") is not None:
                logits = torch.cat([s, f["sinks"][h].double().expand(rows, 1)], -1)
            l = torch.logsumexp(logits, -1)
            w = torch.exp(s - l[:, None])
            if p > 0:
                row = ((b * H + h) * L + q0 + np.arange(rows, dtype=np.uint64))[:, None]
                key = (k0 + np.arange(keys, dtype=np.uint64))[None, :]
                kept = torch.from_numpy(philox(seed, offset, row, key) >= min(int(p * 2**32), 2**32 - 1)).to(q.device)
                if p >= 1: kept = torch.zeros_like(kept)
            else: kept = torch.ones_like(keep)
            live = keep & kept & some[:, None]
            if p > 0 and p < 1: w = w / (1 - p)
            w = torch.where(live, w, 0.0)
            finite = torch.isfinite(vv)
            o = w @ torch.where(finite, vv, 0.0)
            if not finite.all():
                m = live.double()
                nan, plus, minus = (m @ x.double() > 0 for x in (vv.isnan(), vv == torch.inf, vv == -torch.inf))
                o = torch.where(plus, torch.inf, o); o = torch.where(minus, -torch.inf, o); o = torch.where(nan | (plus & minus), torch.nan, o)
            o = torch.where(some[:, None], o, 0.0)
            out[b, h, q0:q1] = o
            lse[b, h, q0:q1] = torch.where(some, l, -torch.inf)
    return out, lse

def cases(transform):
    """(name, shape B H Hk L S, features, poison)"""
    r = lambda *x: torch.tensor(x, device="cuda")
    C = []
    add = lambda name, shape, poison=None, **f: C.append((name, shape, f, poison))
    add("plain full", (2, 4, 2, 300, 177))
    add("plain causal", (1, 3, 1, 257, 257), causal=True)
    add("many tiles", (3, 20, 4, 700, 700), causal=True)
    add("one row one key", (1, 3, 1, 1, 1))
    add("lower-right", (2, 2, 2, 130, 700), causal=True, lower_right=True)
    add("lower-right, more rows", (2, 2, 1, 600, 50), causal=True, lower_right=True)
    add("top-left, more rows", (2, 2, 1, 600, 50), causal=True)
    for left, right in ((2, 0), (0, 0), (5, 3), (-1, 2), (40, -1), (128, 0), (127, 1), (300, 200), (1 << 29, 1 << 29)):
        for causal, lr in ((False, False), (True, False), (True, True), (False, True)):
            add(f"window {left},{right} {'causal' if causal else ''} {'lr' if lr else ''}", (1, 2, 2, 500, 640) if left != 5 else (2, 2, 1, 640, 410), left=left, right=right, causal=causal, lower_right=lr)
    for scale in (0.0, -0.3, 1.5): add(f"scale {scale}", (1, 2, 1, 200, 333), scale=scale, causal=True, left=100)
    for dt in (torch.int32, torch.int64):
        for causal in (False, True):
            add(f"lengths {dt} causal {causal}", (5, 4, 2, 200, 400), kv_lengths=r(400, 0, 1, 130, 256).to(dt), causal=causal)
            add(f"lengths poisoned {dt} causal {causal}", (5, 4, 2, 200, 400), "past", kv_lengths=r(399, 0, 1, 130, 257).to(dt), causal=causal, lower_right=causal)
    add("lengths window", (4, 2, 2, 200, 400), "past", kv_lengths=r(400, 7, 90, 256), left=50, right=3)
    for causal, lr, left in ((False, False, -1), (True, False, -1), (True, True, -1), (True, True, 60), (False, False, 30)):
        f = dict(causal=causal, lower_right=lr, left=left)
        name = f"{causal} {lr} {left}"
        add("packed " + name, (1, 4, 2, 900, 1100), cu_q=r(0, 300, 300, 301, 700, 850).int(), cu_k=r(0, 200, 450, 451, 451, 1100), **f)
        add("packed one " + name, (1, 2, 2, 333, 500), cu_q=r(0, 333), cu_k=r(0, 500), **f)
        many = [0] + list(np.cumsum(np.random.RandomState(1).randint(0, 40, 150)))
        many_k = [0] + list(np.cumsum(np.random.RandomState(2).randint(0, 40, 150)))
        add("packed many " + name, (1, 3, 1, int(many[-1]) + 9, int(many_k[-1]) + 3), cu_q=r(*[int(x) for x in many]).int(), cu_k=r(*[int(x) for x in many_k]).int(), **f)
    for k in (127, 129, 256): add(f"values at the window's edge {k}", (1, 2, 1, 400, 400), ("values", "mixed"), left=k, right=5)
    add("packed none", (1, 2, 2, 50, 60), cu_q=r(0), cu_k=r(0))
    add("packed poisoned", (1, 2, 1, 400, 500), ("rows", [(150, 170), (430, 500)]), cu_q=r(0, 128, 128, 290, 350), cu_k=r(0, 150, 170, 290, 430), causal=True)
    add("packed poisoned full", (1, 2, 1, 400, 500), ("rows", [(150, 170), (430, 500)]), cu_q=r(0, 128, 128, 290, 350), cu_k=r(0, 150, 170, 290, 430))
    for sd in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        add(f"sinks {sd}", (2, 3, 3, 200, 300), sinks=r(0.5, -3.0, 9.0).to(sd), causal=True, lower_right=sd == torch.float16)
    add("sinks large, empty rows", (2, 3, 1, 300, 100), sinks=r(60.0, -80.0, 1.0), causal=True, lower_right=True)
    for kind in ("nan", "inf", "-inf", "mixed"):
        for causal, left in ((True, -1), (False, 70), (True, 70), (False, -1)):
            add(f"values {kind} causal {causal} left {left}", (1, 2, 1, 300, 300), ("values", kind), causal=causal, left=left)
    if transform:
        for cap in (2.0, 30.0, 1e4):
            add(f"softcap {cap}", (2, 2, 1, 200, 333), softcap=cap, causal=True, scale=0.8)
        add("softcap negative scale window", (1, 2, 1, 200, 333), softcap=5.0, left=80, scale=-0.5)
        for lr in (False, True):
            add(f"alibi lr {lr}", (2, 4, 2, 200, 333), slopes=r(0.5, 0.1, 0.02, -0.03), causal=True, lower_right=lr)
            add(f"alibi per batch full lr {lr}", (2, 2, 2, 333, 200), slopes=r([0.5, 0.1], [0.02, 0.3]), lower_right=lr, softcap=4.0 if lr else 0)
        add("alibi packed", (1, 2, 2, 400, 500), slopes=r(0.5, 0.1), cu_q=r(0, 128, 290, 350), cu_k=r(0, 150, 290, 430), causal=True, lower_right=True)
        for p in (0.1, 0.5, 1.0):
            add(f"dropout {p}", (2, 3, 1, 200, 333), dropout=p, seed=0x1234567890abcdef, offset=7 << 33 | 5, causal=True)
        add("dropout device seed", (2, 3, 1, 200, 130), dropout=0.3, seed_on_device=torch.tensor([0x234567890abcdef, 12345], device="cuda"))
        add("dropout packed", (1, 2, 2, 400, 500), dropout=0.25, seed=99, cu_q=r(0, 128, 290, 350), cu_k=r(0, 151, 290, 431), causal=True)
        add("dropout values nan", (1, 2, 1, 200, 300), ("values", "mixed"), dropout=0.5, seed=3)
        add("everything", (3, 4, 2, 300, 400), "past", dropout=0.25, seed=5, kv_lengths=r(400, 77, 256), left=120, right=9, softcap=20.0, slopes=r(0.5, 0.1, 0.02, 0.3), sinks=r(0.5, -3.0, 2.0, 0.0), lower_right=True)
    return C

def run_case(image, name, shape, f, poison):
    dtype = torch.bfloat16 if image.dtype == "bf16" else torch.float16
    B, H, Hk, L, S = shape
    e, ev = image.use_e, image.use_ev
    g = torch.Generator(device="cuda").manual_seed(len(name))
    make = lambda *s: torch.randn(*s, generator=g, device="cuda").to(dtype)
    q, k, v = make(B, H, L, e), make(B, Hk, S, e), make(B, Hk, S, ev)
    if poison == "past":
        for b, n in enumerate(f["kv_lengths"].tolist()): k[b, :, n:] = torch.nan; v[b, :, n::2] = torch.nan; v[b, :, n + 1::2] = torch.inf
    elif poison and poison[0] == "rows":
        # the keys of every sequence but the poisoned ones are finite; poisoned rows belong to sequences without rows, or to none
        for a, z in poison[1]: k[0, :, a:z] = torch.nan; v[0, :, a:z:2] = torch.nan; v[0, :, a + 1:z:2] = -torch.inf
    elif poison:
        kinds = {"nan": [torch.nan], "inf": [torch.inf], "-inf": [-torch.inf], "mixed": [torch.nan, torch.inf, -torch.inf]}[poison[1]]
        for at, row in enumerate((70, 131, 150, 200, 255, 256, 290)):
            if row < S: v[..., row, (at * 13) % ev] = kinds[at % len(kinds)]; v[..., row, 3] = kinds[(at + 1) % len(kinds)]
    if image.any_output:
        pool = torch.full((B, H, L + 3, ev + 5), torch.nan, dtype=dtype, device="cuda"); out = pool[:, :, 1 : L + 1, 3 : ev + 3]
    else:
        pool = torch.full((B, H, L + 5, ev + 8), torch.nan, dtype=dtype, device="cuda"); out = pool[:, :, :L, :ev]
    mark = pool.view(torch.int16); mark.fill_(-1)
    lse_pool = torch.full((B * H * L + 64,), 12345.0, device="cuda")
    for gh in (None, 3) if "cu_q" in f or "kv_lengths" in f or name == "many tiles" else (None,):
        image.prepare(q, k, v, out, lse_pool, f, group_heads=gh)()
        torch.cuda.synchronize()
        want, want_lse = reference(q, k, v, f)
        got, got_lse = out.double(), lse_pool[: B * H * L].view(B, H, L).double()
        def differ(a, b, tol):
            same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= tol)
            if same.all(): return None
            at = (~same).nonzero()[0].tolist()
            return f"{int((~same).sum())} of {same.numel()} differ, first {at}: got {a[tuple(at)].item():.6g} want {b[tuple(at)].item():.6g}"
        top = 4.5 / (1 - f["dropout"]) if 0 < f.get("dropout", 0) < 1 else 4.5
        tol = top * 0.016 if dtype == torch.bfloat16 else top * 0.003
        problem = differ(got, want, tol)
        if problem: return f"out (group {gh}): " + problem
        fin = torch.isfinite(want) & torch.isfinite(got)
        err = ((got - want)[fin].norm() / want[fin].norm().clamp_min(1e-30)).item() if fin.any() else 0
        limit = 6e-3 if dtype == torch.bfloat16 else 1.5e-3
        if err > limit and want[fin].norm() > 1e-6: return f"rel l2 {err:.2e}"
        problem = differ(got_lse, want_lse, 3e-3)
        if problem: return "lse: " + problem
        outside = torch.ones_like(mark, dtype=torch.bool)
        if image.any_output: outside[:, :, 1 : L + 1, 3 : ev + 3] = False
        else: outside[:, :, :L, :ev] = False
        if not bool((mark[outside] == -1).all()) or not bool((lse_pool[B * H * L:] == 12345.0).all()): return "wrote outside"
    first = out.clone()
    image.prepare(q, k, v, out, None, f)(); image.prepare(q, k, v, out, None, f)()
    torch.cuda.synchronize()
    if not torch.equal(first.contiguous().view(torch.int16), out.contiguous().view(torch.int16)): return "runs differ"
    return None

def main():
    manifest = sys.argv[1]
    pattern = sys.argv[2] if len(sys.argv) > 2 else "."
    only = sys.argv[3] if len(sys.argv) > 3 else "."
    torch.zeros(1, device="cuda")
    folder = os.path.dirname(os.path.abspath(manifest))
    bad_total = 0
    for info in json.load(open(manifest)):
        if info.get("mask") or not re.search(pattern, info["name"]): continue
        sizes = [(info["e"], info["ev"])]
        if info["e"] == 128 and info["ev"] == 128: sizes += [(96, 80)]
        for use_e, use_ev in sizes:
            try: image = Featured({**info, "use_e": use_e, "use_ev": use_ev}, folder)
            except Exception as problem: print(f"FAILED {info['name']}: {problem}"); bad_total += 1; continue
            good, bad, began = 0, [], time.time()
            for c in cases(info["transform"]):
                if not re.search(only, c[0]): continue
                try: problem = run_case(image, *c)
                except Exception as error:
                    problem = f"{type(error).__name__} {str(error)[:300]}"
                    if "CUDA" in str(error) or "launch" in str(error) or "unspecified" in str(error):
                        print(f"DEAD {info['name']} at {c[0]}: {problem}", flush=True); sys.exit(1)
                if problem: bad.append(f"   {c[0]}: {problem}")
                else: good += 1
            bad_total += len(bad)
            print(f"{'right' if not bad else 'WRONG'} {info['name']} E {use_e}/{use_ev}: {good} cases right, {len(bad)} wrong, {time.time() - began:.1f} s", flush=True)
            print("\n".join(bad[:12]), flush=True) if bad else None
    sys.exit(1 if bad_total else 0)

if __name__ == "__main__": main()
