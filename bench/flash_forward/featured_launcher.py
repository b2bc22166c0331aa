"""Loads the featured images through the CUDA driver and launches them on PyTorch tensors: featured/plan.cpp, in Python."""

import ctypes
import struct

import torch

from launcher import Image, check, cuda, tensor_map, choose_group, LOG2E
UNBOUNDED = 1 << 30


def mask_map(buffer, offset, strides, mask, sizes, keys, rows):
    """4-D map {key, row, head, batch} of a mask; a dimension of stride 0 has size 1 (featured/plan.cpp, mask_geometry)."""
    size = mask.element_size()
    b, h, l, s = sizes
    dims = (ctypes.c_uint64 * 4)(s, *(1 if stride == 0 else n for n, stride in zip((l, h, b), strides[::-1])))
    steps = (ctypes.c_uint64 * 3)(*(16 if stride == 0 else stride * size for stride in strides[::-1]))
    columns = min(keys, 128 // size)
    box = (ctypes.c_uint32 * 4)(columns, rows if strides[2] else 1, 1, 1)
    ones = (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(buffer) + offset), 0 if size == 1 else 1, 4, ctypes.c_void_p(mask.data_ptr()), dims, steps, box, ones,
        0, 2 if columns * size == 64 else 3, 2, 0), "cuTensorMapEncodeTiled of the mask")


class MaskTiles:
    """The kernel that finds the tiles that a bool mask removes (featured/kept.cu)."""

    def __init__(self, path):
        self.data = open(path, "rb").read()
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(self.module), self.data), "load mask_tiles")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"mask_tiles"), "function")

    def prepare(self, mask, strides, sizes, rows, keys):
        """(a function that launches it, the tiles, their strides of batch, head, row block)"""
        b, h, l, s = (n if d == 3 or strides[d] else 1 for d, n in enumerate(sizes))
        blocks, steps = -(-l // rows), -(-s // keys)
        tiles = torch.empty(b * h * blocks * steps, dtype=torch.uint8, device="cuda")
        raw = ctypes.create_string_buffer(struct.pack("<Q3q8iQ", mask.data_ptr(), *strides, h, blocks, steps, tiles.numel(), l, s, rows, keys, tiles.data_ptr()))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(raw))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        def launch(keep=(raw, tiles, mask)):
            check(cuda.cuLaunchKernel(self.function, -(-tiles.numel() // 8), 1, 1, 256, 1, 1, 0, stream, arguments, None), "launch")
        return launch, tiles, (h * blocks * steps * bool(strides[0]), blocks * steps * bool(strides[1]), steps * bool(strides[2]))


class Featured(Image):
    mask_tiles = None  # a MaskTiles: images with a bool mask leave out what it removes

    def groups(self, heads, L, S, n, kv_bytes, sms):
        per_head = -(-L // self.rows) + n // 2
        fit = max(1, int(40e6 / max(kv_bytes, 1)))
        return sorted({min(heads, max(1, g)) for g in (heads, fit, (2 * sms) // per_head, (4 * sms) // per_head)})

    def prepare(self, q, k, v, out, lse, f, sms=132, group_heads=None):
        """f: dict of causal, lower_right, left, right, scale, softcap, slopes, sinks, kv_lengths, cu_q, cu_k, dropout, seed, offset, seed_on_device, mask"""
        raw = ctypes.create_string_buffer(1152 + 64)
        start = -ctypes.addressof(raw) % 64
        batch, heads, rows, e = q.shape
        columns = k.shape[2]
        tensor_map(raw, start, q, 64)
        tensor_map(raw, start + 128, k, self.columns)
        tensor_map(raw, start + 256, v, self.columns)
        scale = f.get("scale", e**-0.5)
        softcap, slopes = f.get("softcap", 0), f.get("slopes")
        in_log2 = int(bool(softcap) or slopes is not None)
        mask = f.get("mask")
        biased = mask is not None and mask.dtype != torch.bool
        raw_path = scale > 0 and not in_log2 and not biased
        cu_q, cu_k, lengths = f.get("cu_q"), f.get("cu_k"), f.get("kv_lengths")
        n = cu_q.numel() if cu_q is not None else batch
        walked_heads, heads_first = heads, False
        if mask is not None:
            while mask.dim() < 4: mask = mask[None]
            strides = [0 if mask.size(d) == 1 else mask.stride(d) for d in range(3)]
            heads_first = f.get("heads_first", strides[0] == 0 and strides[1] != 0 and batch > 1 and lengths is None)
            if heads_first: walked_heads, n = batch, heads
        upper = (rows // self.rows + n) * heads if cu_q is not None else -(-rows // self.rows) * heads * batch
        if group_heads is None:
            seqs = max(1, n - 1) if cu_q is not None else batch
            L, S = (-(-rows // seqs), -(-columns // seqs)) if cu_q is not None else (rows, columns)
            self.causal = True
            group_heads = choose_group(self, heads * seqs, -(-L // self.rows), L, S, S - L if f.get("lower_right") else 0,
                S * (k.shape[3] + v.shape[3]) * 2 / (heads // k.shape[1]), sms) if f.get("causal") else heads * seqs
        rest = struct.pack("<Q3qQ4q10ifif4x", 0 if lse is None else lse.data_ptr(), heads * rows, rows, 1, out.data_ptr(), *out.stride(),
            out.shape[3], walked_heads, heads // k.shape[1], heads // v.shape[1], rows, columns, 0, 0, upper, group_heads,
            scale * LOG2E if raw_path else LOG2E if biased else 1.0, int(scale <= 0 and not in_log2 and not biased), scale * LOG2E)
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
        ahead = None
        if mask is not None:
            kept, kept_strides = None, (0, 0, 0)
            if self.mask_tiles and mask.dtype == torch.bool:
                ahead, kept, kept_strides = self.mask_tiles.prepare(mask, strides, (batch, heads, rows, columns), self.rows, self.columns)
            mask_map(raw, start + 896, strides, mask, (batch, heads, rows, columns), self.columns, self.rows)
            tail = struct.pack("<Q3q3ifi4xQ3q", mask.data_ptr(), *strides, *(int(x != 0) for x in strides), scale, int(heads_first),
                               0 if kept is None else kept.data_ptr(), *kept_strides)
            ctypes.memmove(ctypes.addressof(raw) + start + 1024, tail, len(tail))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(raw) + start)
        grid = min(upper, sms)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        def launch(keep=(raw, q, k, v, out, lse, f, mask)):
            if ahead: ahead()
            check(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, arguments, None), "launch")
        return launch
