"""Checks and times mla images beside what PyTorch can do with heads of 576 and 512, in one process.

  python3 harness.py MANIFEST.json OUT_FOLDER [--skip-check] [--skip-time] [--images REGEX] [--rows REGEX]

Right first: every image runs awkward requests against float64, outputs and workspace poisoned with NaN; only then is
it timed. Times are medians over rounds of medians by CUDA events, candidates interleaved, the L2 overwritten between calls.
"""

import argparse
import json
import os
import re
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from launcher import Image, load

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
NAN, INF = float("nan"), float("inf")
# batch, heads, key heads, rows, keys, extra
CASES = [
    (1, 128, 1, 1, 64, {}), (1, 128, 1, 1, 1, {}), (1, 128, 1, 1, 128, {}), (2, 128, 1, 1, 700, {}), (1, 16, 1, 1, 1000, {}),
    (3, 1, 1, 1, 129, {}), (2, 40, 2, 3, 517, {}), (1, 128, 1, 1, 2000, {"scale": 0.1352}), (2, 16, 4, 2, 333, {"layout": "bshd"}),
    (2, 16, 1, 4, 300, {"causal": 1, "lower_right": 1}), (2, 16, 1, 4, 300, {"causal": 1}), (1, 8, 1, 70, 300, {"causal": 1}),
    (1, 8, 1, 70, 300, {"causal": 1, "lower_right": 1}), (1, 16, 1, 5, 3, {"causal": 1, "lower_right": 1}),
    (5, 32, 1, 1, 900, {"lengths": [900, 0, 1, 64, 517]}), (4, 16, 1, 3, 900, {"lengths": [900, 2, 65, 517], "causal": 1, "lower_right": 1, "wide": 1}),
    (2, 16, 1, 2, 777, {"window": (100, 0), "causal": 1, "lower_right": 1}), (1, 8, 1, 5, 400, {"window": (37, 21)}),
    (1, 16, 1, 1, 500, {"softcap": 3.0}), (1, 16, 1, 2, 500, {"scale": -0.3}), (1, 16, 1, 2, 500, {"scale": 0.0}),
    (1, 16, 1, 1, 300, {"sinks": torch.float32}), (2, 16, 1, 2, 300, {"alibi": 1, "causal": 1, "lower_right": 1}),
    (2, 16, 1, 1, 704, {"lengths": [650, 123], "page": 64}), (2, 16, 1, 2, 768, {"lengths": [0, 700], "page": 128, "causal": 1, "lower_right": 1}),
    (1, 16, 1, 4, 300, {"causal": 1, "lower_right": 1, "odd_v": 298}), (2, 16, 1, 2, 300, {"columns": (512, 512)}), (1, 16, 1, 1, 300, {"columns": (320, 256)}),
    (3, 128, 1, 1, 500, {"lengths": [500, 0, 130]}), (1, 64, 1, 4, 300, {"causal": 1, "lower_right": 1}),
    (2, 128, 1, 1, 704, {"lengths": [650, 123], "page": 64}), (1, 4, 1, 200, 200, {"causal": 1}), (1, 128, 1, 1, 9000, {})]


def name_of(case):
    return f"{case[:5]} " + ",".join(f"{k}={v}" for k, v in case[5].items())


