"""Checks and times decode images beside PyTorch's cuDNN and flash attention in one process.

  python3 harness.py MANIFEST.json OUT_FOLDER [--skip-check] [--skip-time] [--images REGEX] [--rows REGEX]

Right first: every image runs awkward requests against float64, outputs poisoned with NaN; only then is it timed.
Times are medians over rounds of medians by CUDA events, candidates interleaved, the L2 overwritten between calls.
"""

import argparse
import json
import os
import re
import statistics
import sys
import traceback

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from launcher import CLUSTER, NONE, WORKSPACE, Image, Tools

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
CASES = [dict(zip(("B", "Hq", "Hk", "Hv", "L", "S"), c[:6])) | (c[6] if len(c) > 6 else {}) for c in [
    (1, 1, 1, 1, 1, 1), (1, 8, 2, 2, 1, 1000), (2, 6, 2, 3, 1, 333), (3, 4, 4, 4, 1, 129), (1, 32, 8, 8, 1, 2048), (2, 4, 1, 1, 3, 517),
    (2, 4, 2, 2, 4, 300, {"causal": 1, "lower_right": 1}), (2, 4, 2, 2, 4, 300, {"causal": 1}),
    (2, 8, 1, 1, 2, 777, {"causal": 1, "lower_right": 1, "window": (100, 0)}), (1, 4, 2, 2, 5, 400, {"window": (37, 21)}),
    (1, 4, 2, 2, 1, 500, {"softcap": 3.0}), (1, 4, 2, 2, 2, 500, {"scale": -0.3}), (1, 4, 2, 2, 2, 500, {"scale": 0.0}),
    (1, 4, 2, 2, 5, 3, {"causal": 1, "lower_right": 1}), (1, 8, 2, 2, 1, 300, {"sinks": torch.float32}),
    (1, 8, 2, 2, 1, 300, {"sinks": torch.bfloat16, "lengths": [0]}), (1, 8, 2, 2, 1, 300, {"layout": "bshd"}),
    (1, 8, 2, 2, 3, 300, {"columns": 8}), (5, 8, 2, 2, 1, 900, {"lengths": [900, 0, 1, 64, 517]}),
    (4, 8, 2, 2, 3, 900, {"lengths": [900, 2, 1, 517], "causal": 1, "lower_right": 1, "wide": True}),
    (2, 8, 2, 2, 1, 700, {"lengths": [650, 123], "page": 16}), (2, 8, 2, 2, 1, 700, {"lengths": [650, 123], "page": 64}),
    (2, 8, 2, 2, 2, 700, {"lengths": [650, 123], "page": 24, "causal": 1, "lower_right": 1}), (2, 8, 2, 4, 1, 700, {"lengths": [0, 696], "page": 4}),
    (2, 8, 2, 2, 1, 1100, {"lengths": [1000, 1024], "page": 256, "layout": "bshd"}),
    (3, 8, 2, 2, 2, 700, {"lengths": [600, 0, 63], "page": 32, "append": 3, "causal": 1, "lower_right": 1}),
    (1, 4, 2, 2, 4, 300, {"causal": 1, "lower_right": 1, "nan_v": 298}), (1, 64, 2, 2, 2, 300), (1, 72, 1, 1, 1, 200), (2, 8, 1, 1, 16, 300, {"causal": 1, "lower_right": 1}),
    (7, 16, 4, 4, 1, 130, {"lengths": [130, 3, 77, 0, 128, 64, 65]})]]
NAN = float("nan")


def name_of(case):
    return f"{tuple(case.values())[:6]} " + ",".join(f"{k}={v}" for k, v in list(case.items())[6:])


