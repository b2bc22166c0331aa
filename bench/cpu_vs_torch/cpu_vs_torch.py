"""Our CPU attention against PyTorch's scaled_dot_product_attention, in one process, calls interleaved.

    python cpu_vs_torch.py LIBRARY [--threads N] [--quick] [--json FILE] [--only TEXT]

LIBRARY is the shared object that `cmake --build … --target attnscope_cpu_bench` makes. PyTorch and numpy must be
importable. Each case is checked against PyTorch's own result before it is timed. Times are medians over rounds; a
round times PyTorch, then us, then both in the other order, and the ratio is the median of the rounds' ratios, so
that what else the machine does hits both. Decoding is bound by memory: its rounds also read K and V once with a plain
loop, as fast as the machine does, and the share of that rate is printed. With --backend math, PyTorch's own MATH
backend is the peer; with naive or inplace, the formula written with PyTorch's operators.
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import sys
import time

DTYPES = {"f32": 0, "f16": 1, "bf16": 2}
TOLERANCE = {"f32": 1e-4, "f16": 1e-2, "bf16": 6e-2}

# name: B, Hq, Hk, L, S, E, Ev
PREFILL = {
    "1,8,1024,64": (1, 8, 8, 1024, 1024, 64, 64),
    "1,8,2048,64": (1, 8, 8, 2048, 2048, 64, 64),
    "1,16,2048,64": (1, 16, 16, 2048, 2048, 64, 64),
    "1,8,2048,128": (1, 8, 8, 2048, 2048, 128, 128),
    "4,8,512,80": (4, 8, 8, 512, 512, 80, 80),
    "1,32,4096,128": (1, 32, 32, 4096, 4096, 128, 128),
}
DECODE = {f"decode 32/8 S={s // 1024}k": (1, 32, 8, 1, s, 128, 128) for s in (8192, 32768, 131072)}
SMALL = {"2,4,128,64": (2, 4, 4, 128, 128, 64, 64), "1,2,16,32": (1, 2, 2, 16, 16, 32, 32)}


def cases(quick):
    for name, shape in PREFILL.items():
        if quick and name == "1,32,4096,128":
            continue
        for dtype in DTYPES:
            for causal in (False, True):
                yield name, shape, dtype, causal
    for name, shape in DECODE.items():
        for dtype in ("bf16", "f32"):
            yield name, shape, dtype, False
    for name, shape in SMALL.items():
        yield name, shape, "f32", False


def pairs(shape, causal):
    _, _, _, rows, keys, _, _ = shape
    if not causal:
        return rows * keys
    return sum(min(keys, i + 1) for i in range(rows))


class Ours:
    def __init__(self, library, threads):
        library = ctypes.CDLL(library)
        self.call = library.attnscope_bench_sdpa
        self.read_probe = library.attnscope_bench_read
        self.read_probe.restype = ctypes.c_double
        self.flops_probe = library.attnscope_bench_multiply_adds
        self.flops_probe.restype = ctypes.c_double
        self.threads = threads
        self.reason = ctypes.create_string_buffer(500)

    def __call__(self, torch, backend, shape, dtype, causal, q, k, v):
        batch, heads, _, rows, _, _, width = shape
        out = torch.empty((batch, heads, rows, width), dtype=q.dtype)
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (q, k, v, out)]
        failed = self.call(backend.encode(), (ctypes.c_int64 * 7)(*shape), DTYPES[dtype], int(causal), self.threads,
                           *pointers, self.reason, ctypes.c_size_t(500))
        if failed:
            sys.exit(f"{backend} refused {shape}: {self.reason.value.decode()}")
        return out


    def read_seconds(self, tensors):
        """Reading the tensors once from where they are, with a plain loop."""
        total = 0.0
        for x in tensors:
            size = x.numel() * x.element_size()
            total += size * 1e-9 / self.read_probe(ctypes.c_void_p(x.data_ptr()), ctypes.c_int64(size), self.threads)
        return total

    def multiply_adds_gflops(self):
        return max(self.flops_probe(self.threads) for _ in range(5))


def peer_of(torch, backend):
    """What the backend is measured beside: a function of q, k, v, causal, enable_gqa."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    if backend == "math":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def math(q, k, v, **options):
            with sdpa_kernel(SDPBackend.MATH):
                return sdpa(q, k, v, **options)
        return math
    if backend in ("naive", "inplace"):
        def formula(q, k, v, is_causal, enable_gqa):
            group = q.size(1) // k.size(1) if enable_gqa else 1
            if group > 1:
                k, v = (x.repeat_interleave(group, 1) for x in (k, v))
            scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
            if is_causal:
                above = torch.ones(q.size(2), k.size(2), dtype=torch.bool).triu(1)
                fill = scores.masked_fill_ if backend == "inplace" else scores.masked_fill
                scores = fill(above, float("-inf"))
            return scores.softmax(-1) @ v
        return formula
    return sdpa


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(theirs, ours, budget_s, read_seconds=None):
    """read_seconds: a call that says how long reading the inputs takes, for cases that memory limits."""
    for _ in range(2):
        theirs(), ours()
    torch_s, ours_s, ratios, shares, reads, spent = [], [], [], [], [], 0.0
    while len(ratios) < 3 or (spent < budget_s and len(ratios) < 400):
        a, b = timed(theirs), timed(ours)
        c, d = timed(ours), timed(theirs)
        torch_s += [a, d]
        ours_s += [b, c]
        ratios.append((a + d) / (b + c))
        spent += a + b + c + d
        if read_seconds:
            before, again, after = read_seconds(), timed(ours), read_seconds()
            reads += [before, after]
            shares.append((before + after) / 2 / again)
    quartiles = statistics.quantiles(ratios, n=4)
    bound = {"read_ms": statistics.median(reads) * 1e3, "share_of_read_rate": statistics.median(shares)} if reads else {}
    return {
        **bound,
        "torch_ms": statistics.median(torch_s) * 1e3,
        "ours_ms": statistics.median(ours_s) * 1e3,
        "ours_best_ms": min(ours_s) * 1e3,
        "torch_best_ms": min(torch_s) * 1e3,
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [quartiles[0], quartiles[2]],
        "rounds": len(ratios),
    }


