"""Loads decode images through the CUDA driver and launches them on PyTorch tensors."""

import ctypes as C
import math
import os

import torch

cuda = C.CDLL("libcuda.so.1")
LOG2E = 1.4426950408889634
NONE, WORKSPACE, CLUSTER = 0, 1, 2


class Problem(C.Structure):  # src/backends/cuda_decode/schedule.h
    _fields_ = ([(n, C.c_int) for n in ("batch", "heads", "length", "pack", "k_group", "v_group", "keys")]
                + [("lengths", C.c_void_p), ("lengths_stride", C.c_int64)]
                + [(n, C.c_int) for n in ("lengths_wide", "appended", "causal", "lower_right", "window_left", "window_right",
                                          "tile_rows", "tile_keys", "parts", "blocks", "row_tiles",
                                          "tiles_per_batch")]
                + [("by_parts", C.c_uint32 * 2), ("by_tiles_per_batch", C.c_uint32 * 2), ("by_row_tiles", C.c_uint32 * 2), ("quick", C.c_int)])


class Params(C.Structure):  # params.h
    _fields_ = [("problem", Problem), ("q", C.c_void_p), ("k", C.c_void_p), ("v", C.c_void_p), ("q_strides", C.c_int64 * 4),
                ("k_strides", C.c_int64 * 3), ("v_strides", C.c_int64 * 3), ("out", C.c_void_p), ("out_strides", C.c_int64 * 4),
                ("lse", C.c_void_p), ("lse_strides", C.c_int64 * 3), ("table", C.c_void_p), ("table_strides", C.c_int64 * 2),
                ("sinks", C.c_void_p), ("sink_stride", C.c_int64), ("sink_type", C.c_int), ("alibi", C.c_void_p), ("alibi_strides", C.c_int64 * 2),
                ("page_size", C.c_int), ("spare_l2", C.c_int), ("page_shift", C.c_int), ("e", C.c_int),
                ("ev", C.c_int), ("q_vectors", C.c_int), ("log2_scale", C.c_float), ("softcap_in", C.c_float),
                ("softcap_out", C.c_float), ("join", C.c_int), ("partial", C.c_void_p), ("partial_state", C.c_void_p)]


class Side(C.Structure):  # src/backends/cuda_append/params.h, one element a piece
    _fields_ = [("rows", C.c_void_p), ("row_strides", C.c_int64 * 4), ("cache", C.c_void_p), ("cache_strides", C.c_int64 * 4),
                ("heads", C.c_int), ("columns", C.c_int), ("piece_bytes", C.c_int)]


class AppendParams(C.Structure):
    _fields_ = [("k", Side), ("v", Side), ("lengths", C.c_void_p), ("lengths_stride", C.c_int64), ("lengths_wide", C.c_int), ("table", C.c_void_p),
                ("table_strides", C.c_int64 * 2), ("page_size", C.c_int), ("keys", C.c_int), ("appended", C.c_int)]


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


def launch(function, params, blocks, threads, shared, cluster=1, dependent=False):
    attributes = (Attribute * 2)()
    count = 0
    if cluster > 1:
        attributes[count].id = 4
        attributes[count].value[0:3] = [cluster, 1, 1]
        count += 1
    if dependent:
        attributes[count].id = 6
        attributes[count].value[0] = 1
        count += 1
    config = LaunchConfig((C.c_uint * 3)(blocks, 1, 1), (C.c_uint * 3)(threads, 1, 1), shared,
                          C.c_void_p(torch.cuda.current_stream().cuda_stream), attributes, count)
    arguments = (C.c_void_p * 1)(C.addressof(params))
    check(cuda.cuLaunchKernelEx(C.byref(config), function, arguments, None), "launch")


def load(path, kernels, shared_symbol=b"decode_shared_bytes"):
    module = C.c_void_p()
    check(cuda.cuModuleLoadData(C.byref(module), open(path, "rb").read()), f"load {path}")
    functions = []
    for name in kernels:
        function = C.c_void_p()
        check(cuda.cuModuleGetFunction(C.byref(function), module, name.encode()), name)
        functions.append(function)
    pointer, size, shared = C.c_uint64(), C.c_size_t(), C.c_int()
    check(cuda.cuModuleGetGlobal_v2(C.byref(pointer), C.byref(size), module, shared_symbol), "global")
    check(cuda.cuMemcpyDtoH_v2(C.byref(shared), pointer, 4), "copy")
    return functions, shared.value


class Tools:
    """The joining kernel of one dtype, and the appending one."""

    def __init__(self, combine, append):
        (self.combine,), _ = load(combine, ("decode_combine",))
        (self.append,), _ = load(append, ("cache_append",), b"append_shared_bytes")


