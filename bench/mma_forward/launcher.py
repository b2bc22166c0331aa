"""Loads images of the tensor-core kernel through the CUDA driver and launches them on PyTorch tensors."""

import ctypes as C, math
cuda = C.CDLL('libcuda.so.1')



def check(s, what):
    if s:
        t = C.c_char_p()
        cuda.cuGetErrorString(s, C.byref(t))
        raise RuntimeError(f'{what}: {s} {t.value}')
I, L, P, F, U = (C.c_int, C.c_longlong, C.c_void_p, C.c_float, C.c_ulonglong)



class Strided(C.Structure):
    _fields_ = [('data', P), ('b', L), ('h', L), ('r', L), ('c', L)]



class Index(C.Structure):
    _fields_ = [('data', P), ('stride', L), ('type', I)]



class Geometry(C.Structure):
    _fields_ = [('causal', I), ('left', I), ('right', I), ('kv', Index), ('cq', Index), ('ck', Index), ('sequences', I), ('appended', I)]



class Mask(C.Structure):
    _fields_ = [('data', P), ('b', L), ('h', L), ('r', L), ('c', L), ('type', I), ('vector', I)]



class Vec(C.Structure):
    _fields_ = [('data', P), ('b', L), ('h', L), ('type', I)]



class Drop(C.Structure):
    _fields_ = [('threshold', C.c_uint), ('all', I), ('keep', F), ('seed', U), ('offset', U), ('dev', P)]



class Paging(C.Structure):
    _fields_ = [('table', P), ('tb', L), ('tp', L), ('size', I)]



class Params(C.Structure):
    _fields_ = [('q', Strided), ('k', Strided), ('v', Strided), ('out', P), ('ob', L), ('oh', L), ('orow', L), ('oc', L), ('lse', P), ('lb', L), ('lh', L), ('lr', L), ('heads', I), ('kg', I), ('vg', I), ('rows', I), ('keys', I), ('columns', I), ('vcolumns', I), ('qa', I), ('ka', I), ('va', I), ('oa', I), ('row_blocks', I), ('all_heads', I), ('group_heads', I), ('scale', F), ('softcap', F), ('l2', F), ('natural', I), ('nps', F), ('batches', I), ('g', Geometry), ('mask', Mask), ('sinks', Vec), ('slopes', Vec), ('drop', Drop), ('paging', Paging)]
TYPES = {'torch.bool': 1, 'torch.float32': 2, 'torch.bfloat16': 3, 'torch.float16': 4, 'torch.float64': 5}



def st(t, d):
    return t.stride(d) if t.size(d) > 1 else 0



def strided(t):
    return Strided(t.data_ptr(), st(t, 0), st(t, 1), st(t, 2), t.stride(3) if t.size(3) > 1 else 1)



def aligned(t):
    n = 16 // t.element_size()
    return t.numel() == 0 or ((t.size(3) == 1 or t.stride(3) == 1) and t.size(3) % n == 0 and (t.data_ptr() % 16 == 0) and all((t.size(d) == 1 or t.stride(d) % n == 0 for d in range(3))))



def index(t):
    return Index() if t is None else Index(t.data_ptr(), st(t, 0), 2 if str(t.dtype) == 'torch.int64' else 1)