def save(path, run):
    """Adds the run to the file. Of an earlier one of the same machine, threads, backend and ISA the cases that were
    not measured now (--only) stay."""
    document = {"schema": "attnscope.bench.cpu_vs_torch/1", "runs": []}
    if os.path.exists(path):
        with open(path) as file:
            document = json.load(file)
    identity = ("processor", "threads", "backend", "isa")
    for i, earlier in enumerate(document["runs"]):
        if all(earlier[key] == run[key] for key in identity):
            cases = {row["case"]: row for row in earlier["results"]} | {row["case"]: row for row in run["results"]}
            document["runs"][i] = {**run, "results": list(cases.values())}
            break
    else:
        document["runs"].append(run)
    with open(path, "w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def processor():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--backend", default="flash")
    parser.add_argument("--json")
    parser.add_argument("--only", default="", help="run cases whose line contains this text")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0, help="time spent on a case")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)

    import torch
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    ours = Ours(args.library, args.threads)
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    peer = peer_of(torch, args.backend)
    peak = ours.multiply_adds_gflops()
    print(f"{args.threads} thread(s), f32 multiply-adds in registers: {peak:.0f} GFLOP/s")

    results = []
    for name, shape, dtype, causal in cases(args.quick):
        label = f"{name} {dtype} {'causal' if causal else 'full'}"
        if args.only not in label:
            continue
        batch, heads, kv_heads, rows, keys, width, value_width = shape
        q = torch.randn(batch, heads, rows, width).to(types[dtype])
        k = torch.randn(batch, kv_heads, keys, width).to(types[dtype])
        v = torch.randn(batch, kv_heads, keys, value_width).to(types[dtype])

        def run_torch():
            return peer(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)

        def run_ours():
            return ours(torch, args.backend, shape, dtype, causal, q, k, v)

        error = (run_torch().float() - run_ours().float()).abs().max().item()
        if not error < TOLERANCE[dtype]:
            sys.exit(f"{label}: differs from PyTorch by {error}")
        def read_inputs():
            return ours.read_seconds((k, v))

        row = {"case": label, "threads": args.threads, "max_difference": error,
               **measure(run_torch, run_ours, args.seconds, read_inputs if rows == 1 else None)}
        flops = 2.0 * batch * heads * pairs(shape, causal) * (width + value_width)
        row["ours_gflops"] = flops / row["ours_ms"] * 1e-6
        row["torch_gflops"] = flops / row["torch_ms"] * 1e-6
        row["kv_gb_per_s"] = k.element_size() * batch * kv_heads * keys * (width + value_width) / row["ours_ms"] * 1e-6
        results.append(row)
        low, high = row["ratio_quartiles"]
        print(f"{label:32} torch {row['torch_ms']:9.3f} ms  ours {row['ours_ms']:9.3f} ms  "
              f"{row['ours_gflops']:7.1f} GFLOP/s  {row['ratio']:5.2f}x [{low:.2f}, {high:.2f}]"
              + (f"  {row['kv_gb_per_s']:.1f} GB/s of K and V, {row['share_of_read_rate']:.0%} of what a plain loop reads"
                 if rows == 1 else ""), flush=True)

    if args.json:
        run = {"processor": processor(), "threads": args.threads, "backend": args.backend,
               "isa": os.environ.get("ATTNSCOPE_CPU_ISA", "best"), "torch": torch.__version__,
               "torch_capability": torch.backends.cpu.get_cpu_capability(), "multiply_adds_gflops": peak,
               "results": results}
        save(args.json, run)


if __name__ == "__main__":
    main()
