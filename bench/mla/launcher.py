"""Loads mla images through the CUDA driver and launches them on PyTorch tensors."""

import ctypes as C
import math

import torch

cuda = C.CDLL("libcuda.so.1")
LOG2E = 1.4426950408889634
ROWS = KEYS = 64
NONE, WORKSPACE = 0, 1


class Problem(C.Structure):  # src/backends/cuda_decode/schedule.h
    _fields_ = ([(n, C.c_int) for n in ("batch", "heads", "length", "pack", "k_group", "v_group", "keys")]
                + [("lengths", C.c_void_p), ("lengths_stride", C.c_int64)]
                + [(n, C.c_int) for n in ("lengths_wide", "appended", "causal", "lower_right", "window_left", "window_right",
                                          "tile_rows", "tile_keys", "parts", "blocks", "row_tiles", "tiles_per_batch")]
                + [("divisors", C.c_uint32 * 6), ("quick", C.c_int)])  # for decode alone


class Rest(C.Structure):  # src/backends/cuda_decode/params.h
    _fields_ = [("problem", Problem), ("q", C.c_void_p), ("k", C.c_void_p), ("v", C.c_void_p), ("q_strides", C.c_int64 * 4),
                ("k_strides", C.c_int64 * 3), ("v_strides", C.c_int64 * 3), ("out", C.c_void_p), ("out_strides", C.c_int64 * 4),
                ("lse", C.c_void_p), ("lse_strides", C.c_int64 * 3), ("table", C.c_void_p), ("table_strides", C.c_int64 * 2),
                ("sinks", C.c_void_p), ("sink_stride", C.c_int64), ("sink_type", C.c_int), ("alibi", C.c_void_p), ("alibi_strides", C.c_int64 * 2),
                ("page_size", C.c_int), ("spare_l2", C.c_int), ("page_shift", C.c_int), ("e", C.c_int),
                ("ev", C.c_int), ("q_vectors", C.c_int), ("log2_scale", C.c_float), ("softcap_in", C.c_float),
                ("softcap_out", C.c_float), ("join", C.c_int), ("partial", C.c_void_p), ("partial_state", C.c_void_p)]


class Params(C.Structure):  # src/backends/cuda_mla/params.h
    _fields_ = [("k", C.c_char * 128), ("v", C.c_char * 128), ("rest", Rest), ("out_vectors", C.c_int), ("column_blocks", C.c_int), ("pad", C.c_char * 64)]


class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class LaunchConfig(C.Structure):
    _fields_ = [("grid", C.c_uint * 3), ("block", C.c_uint * 3), ("shared", C.c_uint), ("stream", C.c_void_p),
                ("attributes", C.POINTER(Attribute)), ("count", C.c_uint)]


def check(status, what):
    if status:
        text = C.c_char_p()
        cuda.cuGetErrorString(status, C.byref(text))
        raise RuntimeError(f"{what}: {status} {text.value}")


