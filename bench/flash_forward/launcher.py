"""Loads flash_forward images through the CUDA driver and launches them on PyTorch tensors."""

import ctypes
import struct

cuda = ctypes.CDLL("libcuda.so.1")
PARAMS_BYTES = 640  # sizeof(Params), src/backends/cuda_flash_sm90/params.h
LOG2E = 1.4426950408889634


def check(status, what):
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{what}: {status} {text.value}")


def tensor_map(buffer, offset, t, box_rows):
    """4-D map {column, row, head, batch} of t [batch, heads, rows, columns], boxes of 64 columns, 128-byte swizzle."""
    element = {"torch.bfloat16": 9, "torch.float16": 6}[str(t.dtype)]
    batch, heads, rows, columns = t.shape
    sizes = (ctypes.c_uint64 * 4)(columns, rows, heads, batch)
    bytes_of = lambda n, stride: max(16, stride * 2) if n > 1 else 16 * ((columns * 2 + 15) // 16)
    strides = (ctypes.c_uint64 * 3)(
        bytes_of(rows, t.stride(2)), bytes_of(heads, t.stride(1)), bytes_of(batch, t.stride(0)))
    box = (ctypes.c_uint32 * 4)(64, box_rows, 1, 1)
    ones = (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(buffer) + offset), element, 4, ctypes.c_void_p(t.data_ptr()), sizes, strides, box, ones,
        0, 3, 2, 0), "cuTensorMapEncodeTiled")  # no interleave, 128-byte swizzle, 128-byte L2 promotion, zero fill


def choose_group(image, heads, row_blocks, rows, columns, offset, kv_bytes, sms):
    """Heads walked together: the schedule of src/backends/cuda_flash_sm90/schedule.cpp, for images tried by hand."""
    if not image.causal: return 1
    step_us = image.rows * image.columns * 2 * (image.e + image.ev) / 5.5e6
    lengths = [max(1, -(-min(columns, min((m + 1) * image.rows, rows) + offset) // image.columns)) for m in range(row_blocks)]
    best = None
    for g in sorted({heads, max(1, heads // 2), max(1, heads // 4), *(min(heads, max(1, round(2 * k * sms / row_blocks))) for k in (1, 2, 3, 4))}):
        load, i = [0.0] * sms, 0
        for start in range(0, heads, g):
            for m in reversed(range(row_blocks)):
                for _ in range(min(g, heads - start)):
                    turn, place = divmod(i, sms)
                    load[sms - 1 - place if turn % 2 else place] += lengths[m] + 0.7
                    i += 1
        compute = max(load) * step_us
        traffic = heads * sum(lengths) * image.columns * kv_bytes / columns
        if g * kv_bytes > 40e6: traffic /= max(1.0, sms / g)
        else: traffic = heads * kv_bytes
        memory = traffic / 4.0e6
        cost = max(compute, memory) + 0.2 * min(compute, memory)
        if best is None or cost < best[0]: best = (cost, g)
    return best[1]


class Image:
    def __init__(self, info, folder):
        self.__dict__.update(info)
        self.data = open(f"{folder}/{self.file}", "rb").read()
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(self.module), self.data), f"load {self.name}")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), self.module, b"flash_forward"), "function")
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t()
        check(cuda.cuModuleGetGlobal_v2(ctypes.byref(pointer), ctypes.byref(size), self.module, b"flash_shared_bytes"), "global")
        shared = ctypes.c_int()
        check(cuda.cuMemcpyDtoH_v2(ctypes.byref(shared), pointer, 4), "copy")
        self.shared = shared.value
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), f"shared memory {self.shared} of {self.name}")
        self.rows = 64 * self.consumers
        self.threads = 128 * (1 + self.consumers)

    def prepare(self, q, k, v, out, lse, scale, lower_right=False, sms=132, group_heads=None):
        """A function of no arguments that launches once on the current stream."""
        import torch

        raw = ctypes.create_string_buffer(PARAMS_BYTES + 64)
        start = -ctypes.addressof(raw) % 64
        batch, heads, rows, _ = q.shape
        kv_heads, columns = k.shape[1], k.shape[2]
        tensor_map(raw, start, q, 64)
        tensor_map(raw, start + 128, k, self.columns)
        tensor_map(raw, start + 256, v, self.columns)
        tensor_map(raw, start + 384, out, 16)
        row_blocks = -(-rows // self.rows)
        tiles = row_blocks * heads * batch
        group = heads // kv_heads
        kv_bytes = columns * (k.shape[3] + v.shape[3]) * 2 / group
        offset = columns - rows if lower_right else 0
        if group_heads is None: group_heads = choose_group(self, heads * batch, row_blocks, rows, columns, offset, kv_bytes, sms)
        rest = struct.pack(
            "<Q3qQ4q10ifif", 0 if lse is None else lse.data_ptr(), heads * rows, rows, 1, out.data_ptr(), *out.stride(),
            out.shape[3], heads, group, heads // v.shape[1], rows, columns, offset, row_blocks, tiles, group_heads,
            scale * LOG2E if scale > 0 else 1.0, int(scale <= 0), scale * LOG2E)
        ctypes.memmove(ctypes.addressof(raw) + start + 512, rest, len(rest))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(raw) + start)
        grid = min(tiles, sms)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def launch(keep=(raw, q, k, v, out, lse)):
            check(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, arguments, None), "launch")

        return launch