class Made:
    """Tensors of a case, its call arguments, and the right answer in float64."""

    def __init__(self, case, alias, dtype, seed):
        B, H, Hk, L, S, extra = case
        g = torch.Generator(device="cuda").manual_seed(seed)
        rand = lambda *shape: torch.randn(*shape, generator=g, device="cuda").to(dtype)
        e, ev = extra.get("columns", (576, 512))
        lay = (lambda b, h, s, d: rand(b, s, h, d).transpose(1, 2)) if extra.get("layout") == "bshd" else rand
        q, k = lay(B, H, L, e), lay(B, Hk, S, e)
        v = k[..., :ev] if alias else lay(B, Hk, S, ev)
        lengths = extra.get("lengths")
        scale = extra.get("scale", e**-0.5)
        sinks = torch.randn(H, generator=g, device="cuda").to(extra["sinks"]) if "sinks" in extra else None
        slopes = torch.rand(B, H, generator=g, device="cuda") * 0.1 if "alibi" in extra else None
        if "odd_v" in extra:  # seen by some rows only; by all when it is K too, whose scores are then NaN
            odd = torch.tensor([NAN, INF, -INF], device="cuda")[torch.arange(ev, device="cuda") % 3].to(dtype)
            if not alias: v[:, :, extra["odd_v"]:, :] = odd
            else: k[:, :, extra["odd_v"] + 1:, 5] = NAN
        self.out, self.lse = torch.zeros(B, H, L, ev, dtype=torch.float64, device="cuda"), torch.full((B, H, L), -torch.inf, dtype=torch.float64, device="cuda")
        i = torch.arange(L, device="cuda")[:, None]
        for b in range(B):
            n = lengths[b] if lengths else S
            for h in range(H):
                kk, vv = k[b, h // (H // Hk), :n].double(), v[b, h // (H // Hk), :n].double()
                s = q[b, h].double() @ kk.T * scale
                if extra.get("softcap"): s = extra["softcap"] * torch.tanh(s / extra["softcap"])
                diagonal, j = i + (n - L if extra.get("lower_right") else 0), torch.arange(n, device="cuda")[None]
                if slopes is not None: s = s - slopes[b, h].double() * (diagonal - j).abs()
                keep = torch.ones(L, n, dtype=torch.bool, device="cuda")
                if extra.get("causal"): keep &= j <= diagonal
                left, right = extra.get("window", (-1, -1))
                if left >= 0: keep &= j >= diagonal - left
                if right >= 0: keep &= j <= diagonal + right
                s = s.masked_fill(~keep, -torch.inf)
                if sinks is not None: s = torch.cat([s, sinks[h].double().expand(L, 1)], 1)
                lse = torch.logsumexp(s, 1)
                some = keep.any(1)
                weights = torch.exp(s - lse[:, None])[:, :n]
                odd = ~vv.isfinite()
                out = weights.masked_fill(~keep, 0) @ vv.masked_fill(odd, 0)
                for key in odd.any(1).nonzero()[:, 0].tolist():
                    out[keep[:, key]] += torch.where(odd[key], vv[key], 0.0)
                self.lse[b, h][some], self.out[b, h][some] = lse[some], out[some]
        self.args = {n: extra[n] for n in ("causal", "lower_right", "window", "softcap") if n in extra} | {"scale": scale, "sinks": sinks, "alibi": slopes}
        if lengths:
            self.args["lengths"] = torch.tensor(lengths, dtype=torch.int64 if extra.get("wide") else torch.int32, device="cuda")
            if "page" not in extra:
                for b in range(B): k[b, :, lengths[b]:] = NAN; v[b, :, lengths[b]:] = NAN
        if "page" in extra:
            page, per = extra["page"], S // extra["page"]
            table = torch.full((B, per), -(1 << 30), dtype=torch.int32, device="cuda")
            ck = torch.full((B * per + 2, Hk, page, e), NAN, dtype=dtype, device="cuda")
            cv = ck[..., :ev] if alias else torch.full((B * per + 2, Hk, page, ev), NAN, dtype=dtype, device="cuda")
            order = torch.randperm(B * per + 2, generator=torch.Generator().manual_seed(seed)).tolist()
            for b in range(B):
                for n in range(-(-lengths[b] // page)):
                    at, m = order[b * per + n], min(page, lengths[b] - n * page)
                    table[b, n] = at
                    ck[at, :, :m], cv[at, :, :m] = k[b, :, n * page:n * page + m], v[b, :, n * page:n * page + m]
            self.args["table"], k, v = table, ck, cv
        self.q, self.k, self.v = q, k, v


def first_wrong(got, want, tolerance):
    bad = ~((got - want).abs() <= tolerance) & ~(got.isnan() & want.isnan()) & ~(got == want)
    if not bad.any(): return None
    at = bad.nonzero()[0].tolist()
    return f"{int(bad.sum())} of {bad.numel()} wrong, first {at}: {got[tuple(at)].item():.5g}, expected {want[tuple(at)].item():.5g}"


MODES = {"whole": dict(), "whole 2 blocks": dict(blocks=2), "3": dict(parts=3), "7 on 5 blocks": dict(parts=7, blocks=5)}


def check_image(image, made_of, report, verbose, most=8):
    failures, dtype = 0, DTYPES[image.dtype]
    for i, case in enumerate(CASES):
        made = made_of(i, image)
        for mode, how in MODES.items():
            B, H, L, ev = made.out.shape
            pool = torch.full((B, H, L + 1, ev + 8), NAN, dtype=dtype, device="cuda")
            out, lse = pool[:, :, :L, :ev], torch.full((B, H, L), NAN, device="cuda")
            if mode == "3": out = torch.full((B, ev, L, H), NAN, dtype=dtype, device="cuda").permute(0, 3, 2, 1)
            if verbose: print(f"{image.name} {mode} {name_of(case)}", file=sys.stderr, flush=True)
            image.prepare(made.q, made.k, made.v, out, lse, **how, **made.args)()
            torch.cuda.synchronize()
            tolerance = 0.02 if dtype == torch.bfloat16 else 0.004
            wrong, wrong_lse = first_wrong(out.double(), made.out, tolerance), first_wrong(lse.double(), made.lse, 2e-3)
            rest = pool.clone(); rest[:, :, :L, :ev] = NAN
            if wrong or wrong_lse or not rest.isnan().all():
                failures += 1
                if failures <= most: report.append(f"  WRONG {image.name} {mode} {name_of(case)}: out {wrong}; lse {wrong_lse}; outside untouched {bool(rest.isnan().all())}")
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
                for _ in range(max(4, min(25, int(budget_ms / (guess[name] + 0.15))))):
                    self.flush.zero_()
                    torch.cuda._sleep(150_000)
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    begin.record(); call(); end.record()
                    pairs.append((begin, end))
                torch.cuda.synchronize()
                times[name].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
        return {n: statistics.median(t) for n, t in times.items()}


# label, batch, heads, rows, keys
ROWS = [("1x4k", 1, 128, 1, 4096, {}), ("1x32k", 1, 128, 1, 32768, {}), ("1x128k", 1, 128, 1, 131072, {}), ("8x8k", 8, 128, 1, 8192, {}),
        ("32x4k", 32, 128, 1, 4096, {}), ("64x4k", 64, 128, 1, 4096, {}), ("66x8k", 66, 128, 1, 8192, {}), ("128x8k", 128, 128, 1, 8192, {}), ("64x8k L2", 64, 128, 2, 8192, {}),
        ("32x4k 64 heads", 32, 64, 1, 4096, {}), ("32x8k 16 heads", 32, 16, 1, 8192, {}), ("32x4k V apart", 32, 128, 1, 4096, {"apart": 1}),
        ("64x4k paged64", 64, 128, 1, 4096, {"page": 64})]
PEERS = ("math", "bmm")


def bound_us(B, H, L, S, apart):
    """The larger of reading K (and a V apart) at 4.3 TB/s and the products, over rows in tiles of 64, at 660 TFLOP/s."""
    rows = -(-H * L // 64) * 64
    return B * S * (1152 + (1024 if apart else 0)) / 4.3e6, 2 * B * S * rows * 1088 / 660e6


def modes_for(tiles, keys, sms=132):
    """The ways to share the work that are worth timing."""
    key_tiles, best = -(-keys // 64), max(1, sms // tiles)
    return {str(parts): dict(parts=parts) for parts in sorted({1, best, max(1, best // 2), best // 2 + best // 4, max(1, best // 4), 2 * sms // tiles, 3 * sms // tiles})
            if 1 <= parts <= key_tiles and tiles * parts >= 0.2 * sms}


def time_row(row, images, timing, rounds):
    label, B, H, L, S, extra = row
    g = torch.Generator(device="cuda").manual_seed(1)
    rand = lambda *shape: torch.randn(*shape, generator=g, device="cuda", dtype=torch.bfloat16)
    q, k = rand(B, H, L, 576), rand(B, 1, S, 576)
    v = rand(B, 1, S, 512) if "apart" in extra else k[..., :512]
    calls, results, refused = {}, {}, {}

    def bmm():
        s = torch.matmul(q.reshape(B, H * L, 576), k[:, 0].transpose(1, 2))
        return torch.matmul(torch.softmax(s * 576**-0.5, -1), v[:, 0]).view(B, H, L, 512)

    def sdpa(backend):
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, scale=576**-0.5, enable_gqa=True)

    if B * H * L * S <= 2**28: calls["bmm"] = bmm
    if B * H * L * S <= 2**22: calls["math"] = lambda: sdpa(SDPBackend.MATH)
    for name, backend in {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}.items():
        try: calls[name] = lambda backend=backend: sdpa(backend); calls[name]()
        except Exception as problem: refused[name] = str(problem)[:80]; del calls[name]
    for name in list(calls):
        try: results[name] = calls[name]()
        except Exception as problem: refused[name] = str(problem)[:80]; del calls[name]
    args, ours_k, ours_v = {}, k, v
    if "page" in extra:
        page = extra["page"]
        order = torch.randperm(B * S // page, generator=g, device="cuda")
        ours_k = torch.empty(B * S // page, 1, page, 576, dtype=torch.bfloat16, device="cuda")
        ours_k[order] = k.view(B * S // page, 1, page, 576)
        ours_v = ours_k[..., :512]
        args = {"table": order.view(B, S // page).int(), "lengths": torch.full((B,), S, dtype=torch.int32, device="cuda")}
    for image in images:
        if image.alias != ("apart" not in extra): continue
        for mode, how in modes_for(B * -(-H * L // 64), S).items():
            out = torch.full((B, H, L, 512), NAN, dtype=torch.bfloat16, device="cuda")
            name = f"{image.name} {mode}"
            calls[name] = image.prepare(q, ours_k, ours_v, out, **how, **args)
            calls[name](); torch.cuda.synchronize()
            results[name] = out
    want = next(iter(results.values())).double()
    for name, r in results.items():
        e = ((r.double() - want).norm() / want.norm()).item()
        if not e < 2e-2: print(f"  {label} {name}: differs from {next(iter(results))} by {e:.2e}")
    return timing.rounds(calls, rounds), refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest")
    parser.add_argument("out")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--skip-time", action="store_true")
    parser.add_argument("--images", default=".*")
    parser.add_argument("--rows", default=".*")
    parser.add_argument("--verbose", action="store_true", help="say on stderr what runs, for a kernel that hangs")
    parser.add_argument("--most", type=int, default=4, help="variants to print a row")
    parser.add_argument("--rounds", type=int, default=3)
    o = parser.parse_args()
    torch.zeros(1, device="cuda")
    folder = os.path.dirname(os.path.abspath(o.manifest))
    combine = {t: load(f"{folder}/combine_{t}.cubin", "mla_combine")[0] for t in DTYPES}
    images, report, made = [], [], {}

    def made_of(i, image):
        key = (i, image.alias, image.dtype)
        if key not in made: made[key] = Made(CASES[i], image.alias, DTYPES[image.dtype], i)
        return made[key]

    checked = 0
    for info in json.load(open(o.manifest)):
        if not re.search(o.images, info["name"]): continue
        image = Image(info, folder, combine)
        failures = 0 if o.skip_check else check_image(image, made_of, report, o.verbose)
        checked += 1
        if failures: report.append(f"  {image.name}: {failures} wrong")
        else: images.append(image)
        print(f"{image.name}: {failures} wrong of {len(CASES) * len(MODES)}", flush=True)
    print("\n".join(report))
    print(f"{len(images)} of {checked} images right in {len(CASES)} cases x {len(MODES)} modes", flush=True)
    if o.skip_time: sys.exit(0 if len(images) == checked else 1)
    timing, record = Timing(), {}
    for row in ROWS:
        if not re.search(o.rows, row[0]): continue
        label, B, H, L, S, extra = row
        times, refused = time_row(row, [i for i in images if i.dtype == "bf16"], timing, o.rounds)
        memory, products = bound_us(B, H, L, S, "apart" in extra)
        record[label] = {"us": times, "bound_memory_us": memory, "bound_products_us": products, "refused": refused}
        json.dump(record, open(f"{o.out}/mla.json", "w"), indent=1)
        ours = sorted((t, n) for n, t in times.items() if n not in PEERS)
        peers = "  ".join(f"{n} {times[n]:.1f}" for n in PEERS if n in times)
        flops, moved = 2 * B * S * H * L * 1088, B * S * 1152
        print(f"{label}: bound {max(memory, products):.1f} (memory {memory:.1f}, products {products:.1f}) {peers} | " + "; ".join(
            f"{n} {t:.1f} ({flops / t / 1e6:.0f} TFLOP/s, {moved / t / 1e6:.2f} TB/s)" for t, n in ours[:o.most]), flush=True)
    print("refused:", record and next(iter(record.values()))["refused"])


main()
