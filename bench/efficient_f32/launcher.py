"""Loads images of the f32 kernel through the CUDA driver and launches them on PyTorch tensors."""
import ctypes as C

cuda = C.CDLL("libcuda.so.1")
i64, i32, f32, ptr = C.c_int64, C.c_int32, C.c_float, C.c_void_p


def struct(name, **fields):
    return type(name, (C.Structure,), {"_fields_": list(fields.items())})


# src/backends/cuda_mma/params.h
Strided = struct("Strided", data=ptr, batch=i64, head=i64, row=i64, column=i64)
IndexVector = struct("IndexVector", data=ptr, stride=i64, type=i32)
Geometry = struct("Geometry", causal=i32, left=i32, right=i32, kv_lengths=IndexVector, cu_q=IndexVector, cu_k=IndexVector,
                  sequences=i32, appended=i32)
Mask = struct("Mask", data=ptr, batch=i64, head=i64, row=i64, column=i64, type=i32, vector_bytes=i32)
Vector = struct("Vector", data=ptr, batch=i64, head=i64, type=i32)
Dropout = struct("Dropout", threshold=C.c_uint32, drop_all=i32, keep_scale=f32, seed=C.c_uint64, offset=C.c_uint64,
                 seed_offset=ptr)
Paging = struct("Paging", table=ptr, table_batch=i64, table_page=i64, page_size=i32)
Params = struct(
    "Params", q=Strided, k=Strided, v=Strided, out=ptr, out_batch=i64, out_head=i64, out_row=i64, out_column=i64, lse=ptr,
    lse_batch=i64, lse_head=i64, lse_row=i64, heads=i32, k_group=i32, v_group=i32, rows=i32, keys=i32, columns=i32,
    value_columns=i32, q_aligned=i32, k_aligned=i32, v_aligned=i32, out_aligned=i32, row_blocks=i32, all_heads=i32,
    group_heads=i32, scale=f32, softcap=f32, log2_per_score=f32, natural_scores=i32, natural_per_score=f32, batches=i32, geometry=Geometry, mask=Mask,
    sinks=Vector, slopes=Vector, dropout=Dropout, paging=Paging)

MASK_TYPES = {"torch.bool": (1, 1), "torch.float32": (2, 4), "torch.bfloat16": (3, 2), "torch.float16": (4, 2), "torch.float64": (5, 8)}


def check(status, what):
    if status:
        text = C.c_char_p()
        cuda.cuGetErrorString(status, C.byref(text))
        raise RuntimeError(f"{what}: {status} {text.value}")


def stride(t, d):
    return 0 if t.shape[d] == 1 else t.stride(d)


def strided(t):
    return Strided(t.data_ptr(), *(stride(t, d) for d in range(4)))


def aligned(t):
    return int(t.data_ptr() % 16 == 0 and t.shape[3] % 4 == 0 and (t.stride(3) == 1 or t.shape[3] == 1)
               and all(t.shape[d] == 1 or t.stride(d) % 4 == 0 for d in range(3)))


def index(t):
    return IndexVector(t.data_ptr(), t.stride(0), 1 if "int32" in str(t.dtype) else 2) if t is not None else IndexVector(None, 0, 0)


def vector(t):
    if t is None:
        return Vector(None, 0, 0, 0)
    return Vector(t.data_ptr(), t.stride(0) if t.dim() == 2 else 0, t.stride(-1), MASK_TYPES[str(t.dtype)][0])


def mask_of(m, rows, keys):
    if m is None:
        return Mask(None, 0, 0, 0, 0, 0, 0)
    kind, element = MASK_TYPES[str(m.dtype)]
    while m.dim() < 4:
        m = m[None]
    vector_bytes = 0
    if m.shape[3] > 1 and m.stride(3) == 1:
        for n in (16, 8, 4):
            if m.data_ptr() % n == 0 and m.shape[3] * element % n == 0 and all(m.shape[d] == 1 or m.stride(d) * element % n == 0 for d in range(3)):
                vector_bytes = n
                break
    return Mask(m.data_ptr(), *(stride(m, d) for d in range(4)), kind, vector_bytes)