class Made:
    """Tensors of a case, its call arguments, and the right answer in float64."""

    def __init__(self, case, e, ev, dtype, seed):
        g = torch.Generator(device="cuda").manual_seed(seed)
        rand = lambda *shape: torch.randn(*shape, generator=g, device="cuda").to(dtype)
        B, Hq, Hk, Hv, L, S = (case[n] for n in ("B", "Hq", "Hk", "Hv", "L", "S"))
        e, ev = case.get("columns", e), case.get("columns", ev)
        lay = (lambda b, h, s, d: rand(b, s, h, d).transpose(1, 2)) if case.get("layout") == "bshd" else rand
        q, k, v = lay(B, Hq, L, e), lay(B, Hk, S, e), lay(B, Hv, S, ev)
        lengths = case.get("lengths")
        stored = lengths or [S] * B
        N = case.get("append", 0)
        scale = case.get("scale", e**-0.5)
        sinks = torch.randn(Hq, generator=g, device="cuda").to(case["sinks"]) if "sinks" in case else None
        if "nan_v" in case: v[:, :, case["nan_v"]:, :] = torch.tensor([NAN, float("inf"), -float("inf")], device="cuda")[torch.arange(ev, device="cuda") % 3].to(dtype)
        self.out, self.lse = torch.zeros(B, Hq, L, ev, dtype=torch.float64, device="cuda"), torch.full((B, Hq, L), -torch.inf, dtype=torch.float64, device="cuda")
        rows = torch.arange(L, device="cuda")[:, None]
        for b in range(B):
            n = stored[b] + N
            for h in range(Hq):
                kk, vv = k[b, h // (Hq // Hk), :n].double(), v[b, h // (Hq // Hv), :n].double()
                s = q[b, h].double() @ kk.T * scale
                if case.get("softcap"): s = case["softcap"] * torch.tanh(s / case["softcap"])
                diagonal = rows + (n - L if case.get("lower_right") else 0)
                j = torch.arange(n, device="cuda")[None]
                keep = torch.ones(L, n, dtype=torch.bool, device="cuda")
                if case.get("causal"): keep &= j <= diagonal
                left, right = case.get("window", (-1, -1))
                if left >= 0: keep &= j >= diagonal - left
                if right >= 0: keep &= j <= diagonal + right
                s = s.masked_fill(~keep, -torch.inf)
                for i in range(L):
                    if not keep[i].any(): continue
                    row, values = s[i][keep[i]], vv[keep[i]]
                    if sinks is not None: row = torch.cat([row, sinks[h].double()[None]])
                    self.lse[b, h, i] = torch.logsumexp(row, 0)
                    self.out[b, h, i] = torch.exp(row - self.lse[b, h, i])[: values.shape[0]] @ values
        args = {n: case[n] for n in ("causal", "lower_right", "window", "softcap") if n in case} | {"scale": scale, "sinks": sinks}
        if lengths is not None:
            args["lengths"] = torch.tensor(lengths, dtype=torch.int64 if case.get("wide") else torch.int32, device="cuda")
            for b in range(B):
                if "page" not in case: k[b, :, stored[b]:] = NAN; v[b, :, stored[b]:] = NAN
        self.cache = None
        if "page" in case:
            page, per = case["page"], -(-S // case["page"])
            pages = B * per + 2
            table = torch.full((B, per), -(1 << 30), dtype=torch.int32, device="cuda")
            make = (lambda h, d: torch.full((pages, page, h, d), NAN, dtype=dtype, device="cuda").transpose(1, 2)) if case.get("layout") == "bshd" else (
                lambda h, d: torch.full((pages, h, page, d), NAN, dtype=dtype, device="cuda"))
            ck, cv = make(Hk, e), make(Hv, ev)
            order = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).tolist()
            for b in range(B):
                for n in range(-(-(stored[b] + N) // page)):
                    at = order[b * per + n]
                    table[b, n] = at
                    m = max(0, min(page, stored[b] - n * page))
                    ck[at, :, :m], cv[at, :, :m] = k[b, :, n * page:n * page + m], v[b, :, n * page:n * page + m]
            args["table"] = table
            if N:
                pick = lambda t: torch.stack([t[b, :, stored[b]:stored[b] + N] for b in range(B)])
                args["append"] = (pick(k), pick(v))
                self.cache = (ck, cv, table, k, v, stored, N, page)
            k, v = ck, cv
        self.q, self.k, self.v, self.args = q, k, v, args

    def forget_append(self):
        if self.cache is None: return
        ck, cv, table, k, v, stored, N, page = self.cache
        for b in range(len(stored)):
            for i in range(N):
                at = (table[b, (stored[b] + i) // page], slice(None), (stored[b] + i) % page)
                ck[at] = NAN; cv[at] = NAN

    def cache_right(self):
        if self.cache is None: return True
        ck, cv, table, k, v, stored, N, page = self.cache
        return all(torch.equal(ck[table[b, (stored[b] + i) // page], :, (stored[b] + i) % page], k[b, :, stored[b] + i])
                   and torch.equal(cv[table[b, (stored[b] + i) // page], :, (stored[b] + i) % page], v[b, :, stored[b] + i])
                   for b in range(len(stored)) for i in range(N))


def first_wrong(got, want, tolerance):
    bad = ~((got - want).abs() <= tolerance) & ~(got.isnan() & want.isnan()) & ~(got == want)
    if not bad.any(): return None
    at = bad.nonzero()[0].tolist()
    return f"{int(bad.sum())} wrong, first {at}: {got[tuple(at)].item():.5g}, expected {want[tuple(at)].item():.5g}"


MODES = {"even1": dict(parts=1), "even3": dict(parts=3, join=WORKSPACE), "flat5": dict(parts=0, blocks=5, join=WORKSPACE),
         "flat132": dict(parts=0, blocks=132, join=WORKSPACE), "cluster4": dict(parts=4, join=CLUSTER), "cluster8": dict(parts=8, join=CLUSTER)}


def check_image(image, made_of, report):
    failures = 0
    dtype = DTYPES[image.dtype]
    for i, case in enumerate(CASES):
        made = made_of(i, image)
        for mode, how in MODES.items():
            if mode == "cluster8" and i % 4: continue
            B, Hq, L, ev = made.out.shape
            pool = torch.full((B, Hq, L + 1, ev + 8), NAN, dtype=dtype, device="cuda")
            out, lse = pool[:, :, :L, :ev], torch.full((B, Hq, L), NAN, device="cuda")
            if mode == "even3": out = torch.full((B, ev, L, Hq), NAN, dtype=dtype, device="cuda").permute(0, 3, 2, 1)
            made.forget_append()
            try:
                image.prepare(made.q, made.k, made.v, out, lse, **how, **made.args)()
            except RuntimeError as problem:
                failures += 1
                if failures <= 6: report.append(f"  NOT RUN {image.name} {mode} {name_of(case)}: {str(problem)[:120]}")
                continue
            torch.cuda.synchronize()
            tolerance = 0.02 if dtype == torch.bfloat16 else 0.004
            wrong = first_wrong(out.double(), made.out, tolerance)
            wrong_lse = first_wrong(lse.double(), made.lse, 2e-3)
            rest = pool.clone(); rest[:, :, :L, :ev] = NAN
            if wrong or wrong_lse or not rest.isnan().all() or not made.cache_right():
                failures += 1
                if failures <= 6:
                    report.append(f"  WRONG {image.name} {mode} {name_of(case)}: out {wrong}; lse {wrong_lse}; outside untouched {bool(rest.isnan().all())}; cache {made.cache_right()}")
    return failures


class Timing:
    def __init__(self):
        self.flush = torch.empty(64 * 2**20, dtype=torch.int32, device="cuda")

    def rounds(self, calls, rounds, budget_ms=6.0):
        times, guess = {n: [] for n in calls}, {}
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            call(); begin.record(); call(); call(); end.record(); end.synchronize()
            guess[name] = begin.elapsed_time(end) / 2
        for _ in range(rounds):
            for name, call in calls.items():
                pairs = []
                for _ in range(max(5, min(25, int(budget_ms / (guess[name] + 0.15))))):
                    self.flush.zero_()
                    torch.cuda._sleep(150_000)
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    begin.record(); call(); end.record()
                    pairs.append((begin, end))
                torch.cuda.synchronize()
                times[name].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
        return {n: statistics.median(t) for n, t in times.items()}


def modes_for(image, tiles, keys, sms=132):
    """The ways to share the work that are worth timing."""
    slots = sms * image.blocks_per_sm
    key_tiles = -(-keys // image.tile_keys)
    modes = {"flat": dict(parts=0, blocks=min(slots, tiles * key_tiles), join=WORKSPACE)}
    if tiles * 10 >= slots * 4 or key_tiles == 1: modes["even1"] = dict(parts=1)
    best = max(1, slots // tiles)
    for parts in sorted({best, max(1, best // 2), 2 * best if 2 * best <= 32 else best}):
        if 1 < parts <= key_tiles: modes[f"even{parts}"] = dict(parts=parts, join=WORKSPACE)
    for parts in (2, 4, 8):
        if parts <= key_tiles and tiles * parts * 10 >= slots * 4 and tiles * parts <= slots * 1.1: modes[f"cluster{parts}"] = dict(parts=parts, join=CLUSTER)
    return modes


ROWS = [("1x64", 1, 32, 8, 1, 64, 128, {}), ("16x8k", 16, 32, 8, 1, 8192, 128, {}), ("1x8k", 1, 32, 8, 1, 8192, 128, {}), ("1x128k", 1, 32, 8, 1, 131072, 128, {}),
        ("64x2k", 64, 32, 8, 1, 2048, 128, {}), ("64x8k", 64, 32, 8, 1, 8192, 128, {}), ("4x1k", 4, 32, 8, 1, 1024, 128, {}),
        ("16x8k paged64", 16, 32, 8, 1, 8192, 128, {"page": 64}), ("1x8k paged64", 1, 32, 8, 1, 8192, 128, {"page": 64}),
        ("16x8k paged16", 16, 32, 8, 1, 8192, 128, {"page": 16}), ("16x8k ragged", 16, 32, 8, 1, 8192, 128, {"ragged": 1}),
        ("16x8k L4", 16, 32, 8, 4, 8192, 128, {}), ("16x8k L8", 16, 32, 8, 8, 8192, 128, {}), ("16x8k MHA D64", 4, 32, 32, 1, 8192, 64, {}),
        ("16x8k D80", 16, 32, 8, 1, 8192, 80, {}), ("16x8k D160", 16, 32, 8, 1, 8192, 160, {}), ("16x8k D224", 16, 32, 8, 1, 8192, 224, {}),
        ("16x8k D96", 16, 32, 8, 1, 8192, 96, {}), ("16x8k D112", 16, 32, 8, 1, 8192, 112, {}), ("16x8k D192", 16, 32, 8, 1, 8192, 192, {}),
        ("1x8k D96", 1, 32, 8, 1, 8192, 96, {}), ("1x8k D192", 1, 32, 8, 1, 8192, 192, {}),
        ("16x8k D64", 16, 32, 8, 1, 8192, 64, {}), ("16x8k D256", 16, 32, 8, 1, 8192, 256, {}), ("1x8k D64", 1, 32, 8, 1, 8192, 64, {})]


PEERS = ("cudnn", "flash", "empty")


def time_row(row, images, timing, rounds):
    label, B, Hq, Hk, L, S, D, extra = row
    g = torch.Generator(device="cuda").manual_seed(1)
    rand = lambda *shape: torch.randn(*shape, generator=g, device="cuda", dtype=torch.float32).to(torch.bfloat16)
    q, k, v = rand(B, Hq, L, D), rand(B, Hk, S, D), rand(B, Hk, S, D)
    calls, results, args = {}, {}, {}
    if "ragged" in extra:
        args["lengths"] = (torch.arange(B, device="cuda", dtype=torch.int32) * 4801 + 777) % S + 1
    for name, backend in {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}.items():
        def call(backend=backend):
            with sdpa_kernel([backend]):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=Hq != Hk)
        try:
            results[name] = call()
            calls[name] = call
        except Exception as problem:
            print(f"  {name} refuses {label}: {str(problem)[:80]}")
    if S <= 128:
        one = torch.zeros(1, device="cuda")
        calls["empty"] = one.zero_
    if "page" in extra:
        page = extra["page"]
        order = torch.randperm(B * S // page, generator=g, device="cuda")
        shape = lambda t: t.view(B, Hk, S // page, page, D).transpose(1, 2).reshape(-1, Hk, page, D)
        pk, pv = torch.empty_like(shape(k)), torch.empty_like(shape(v))
        pk[order], pv[order] = shape(k), shape(v)
        args["table"], args["lengths"] = order.view(B, S // page).int(), torch.full((B,), S, dtype=torch.int32, device="cuda")
        ours_k, ours_v = pk, pv
    else:
        ours_k, ours_v = k, v
    for image in images:
        tiles = B * Hk * -(-(Hq // Hk * L) // image.rows)
        for mode, how in modes_for(image, tiles, S).items():
            out = torch.full((B, Hq, L, D), NAN, dtype=torch.bfloat16, device="cuda")
            name = f"{image.name} {mode}"
            calls[name] = image.prepare(q, ours_k, ours_v, out, **how, **args)
            try:
                calls[name](); torch.cuda.synchronize()
            except RuntimeError as problem:
                print(f"  {name}: {problem}"); del calls[name]; continue
            results[name] = out
    if "ragged" not in extra and "cudnn" in results:
        want = results["cudnn"].double()
        for name, r in results.items():
            e = ((r.double() - want).norm() / want.norm()).item()
            if not e < 1e-2: print(f"  {label} {name}: differs from cudnn by {e:.2e}")
    times = timing.rounds(calls, rounds)
    gb = 2 * B * Hk * S * D * 2 / 1e3  # bytes per µs → TB/s below
    if "ragged" in extra: gb *= args["lengths"].float().mean().item() / S
    return times, gb


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest")
    parser.add_argument("out")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--skip-time", action="store_true")
    parser.add_argument("--images", default=".*")
    parser.add_argument("--rows", default=".*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="print every variant, not the best five")
    o = parser.parse_args()
    torch.zeros(1, device="cuda")
    folder = os.path.dirname(os.path.abspath(o.manifest))
    tools = {t: Tools(f"{folder}/combine_{t}.cubin", f"{folder}/append.cubin") for t in DTYPES if os.path.exists(f"{folder}/combine_{t}.cubin")}
    images, report, made = [], [], {}

    def made_of(i, image):
        key = (i, image.e, image.ev, image.dtype)
        if key not in made: made[key] = Made(CASES[i], image.e, image.ev, DTYPES[image.dtype], i)
        return made[key]

    checked = right = 0
    for info in json.load(open(o.manifest)):
        if not re.search(o.images, info["name"]): continue
        try:
            image = Image(info, folder, tools)
            failures = 0 if o.skip_check else check_image(image, made_of, report)
        except Exception as problem:
            report.append(f"  FAILED {info['name']}: {str(problem)[:200]}")
            traceback.print_exc()
            if any(w in str(problem) for w in ("illegal", "misaligned", "launch failure", "unspecified")):
                print("\n".join(report)); sys.exit(1)
            continue
        checked += 1
        right += failures == 0
        if failures: report.append(f"  {image.name}: {failures} wrong")
        images.append(image)
    print("\n".join(report))
    print(f"{right} of {checked} images right in {len(CASES)} cases x {len(MODES)} modes", flush=True)
    if o.skip_time: sys.exit(0 if right == checked else 1)
    timing, record = Timing(), {}
    for row in ROWS:
        if not re.search(o.rows, row[0]): continue
        rows = row[2] // row[3] * row[4]
        fit = [i for i in images if i.e >= row[6] and i.ev >= row[6] and i.dtype == "bf16" and (i.rows == 16 or rows > 16)]
        least = min((i.e for i in fit if i.e in (64, 128, 256)), default=0)  # embedded: over zeros when it is larger
        fitting = [i for i in fit if i.e == row[6] or i.e == i.ev == least]
        if not fitting: continue
        times, gb = time_row(row, fitting, timing, o.rounds)
        record[row[0]] = times
        peers = "  ".join(f"{n} {times[n]:.1f}" for n in PEERS if n in times)
        ours = sorted((t, n) for n, t in times.items() if n not in PEERS)
        print(f"{row[0]}: {peers} us | " + "; ".join(f"{n} {t:.1f} ({gb / t / 1e3:.2f})" for t, n in (ours if o.all else ours[:5])), flush=True)
        json.dump(record, open(f"{o.out}/decode.json", "w"), indent=1)


if __name__ == "__main__":
    main()