def tensor_map(address, t):
    """4-D map {column, row, head, batch} of t [batch, heads, rows, columns], boxes of 64 × 64, 128-byte swizzle."""
    element = {"torch.bfloat16": 9, "torch.float16": 6}[str(t.dtype)]
    batch, heads, rows, columns = t.shape
    sizes = (C.c_uint64 * 4)(columns, rows, heads, batch)
    bytes_of = lambda n, stride: stride * 2 if n > 1 else 16 * ((columns * 2 + 15) // 16)
    strides = (C.c_uint64 * 3)(bytes_of(rows, t.stride(2)), bytes_of(heads, t.stride(1)), bytes_of(batch, t.stride(0)))
    check(cuda.cuTensorMapEncodeTiled(C.c_void_p(address), element, 4, C.c_void_p(t.data_ptr()), sizes, strides, (C.c_uint32 * 4)(64, 64, 1, 1),
                                      (C.c_uint32 * 4)(1, 1, 1, 1), 0, 3, 2, 0), "cuTensorMapEncodeTiled")


def launch(function, address, blocks, threads, shared, dependent=False):
    attributes = (Attribute * 1)()
    if dependent:
        attributes[0].id = 6
        attributes[0].value[0] = 1
    config = LaunchConfig((C.c_uint * 3)(blocks, 1, 1), (C.c_uint * 3)(threads, 1, 1), shared,
                          C.c_void_p(torch.cuda.current_stream().cuda_stream), attributes, int(dependent))
    arguments = (C.c_void_p * 1)(address)
    check(cuda.cuLaunchKernelEx(C.byref(config), function, arguments, None), "launch")


def load(path, kernel):
    module, function = C.c_void_p(), C.c_void_p()
    check(cuda.cuModuleLoadData(C.byref(module), open(path, "rb").read()), f"load {path}")
    check(cuda.cuModuleGetFunction(C.byref(function), module, kernel.encode()), kernel)
    pointer, size, shared = C.c_uint64(), C.c_size_t(), C.c_int()
    check(cuda.cuModuleGetGlobal_v2(C.byref(pointer), C.byref(size), module, b"mla_shared_bytes"), "global")
    check(cuda.cuMemcpyDtoH_v2(C.byref(shared), pointer, 4), "copy")
    return function, shared.value


class Image:
    def __init__(self, info, folder, combine):
        self.__dict__.update(info)
        self.function, self.shared = load(f"{folder}/{self.file}", "mla_forward")
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), f"shared memory {self.shared} of {self.name}")
        self.combine = combine[self.dtype]

    def prepare(self, q, k, v, out, lse=None, scale=None, parts=1, blocks=132, causal=0, lower_right=0, window=(-1, -1), softcap=0.0,
                lengths=None, table=None, sinks=None, alibi=None):
        """A function of no arguments that runs once on the current stream."""
        raw = (C.c_char * (C.sizeof(Params) + 64))()
        start = C.addressof(raw) + -C.addressof(raw) % 64
        whole = Params.from_address(start)
        p = whole.rest
        m = p.problem
        kg, vg = q.shape[1] // k.shape[1], q.shape[1] // v.shape[1]
        m.batch, m.heads, m.length = q.shape[0], q.shape[1], q.shape[2]
        m.pack, m.k_group, m.v_group = math.gcd(kg, vg), kg, vg
        m.keys = k.shape[2] if table is None else table.shape[1] * k.shape[2]
        if lengths is not None:
            m.lengths, m.lengths_stride, m.lengths_wide = lengths.data_ptr(), lengths.stride(0), int(lengths.dtype == torch.int64)
        m.causal, m.lower_right, m.window_left, m.window_right = causal, lower_right, *window
        m.tile_rows, m.tile_keys, m.parts, m.blocks = ROWS, KEYS, parts, 0
        p.q, p.k, p.v, p.out = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        p.q_strides[:], p.out_strides[:] = q.stride(), out.stride()
        p.k_strides[:], p.v_strides[:] = k.stride()[:3], v.stride()[:3]
        tensor_map(start, k)
        tensor_map(start + 128, v)
        if lse is not None: p.lse, p.lse_strides[:] = lse.data_ptr(), lse.stride()
        if table is not None: p.table, p.table_strides[:], p.page_size = table.data_ptr(), table.stride(), k.shape[2]
        if sinks is not None:
            p.sinks, p.sink_stride = sinks.data_ptr(), sinks.stride(0)
            p.sink_type = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}[sinks.dtype]
        if alibi is not None: p.alibi, p.alibi_strides[:] = alibi.data_ptr(), alibi.stride()
        p.e, p.ev = q.shape[3], v.shape[3]
        vectors = lambda t: int(t.stride(3) == 1 and t.shape[3] % 8 == 0 and all(s % 8 == 0 for s in t.stride()[:3]) and t.data_ptr() % 16 == 0)
        p.q_vectors, whole.out_vectors = vectors(q), vectors(out)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        p.log2_scale = scale * LOG2E
        if softcap: p.softcap_in, p.softcap_out = 2 * LOG2E * scale / softcap, softcap * LOG2E
        m.row_tiles = -(-m.pack * m.length // ROWS)
        m.tiles_per_batch = m.heads // m.pack * m.row_tiles
        tiles = m.batch * m.tiles_per_batch
        p.join = WORKSPACE if parts > 1 else NONE
        whole.column_blocks = 4 if parts > 4 else 1
        pieces = tiles * parts
        keep = [raw, q, k, v, out, lse, lengths, table, sinks, alibi]
        if parts > 1:
            partial = torch.full((pieces * ROWS * (p.ev + 2),), float("nan"), device="cuda")
            p.partial, p.partial_state = partial.data_ptr(), partial.data_ptr() + 4 * pieces * ROWS * p.ev
            keep.append(partial)
        combine_grid = tiles * min(ROWS, m.pack * m.length) * whole.column_blocks

        def run(keep=keep):
            launch(self.function, start, min(blocks, pieces), 384, self.shared)
            if parts > 1: launch(self.combine, start, combine_grid, 128, 0, True)

        return run