class Image:

    def __init__(self, path, e, rows, threads, name, keys, ev=0):
        self.e, self.ev, self.rows, self.threads, self.name, self.keys = (e, ev or e, rows, threads, name, keys)
        self.data = open(path, 'rb').read()
        m, f = (C.c_void_p(), C.c_void_p())
        check(cuda.cuModuleLoadData(C.byref(m), self.data), f'load {name}')
        check(cuda.cuModuleGetFunction(C.byref(f), m, b'attention_forward'), 'function')
        ptr, size = (C.c_uint64(), C.c_size_t())
        check(cuda.cuModuleGetGlobal_v2(C.byref(ptr), C.byref(size), m, b'attention_shared_bytes'), 'global')
        n = C.c_int()
        check(cuda.cuMemcpyDtoH_v2(C.byref(n), ptr, 4), 'copy')
        self.function, self.shared = (f, n.value)
        check(cuda.cuFuncSetAttribute(f, 8, self.shared), f'shared {self.shared}')
        r = C.c_int()
        cuda.cuFuncGetAttribute(C.byref(r), 4, f)
        self.regs = r.value
        cuda.cuFuncGetAttribute(C.byref(r), 3, f)
        self.local = r.value
        b = C.c_int()
        cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(C.byref(b), f, threads, C.c_size_t(self.shared))
        self.blocks = b.value

    def prepare(self, q, k, v, out, lse=None, scale=None, causal=0, window=(-1, -1), mask=None, softcap=0.0, sinks=None, slopes=None, kv=None, cq=None, ck=None, drop=0.0, seed=0, offset=0, table=None, page_size=0, group=None):
        import torch
        p = Params()
        B, H, Lq, E = q.shape
        p.q, p.k, p.v = (strided(q), strided(k), strided(v))
        o = strided(out)
        p.out, p.ob, p.oh, p.orow, p.oc = (o.data, o.b, o.h, o.r, o.c)
        if lse is not None:
            p.lse, p.lb, p.lh, p.lr = (lse.data_ptr(), st(lse, 0), st(lse, 1), st(lse, 2))
        p.heads, p.kg, p.vg, p.rows, p.keys = (H, H // k.size(1), H // v.size(1), Lq, k.size(2) if table is None else table.size(1) * page_size)
        p.columns, p.vcolumns = (E, v.size(3))
        p.qa, p.ka, p.va, p.oa = map(int, map(aligned, (q, k, v, out)))
        p.row_blocks, p.all_heads = (-(-Lq // self.rows), B * H)
        if group is None:
            per = k.size(2) * (E * k.size(1) + v.size(3) * v.size(1)) * 2 / H
            group = 1 if causal == 0 else max(1, min(B * H, max(int(25000000.0 / max(per, 1)), -(-264 // max(p.row_blocks, 1)))))
        p.group_heads = group
        scale = E ** (-0.5) if scale is None else scale
        bias = mask is not None and mask.dtype != torch.bool
        p.scale, p.softcap = (scale, softcap)
        p.natural = int(bias or softcap > 0 or slopes is not None or (scale <= 0))
        p.l2 = math.log2(math.e) * (1 if p.natural else scale)
        p.nps = 1.0 if p.natural else scale
        p.g = Geometry(causal, window[0], window[1], index(kv), index(cq), index(ck), 0 if cq is None else cq.numel() - 1, 0)
        if mask is not None:
            while mask.dim() < 4:
                mask = mask[None]
            s = [st(mask, d) for d in range(4)]
            sz = mask.element_size()
            vec = 0
            if mask.dtype != torch.float64 and s[3] == 1:
                for n in (16, 8, 4):
                    if mask.data_ptr() % n == 0 and all((x * sz % n == 0 for x in s[:3])):
                        vec = n
                        break
            if s[0] == 0 and B > 1 and (s[1] != 0):
                p.batches = B
                p.group_heads = B if causal == 0 else max(B, p.group_heads // B * B)
            p.mask = Mask(mask.data_ptr(), *s, TYPES[str(mask.dtype)], vec)
        for name, t in (('sinks', sinks), ('slopes', slopes)):
            if t is not None:
                setattr(p, name, Vec(t.data_ptr(), st(t, 0) if t.dim() == 2 else 0, st(t, t.dim() - 1), TYPES[str(t.dtype)]))
        p.drop.keep = 1.0
        if 0 < drop < 1:
            p.drop.threshold, p.drop.keep, p.drop.seed, p.drop.offset = (min(int(drop * 4294967296.0), 4294967295), 1 / (1 - drop), seed, offset)
        if drop >= 1:
            p.drop.all = 1
        if table is not None:
            p.paging = Paging(table.data_ptr(), st(table, 0), st(table, 1), page_size)
        args = (C.c_void_p * 1)(C.addressof(p))
        grid = p.row_blocks * p.all_heads
        stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)

        def launch(keep=(p, q, k, v, out, lse, mask, sinks, slopes, kv, cq, ck, table)):
            check(cuda.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared, stream, args, None), 'launch')
        return launch