class Image:
    def __init__(self, info, folder, tools):
        self.general = os.environ.get("DECODE_GENERAL") == "1"  # decode_forward even for simple requests
        self.__dict__.update(info)
        self.functions, self.shared = load(f"{folder}/{self.file}", ("decode_forward", "decode_forward_simple"))
        for function in self.functions:
            check(cuda.cuFuncSetAttribute(function, 8, self.shared), f"shared memory {self.shared} of {self.name}")
        self.tools = tools[self.dtype]
        self.rows = 16 * self.row_warps
        self.threads = 32 * self.row_warps * self.teams
        self.tile_keys = 16 * self.units * self.teams

    def prepare(self, q, k, v, out, lse=None, scale=None, parts=1, join=NONE, blocks=0, causal=0, lower_right=0, window=(-1, -1),
                softcap=0.0, lengths=None, table=None, sinks=None, append=None):
        """A function of no arguments that runs once on the current stream. parts 0: flat over `blocks`."""
        p = Params()
        m = p.problem
        kg, vg = q.shape[1] // k.shape[1], q.shape[1] // v.shape[1]
        m.batch, m.heads, m.length = q.shape[0], q.shape[1], q.shape[2]
        m.pack, m.k_group, m.v_group = math.gcd(kg, vg), kg, vg
        m.keys = k.shape[2] if table is None else table.shape[1] * k.shape[2]
        if lengths is not None:
            m.lengths, m.lengths_stride, m.lengths_wide = lengths.data_ptr(), lengths.stride(0), int(lengths.dtype == torch.int64)
        m.causal, m.lower_right, m.window_left, m.window_right = causal, lower_right, *window
        m.tile_rows, m.tile_keys, m.parts, m.blocks = self.rows, self.tile_keys, parts, blocks
        p.q, p.k, p.v, p.out = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        p.q_strides[:], p.out_strides[:] = q.stride(), out.stride()
        p.k_strides[:], p.v_strides[:] = k.stride()[:3], v.stride()[:3]
        if lse is not None:
            p.lse, p.lse_strides[:] = lse.data_ptr(), lse.stride()
        if table is not None:
            p.table, p.table_strides[:], p.page_size = table.data_ptr(), table.stride(), k.shape[2]
            p.page_shift = p.page_size.bit_length() - 1 if p.page_size & (p.page_size - 1) == 0 else -1
        if sinks is not None:
            p.sinks, p.sink_stride = sinks.data_ptr(), sinks.stride(0)
            p.sink_type = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}[sinks.dtype]
        p.spare_l2 = int(m.batch * m.keys * (k.shape[1] * k.shape[3] + v.shape[1] * v.shape[3]) * 2 <= 64e6)
        p.e, p.ev = q.shape[3], v.shape[3]
        p.q_vectors = int(q.stride(3) == 1 and all(s % 8 == 0 for s in q.stride()[:3]) and q.data_ptr() % 16 == 0)
        scale = q.shape[3] ** -0.5 if scale is None else scale
        p.log2_scale = scale * LOG2E
        if softcap:
            p.softcap_in, p.softcap_out = 2 * LOG2E * scale / softcap, softcap * LOG2E
        p.join = join
        row_tiles = -(-m.pack * m.length // self.rows)
        m.row_tiles, m.tiles_per_batch = row_tiles, m.heads // m.pack * row_tiles
        tiles = m.batch * m.tiles_per_batch
        grid = tiles * parts if parts else blocks
        keep = [q, k, v, out, lse, lengths, table, sinks, append]
        if join == WORKSPACE:
            slots = grid if parts else 2 * blocks
            partial = torch.full((slots * self.rows * (p.ev + 2),), float("nan"), device="cuda")
            p.partial, p.partial_state = partial.data_ptr(), partial.data_ptr() + 4 * slots * self.rows * p.ev
            keep.append(partial)
        appended = 0
        if append is not None:
            ak, av = append
            appended = m.appended = ak.shape[2]
            side = lambda rows, cache: Side(rows.data_ptr(), (C.c_int64 * 4)(*rows.stride()), cache.data_ptr(), (C.c_int64 * 4)(*cache.stride()),
                                            cache.shape[1], cache.shape[3], 2)
            rows = AppendParams(side(ak, k), side(av, v), m.lengths, m.lengths_stride, m.lengths_wide, p.table, p.table_strides, p.page_size,
                                m.keys, appended)
        combine_grid = tiles * min(self.rows, m.pack * m.length)
        cluster = parts if join == CLUSTER else 1
        for field, by in ((m.by_parts, parts), (m.by_tiles_per_batch, m.tiles_per_batch), (m.by_row_tiles, row_tiles)):
            field[:] = [by, -(-2**32 // by) if by > 1 else 0]
        m.quick = int(0 < max(parts * m.keys, grid * parts, tiles * m.tiles_per_batch, m.tiles_per_batch * row_tiles) < 2**32 and parts > 0)
        whole_pages = p.page_size == 0 or p.page_shift >= 4
        all_seen = not (causal and (m.length > 1 or not lower_right)) and tuple(window) == (-1, -1)
        simple = p.q_vectors and m.pack == kg == vg and m.quick and whole_pages and p.e == self.e and p.ev == self.ev and not softcap and parts > 0 and all_seen  # is_simple()
        function = self.functions[int(simple and not self.general)]

        def run(keep=keep):
            if appended:
                launch(self.tools.append, rows, m.batch * appended, 128, 0)
            launch(function, p, grid, self.threads, self.shared, cluster, bool(appended))
            if join == WORKSPACE:
                launch(self.tools.combine, p, combine_grid, 128, 0, 1, True)

        return run


class ReaderParams(C.Structure):
    _fields_ = [("source", C.c_void_p), ("bytes", C.c_uint64), ("counter", C.c_void_p), ("chunk", C.c_int), ("stages", C.c_int), ("mode", C.c_int), ("policy", C.c_int)]


class Reader:
    """The kernel of reader.cu."""

    def __init__(self, path):
        (self.function,), _ = load(path, ("read_all",), b"reader_shared_bytes")
        check(cuda.cuFuncSetAttribute(self.function, 8, 200 * 1024), "shared memory")
        self.counter = torch.zeros(2, dtype=torch.int32, device="cuda")

    def prepare(self, data, blocks, warps, chunk, stages, mode, policy):
        p = ReaderParams(data.data_ptr(), data.numel() * data.element_size(), self.counter.data_ptr(), chunk, stages, mode, policy)

        def run():
            launch(self.function, p, blocks, 32 * warps, warps * chunk * stages)

        return run