class Image:
    def __init__(self, path, e, rows, keys, threads):
        self.e, self.rows, self.keys, self.threads = e, rows, keys, threads
        self.data = open(path, "rb").read()
        module, self.function = ptr(), ptr()
        check(cuda.cuModuleLoadData(C.byref(module), self.data), f"load {path}")
        check(cuda.cuModuleGetFunction(C.byref(self.function), module, b"attention_forward"), "function")
        def constant(name):
            at, size, value = C.c_uint64(), C.c_size_t(), i32()
            check(cuda.cuModuleGetGlobal_v2(C.byref(at), C.byref(size), module, name), "global")
            check(cuda.cuMemcpyDtoH_v2(C.byref(value), at, 4), "copy")
            return value.value
        self.shared = constant(b"attention_shared_bytes")
        assert constant(b"attention_params_bytes") == C.sizeof(Params), "Params differs from src/backends/cuda_mma/params.h"
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), f"{self.shared} bytes of shared memory")
        registers, blocks = i32(), i32()
        cuda.cuFuncGetAttribute(C.byref(registers), 4, self.function)
        cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(C.byref(blocks), self.function, threads, C.c_size_t(self.shared))
        self.registers, self.blocks = registers.value, blocks.value

    def prepare(self, q, k, v, out, lse=None, scale=None, causal=0, window=(-1, -1), mask=None, softcap=0.0, kv_lengths=None,
                cu_q=None, cu_k=None, sinks=None, slopes=None, dropout=0.0, seed=0, offset=0, table=None, page_size=0,
                group_heads=None):
        """A function of no arguments that launches once on the current stream."""
        import torch

        batch, heads, rows, e = q.shape
        keys = k.shape[2] if table is None else table.shape[1] * page_size
        scale = e ** -0.5 if scale is None else scale
        p = Params()
        p.q, p.k, p.v = strided(q), strided(k), strided(v)
        p.out = out.data_ptr()
        p.out_batch, p.out_head, p.out_row, p.out_column = (stride(out, d) for d in range(4))
        if lse is not None:
            p.lse = lse.data_ptr()
            p.lse_batch, p.lse_head, p.lse_row = lse.stride()
        p.heads, p.k_group, p.v_group = heads, heads // k.shape[1], heads // v.shape[1]
        p.rows, p.keys, p.columns, p.value_columns = rows, keys, e, v.shape[3]
        p.q_aligned, p.k_aligned, p.v_aligned, p.out_aligned = (aligned(t) for t in (q, k, v, out))
        p.row_blocks = -(-rows // self.rows)
        p.all_heads = batch * heads
        kv_bytes = keys * (e + v.shape[3]) * 4
        p.group_heads = group_heads or max(1, min(p.all_heads, int(30e6 // max(kv_bytes, 1))))
        p.scale, p.softcap, p.log2_per_score, p.natural_scores, p.natural_per_score = scale, softcap, 1.4426950408889634, 1, 1.0
        p.geometry = Geometry(causal, *window, index(kv_lengths), index(cu_q), index(cu_k), 0 if cu_q is None else cu_q.numel() - 1, 0)
        p.mask = mask_of(mask, rows, keys)
        p.sinks, p.slopes = vector(sinks), vector(slopes)
        threshold = 0 if dropout in (0, 1) else min(int(dropout * 4294967296.0), 4294967295)
        p.dropout = Dropout(threshold, int(dropout == 1), 1 / (1 - dropout) if dropout < 1 else 0, seed, offset, None)
        p.paging = Paging(None, 0, 0, 0) if table is None else Paging(table.data_ptr(), *table.stride(), page_size)
        arguments = (ptr * 1)(C.addressof(p))
        grid = p.row_blocks * p.all_heads
        stream = ptr(torch.cuda.current_stream().cuda_stream)

        def launch(keep=(p, q, k, v, out, lse, mask, kv_lengths, cu_q, cu_k, sinks, slopes, table)):
            check(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, arguments, None), "launch")

        return launch
