"""Checks and times flash_forward images beside PyTorch's cuDNN and flash attention in one process.

  python3 harness.py MANIFEST.json OUT_FOLDER [--rows REGEX] [--skip-check] [--skip-time]

Right first: every image runs a set of awkward shapes against float64, its outputs poisoned with NaN inside a
poisoned larger buffer, before any is timed. Times are medians over rounds, candidates interleaved within a round,
CUDA events around each call, L2 overwritten between calls.
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

import peers
from launcher import Image

ROWS = [  # the 18 rows: batch, heads, sequence, head_dim, causal
    (b, h, s, d, causal)
    for (b, h, s, d) in [(8, 16, 1024, 64), (2, 16, 2048, 64), (4, 16, 4096, 64), (2, 16, 8192, 64), (8, 16, 1024, 128),
                         (4, 16, 4096, 128), (2, 16, 8192, 128), (1, 16, 16384, 128), (2, 8, 4096, 256)]
    for causal in (True, False)]
SHAPES = [  # batch, heads, kv heads, L, S
    (1, 2, 2, 128, 128), (2, 4, 2, 300, 177), (1, 3, 1, 1, 1), (1, 2, 1, 64, 1000), (1, 2, 2, 1000, 64), (2, 3, 3, 257, 513),
    (3, 4, 4, 1024, 1024), (1, 70, 7, 520, 700), (4, 64, 64, 1024, 24)]


def reference(q, k, v, causal, lower_right, scale):
    """float64 output and LSE, one batch entry and head at a time."""
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    L, S, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    mask = None
    if causal:
        mask = torch.ones(L, S, dtype=torch.bool, device=q.device).tril(S - L if lower_right else 0)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            s = (q[b, h].double() @ k[b, h // group].double().T) * scale
            if mask is not None:
                s = s.masked_fill(~mask, -torch.inf)
            lse[b, h] = torch.logsumexp(s, -1)
            out[b, h] = torch.nan_to_num(torch.softmax(s, -1)) @ v[b, h // group].double()
    return out, lse


def error(got, want):
    return ((got.double() - want).norm() / want.norm().clamp_min(1e-30)).item()


def tensors(b, h, hk, L, S, e, ev, dtype, seed=0):
    g = torch.Generator(device="cuda").manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=g, device="cuda").to(dtype)
    return make(b, h, L, e), make(b, hk, S, e), make(b, hk, S, ev)


def check_image(image, report):
    worst = 0.0
    dtype = torch.bfloat16 if image.dtype == "bf16" else torch.float16
    for i, (b, h, hk, L, S) in enumerate(SHAPES):
        for lower_right in ((False, True) if image.causal else (False,)):
            for scale in (image.e**-0.5, -0.3, 0.0) if L != 1024 else (image.e**-0.5,):
                q, k, v = tensors(b, h, hk, L, S, image.e, image.ev, dtype, i)
                pool = torch.full((b, h, L + 5, image.ev + 8), torch.nan, dtype=dtype, device="cuda")
                out = pool[:, :, :L, : image.ev]
                lse_pool = torch.full((b * h * L + 64,), 12345.0, device="cuda")
                image.prepare(q, k, v, out, lse_pool, scale, lower_right)()
                torch.cuda.synchronize()
                want, want_lse = reference(q, k, v, image.causal, lower_right, scale)
                e = error(out, want)
                got_lse = lse_pool[: b * h * L].view(b, h, L).double()
                same_inf = torch.equal(torch.isinf(got_lse), torch.isinf(want_lse))
                lse_error = (torch.nan_to_num(got_lse, neginf=0.0) - torch.nan_to_num(want_lse, neginf=0.0)).abs().max().item()
                outside = pool.clone()
                outside[:, :, :L, : image.ev] = torch.nan
                ok = e < 6e-3 and lse_error < 2e-3 and same_inf and outside.isnan().all().item() and bool((lse_pool[b * h * L:] == 12345.0).all())
                worst = max(worst, e if e == e else 9.0)
                if not ok:
                    report.append(f"  WRONG {image.name} {(b, h, hk, L, S)} lower_right={lower_right} scale={scale:.3f}: error {e:.2e} "
                                  f"lse {lse_error:.2e} inf {same_inf} outside {outside.isnan().all().item()}")
                    return False, worst
    q, k, v = tensors(2, 16, 16, 1500, 1500, image.e, image.ev, dtype)
    results = []
    for _ in range(6):
        out = torch.full((2, 16, 1500, image.ev), torch.nan, dtype=dtype, device="cuda")
        image.prepare(q, k, v, out, None, image.e**-0.5)()
        results.append(out)
    torch.cuda.synchronize()
    if not all(torch.equal(results[0].view(torch.int16), r.view(torch.int16)) for r in results):
        report.append(f"  WRONG {image.name}: six runs differ")
        return False, worst
    return True, worst


class Clock:
    """SM clock and board power while work is queued."""

    def __init__(self):
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:
            self.nvml = None

    def read(self):
        if not self.nvml:
            return (0, 0)
        try:
            return (self.nvml.nvmlDeviceGetClockInfo(self.handle, 1), self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1000)
        except Exception:
            return (0, 0)


def time_row(row, images, others, clock, rounds, budget_ms):
    b, h, hk, S, e, ev, causal, dtype = row
    q, k, v = tensors(b, h, hk, S, S, e, ev, dtype)
    flops = 2.0 * b * h * S * S * (e + ev) * (0.5 if causal else 1.0)
    gqa = h != hk
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    calls, results, errors = {}, {}, {}
    for name, backend in backends.items():
        def call(backend=backend):
            with sdpa_kernel([backend]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)
        try:
            results[name] = call()
            calls[name] = call
        except Exception as problem:
            print(f"  {name} refuses {row}: {str(problem)[:90]}")
    for name, peer in others.items():
        q1, k1, v1 = (t.transpose(1, 2).contiguous() for t in (q, k, v))
        def call(peer=peer, q1=q1, k1=k1, v1=v1):
            return peer(q1, k1, v1, causal)
        try:
            results[name] = call().transpose(1, 2)
            torch.cuda.synchronize()
            calls[name] = call
        except Exception as problem:
            print(f"  {name} refuses {row}: {str(problem)[:200]}")
    for image in images:
        out = torch.full((b, h, S, ev), torch.nan, dtype=dtype, device="cuda")
        calls[image.name] = image.prepare(q, k, v, out, None, e**-0.5)
        calls[image.name]()
        results[image.name] = out
    torch.cuda.synchronize()
    # Error on the last head of the last batch entry against float64.
    group = h // hk
    want, _ = reference(q[-1:, -1:], k[-1:, -1:], v[-1:, -1:], causal, False, e**-0.5)
    for name, result in results.items():
        errors[name] = error(result[-1:, -1:], want)
    flush = torch.empty(32 * 2**20, dtype=torch.int32, device="cuda")
    times = {name: [] for name in calls}
    clocks = {name: [] for name in calls}
    guess = {}
    for name, call in calls.items():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(); call(); call(); end.record(); end.synchronize()
        guess[name] = begin.elapsed_time(end) / 2
    for _ in range(rounds):
        for name, call in calls.items():
            pairs = []
            for _ in range(max(3, min(30, int(budget_ms / (guess[name] + 0.06))))):
                flush.zero_()
                torch.cuda._sleep(200_000)  # about 0.1 ms: the launch is queued before the device gets there
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record(); call(); end.record()
                pairs.append((begin, end))
            clocks[name].append(clock.read())
            torch.cuda.synchronize()
            times[name].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
    return {name: {"us": statistics.median(t), "rounds_us": t, "tflops": flops / statistics.median(t) / 1e6, "error": errors[name],
                   "sm_mhz": statistics.median(c[0] for c in clocks[name]), "watts": statistics.median(c[1] for c in clocks[name])}
            for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest")
    parser.add_argument("out")
    parser.add_argument("--rows", default=".*")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--skip-time", action="store_true")
    parser.add_argument("--gqa", action="store_true", help="add 1,64(8),2k…32k,128")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget-ms", type=float, default=8.0, help="GPU time per candidate and round")
    parser.add_argument("--name", default="flash_forward", help="of the JSON file")
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    folder = os.path.dirname(os.path.abspath(options.manifest))
    good, summary, checked, failures = [], [], [], 0
    for info in json.load(open(options.manifest)):
        try:
            image = Image(info, folder)
            ok, worst = (True, 0.0) if options.skip_check else check_image(image, summary)
        except Exception as problem:
            summary.append(f"  FAILED {info['name']}: {problem}")
            if "launch failed" in str(problem) or "illegal" in str(problem) or "unspecified" in str(problem) or "misaligned" in str(problem):
                print("\n".join(summary)); traceback.print_exc(); sys.exit(1)
            continue
        expected = getattr(image, "expect", "right") == "right"
        verdict = ("right" if ok else "WRONG") if expected else ("NOT CAUGHT" if ok else "caught")
        failures += ok != expected
        summary.append(f"  {verdict} {image.name}: worst error {worst:.2e}, shared {image.shared}")
        checked.append({"image": image.name, "verdict": verdict, "worst_rel_l2": worst})
        if ok: good.append(image)
    print("\n".join(summary), flush=True)
    if options.skip_time: sys.exit(1 if failures else 0)
    clock = Clock()
    rows = [(b, h, h, s, d, d, causal, torch.bfloat16) for (b, h, s, d, causal) in ROWS]
    if options.gqa:
        rows += [(1, 64, 8, s, 128, 128, causal, torch.bfloat16) for s in (2048, 4096, 8192, 16384, 32768) for causal in (True, False)]
    record = {"schema": "attnscope.flash_forward_bench/1", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "cudnn": torch.backends.cudnn.version(), "checks": checked, "rows": []}
    others = {}
    for name, (call, reason) in peers.found().items():
        if call: others[name] = call
        else: print(f"{name} is not beside: {reason[:160]}", flush=True)
        record.setdefault("peers", {})[name] = reason[:300] or "loaded"
    for row in rows:
        b, h, hk, s, d, ev, causal, dtype = row
        label = f"{b},{h}{'' if hk == h else f'({hk})'},{s},{d} {'causal' if causal else 'full'}"
        if not re.search(options.rows, label): continue
        images = [i for i in good if not getattr(i, 'any_output', False) and i.e == d and i.ev == ev and i.causal == causal and i.dtype == "bf16" and re.search(getattr(i, "rows_match", ""), label)]
        if not images: continue
        try:
            results = time_row(row, images, others, clock, options.rounds, options.budget_ms)
        except Exception:
            traceback.print_exc(); sys.exit(1)
        record["rows"].append({"row": label, "results": results})
        base = results.get("cudnn", {}).get("us", float("nan"))
        print(label, flush=True)
        for name, r in results.items():
            spread = (max(r["rounds_us"]) - min(r["rounds_us"])) / r["us"] * 100
            print(f"   {name:34s} {r['us']:8.1f} us {r['tflops']:6.0f} TF  x{base / r['us']:.3f}  err {r['error']:.2e}  ±{spread:3.0f}%  {r['sm_mhz']:.0f} MHz {r['watts']:.0f} W", flush=True)
        json.dump(record, open(f"{options.out}/{options.name}.json", "w"), indent=1)


main()
