"""Our variants and PyTorch's SDPA backends in one process on one GPU, interleaved: device time, kernels per call, host
cost of a call, error against float64. Usage: peers.py [--json FILE] [--quick] (needs torch, triton, libattnscope.so)
"""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

import attnscope

SHAPES = [(8, 16, 1024, 64, True), (8, 16, 1024, 64, False), (2, 16, 2048, 64, True), (4, 16, 4096, 128, True)]
FUSED_SHAPES = [(2, 16, 8192, 128, True), (1, 16, 16384, 128, True), (8, 16, 1024, 128, True), (2, 8, 4096, 256, True)]
ROUNDS = 3


def torch_variants(q, k, v, causal):
    length = q.shape[2]
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool, device=q.device), diagonal=1)
    scale = 1 / math.sqrt(q.shape[3])

    def naive():
        s = torch.matmul(q, k.transpose(-2, -1)) * scale
        return torch.matmul(torch.softmax(s.masked_fill(mask, float("-inf")) if causal else s, dim=-1), v)

    def inplace():
        s = torch.matmul(q, k.transpose(-2, -1)) * scale
        if causal:
            s.masked_fill_(mask, float("-inf"))
        return torch.matmul(torch.softmax(s, dim=-1), v)

    def backend(b):
        def call():
            with sdpa_kernel(b):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return call

    return {"naive": naive, "inplace": inplace, "math": backend(SDPBackend.MATH), "efficient": backend(SDPBackend.EFFICIENT_ATTENTION),
            "flash": backend(SDPBackend.FLASH_ATTENTION), "cudnn": backend(SDPBackend.CUDNN_ATTENTION),
            "auto": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)}


def our_call(name, q, k, v, causal):
    plan = attnscope.Plan(q, k, v, causal="top_left" if causal else None, backends=None if name == "auto" else name)
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    work = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device=q.device)
    run = plan.bind(out, workspace=work)

    def call():
        run()
        return out
    call.backend = plan.backend
    return call


def median_us(call):
    return do_bench(call, warmup=10, rep=40, return_mode="median") * 1e3


def counts(call):
    call()
    torch.cuda.synchronize()
    with attnscope.Session(cuda=True) as session:
        call()
        torch.cuda.synchronize()
    s = session.summary
    return {"kernels": s["kernels"], "copies": s["copies"], "fills": s["fills"],
            "device_events": [{key: e[key] for key in ("name", "us")} | {key: e.get(key) for key in ("registers", "shared_bytes", "block")}
                              for e in s["device_events"]]}


def reference(q, k, v, causal):
    """float64, a few heads: enough to see a wrong result."""
    q, k, v = (t[:1, :2].double() for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def error(out, expected):
    out = out[:1, :2].double()
    return {"rel_l2": ((out - expected).norm() / expected.norm()).item(), "max_abs": (out - expected).abs().max().item()}


def measure(shape, names):
    b, h, length, d, causal = shape
    torch.manual_seed(0)
    q, k, v = (torch.randn((b, h, length, d), device="cuda", dtype=torch.bfloat16) for _ in range(3))
    expected = reference(q, k, v, causal)
    theirs = torch_variants(q, k, v, causal)
    rows = []
    for name in names:
        row = {"variant": name}
        pair = {}
        for who, make in (("torch", lambda: theirs[name]), ("attnscope", lambda: our_call(name, q, k, v, causal))):
            try:
                with torch.no_grad():
                    call = make()
                    row[who] = {"error": error(call(), expected), **counts(call)}
                    pair[who] = call
                    if who == "attnscope":
                        row[who]["backend"] = call.backend
            except (attnscope.Error, RuntimeError) as reason:
                row[who] = {"refused": str(reason)[:400]}
        with torch.no_grad():
            times = {who: [] for who in pair}
            for _ in range(ROUNDS):
                for who, call in pair.items():
                    times[who].append(median_us(call))
        flops = 4 * b * h * length * length * d * (0.5 if causal else 1)
        for who, values in times.items():
            row[who]["device_us"] = statistics.median(values)
            row[who]["device_us_rounds"] = values
            row[who]["tflops"] = flops / row[who]["device_us"] / 1e6
        if len(times) == 2:
            row["ratio"] = row["torch"]["device_us"] / row["attnscope"]["device_us"]
        rows.append(row)
        print(shape, name, *(f"{who} {row[who].get('device_us', 0):.1f} us {row[who].get('kernels')}+{row[who].get('copies')}+{row[who].get('fills')}"
                             if "device_us" in row[who] else f"{who} refused: {row[who]['refused'][:90]}" for who in ("torch", "attnscope")),
              f"ratio {row.get('ratio', 0):.2f}", flush=True)
    return {"shape": dict(zip(("batch", "heads", "length", "head_dim", "causal"), shape)), "variants": rows}


def host_cost(names):
    """Microseconds of host time per call, 1000 calls back to back, nothing recording."""
    q, k, v = (torch.randn((1, 8, 128, 64), device="cuda", dtype=torch.bfloat16) for _ in range(3))
    theirs = torch_variants(q, k, v, True)
    rows = {}
    for name in names:
        rows[name] = {}
        for who, make in (("torch", lambda: theirs[name]), ("attnscope", lambda: our_call(name, q, k, v, True))):
            try:
                with torch.no_grad():
                    call = make()
                    for _ in range(50):
                        call()
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                    for _ in range(1000):
                        call()
                    rows[name][who] = (time.perf_counter() - began) * 1e3
                    torch.cuda.synchronize()
            except (attnscope.Error, RuntimeError) as reason:
                rows[name][who] = str(reason)[:200]
        print("host us per call", name, rows[name], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    a = parser.parse_args()
    unfused = ["naive", "inplace", "math", "efficient", "flash", "cudnn", "auto"]
    result = {"schema": "attnscope.peers/1", "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "cudnn_of_torch": torch.backends.cudnn.version(), "attnscope": attnscope.version(), "backends": attnscope.backends(),
              "host_us_per_call": host_cost(["math", "efficient", "flash", "cudnn"]),
              "shapes": [measure(s, unfused) for s in (SHAPES[:1] if a.quick else SHAPES)]}
    if not a.quick:
        result["shapes"] += [measure(s, ["efficient", "flash", "cudnn", "auto"]) for s in FUSED_SHAPES]
    if a.json:
        with open(a.json, "w") as file:
            json.dump(result, file, indent=1)


main()
