"""Loads the featured images through the CUDA driver and launches them on PyTorch tensors: featured/plan.cpp, in Python."""

import ctypes
import struct

import torch

from launcher import Image, check, cuda, tensor_map, choose_group, LOG2E
UNBOUNDED = 1 << 30


class Featured(Image):
    def groups(self, heads, L, S, n, kv_bytes, sms):
        per_head = -(-L // self.rows) + n // 2
        fit = max(1, int(40e6 / max(kv_bytes, 1)))
        return sorted({min(heads, max(1, g)) for g in (heads, fit, (2 * sms) // per_head, (4 * sms) // per_head)})

    def prepare(self, q, k, v, out, lse, f, sms=132, group_heads=None):
        """f: dict of causal, lower_right, left, right, scale, softcap, slopes, sinks, kv_lengths, cu_q, cu_k, dropout, seed, offset, seed_on_device"""
        raw = ctypes.create_string_buffer(896 + 64)
        start = -ctypes.addressof(raw) % 64
        batch, heads, rows, e = q.shape
        columns = k.shape[2]
        tensor_map(raw, start, q, 64)
        tensor_map(raw, start + 128, k, self.columns)
        tensor_map(raw, start + 256, v, self.columns)
        scale = f.get("scale", e**-0.5)
        softcap, slopes = f.get("softcap", 0), f.get("slopes")
        in_log2 = int(bool(softcap) or slopes is not None)
        raw_path = scale > 0 and not in_log2
        cu_q, cu_k, lengths = f.get("cu_q"), f.get("cu_k"), f.get("kv_lengths")
        n = cu_q.numel() if cu_q is not None else batch
        upper = (rows // self.rows + n) * heads if cu_q is not None else -(-rows // self.rows) * heads * batch
        if group_heads is None:
            seqs = max(1, n - 1) if cu_q is not None else batch
            L, S = (-(-rows // seqs), -(-columns // seqs)) if cu_q is not None else (rows, columns)
            self.causal = True
            group_heads = choose_group(self, heads * seqs, -(-L // self.rows), L, S, S - L if f.get("lower_right") else 0,
                S * (k.shape[3] + v.shape[3]) * 2 / (heads // k.shape[1]), sms) if f.get("causal") else heads * seqs
        rest = struct.pack("<Q3qQ4q10ifif4x", 0 if lse is None else lse.data_ptr(), heads * rows, rows, 1, out.data_ptr(), *out.stride(),
            out.shape[3], heads, heads // k.shape[1], heads // v.shape[1], rows, columns, 0, 0, upper, group_heads,
            scale * LOG2E if raw_path else 1.0, int(scale <= 0 and not in_log2), scale * LOG2E)
        index = lambda t: (0, 0, 0) if t is None else (t.data_ptr(), t.stride(0), int(t.dtype == torch.int64))
        right = 0 if f.get("causal") else f.get("right", -1)
        left = f.get("left", -1)
        sinks = f.get("sinks")
        p = f.get("dropout", 0.0)
        threshold = min(int(p * 2**32), 2**32 - 1)
        kind = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3}
        device_seed = f.get("seed_on_device")
        rest += struct.pack("<i4xQqi4xQqi4xQqi4x", n, *index(lengths), *index(cu_q), *index(cu_k))
        rest += struct.pack("<3i4xQ4qQqi", left if left >= 0 else UNBOUNDED, right if right >= 0 else UNBOUNDED, int(bool(f.get("lower_right"))),
            v.data_ptr(), *v.stride(), 0 if sinks is None else sinks.data_ptr(), 0 if sinks is None else sinks.stride(0), 0 if sinks is None else kind[sinks.dtype])
        rest += struct.pack("<iffQqqiIfxxxxQQQ", in_log2, softcap * LOG2E, 2 * scale / softcap * LOG2E if softcap else 0.0,
            0 if slopes is None else slopes.data_ptr(), 0 if slopes is None or slopes.dim() == 1 else slopes.stride(0), 0 if slopes is None else slopes.stride(-1),
            0 if p == 0 else 2 if p >= 1 else 1, threshold, 0.0 if p >= 1 else 1 / (1 - p), f.get("seed", 0), f.get("offset", 0),
            0 if device_seed is None else device_seed.data_ptr())
        assert 512 + len(rest) == 872, len(rest)
        ctypes.memmove(ctypes.addressof(raw) + start + 512, rest, len(rest))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(raw) + start)
        grid = min(upper, sms)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        def launch(keep=(raw, q, k, v, out, lse, f)):
            check(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, arguments, None), "launch")
        return launch
