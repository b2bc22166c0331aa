"""A PyTorch script as a user has it: three SDPA backends under NVTX ranges; recorded unmodified by `attnscope record`."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

q, k, v = (torch.randn((8, 16, 1024, 64), device="cuda", dtype=torch.bfloat16) for _ in range(3))
backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
with torch.no_grad():
    for backend in backends.values():  # warm
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.cuda.synchronize()
    with torch.autograd.profiler.emit_nvtx():
        for name, backend in backends.items():
            for _ in range(3):
                torch.cuda.nvtx.range_push(name)
                with sdpa_kernel(backend):
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)
                torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()

# What a launch costs the host, for the overhead of recording: small calls, back to back.
q, k, v = (torch.randn((1, 8, 128, 64), device="cuda", dtype=torch.bfloat16) for _ in range(3))
with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
        rounds.append((time.perf_counter() - began) * 1e3)
        torch.cuda.synchronize()
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as file:
        json.dump({"host_us_per_call": sorted(rounds)[2]}, file)
