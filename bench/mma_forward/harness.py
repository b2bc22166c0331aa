"""Checks the images of the tensor-core kernel against float64, every feature, then times them beside PyTorch's flash and
memory-efficient attention in the same process.

  ./compile.sh IMAGES ../../src variants.txt && python3 harness.py OUT_FOLDER variants.txt IMAGES [check|sizes]

sizes.txt has instances of head sizes between the embedded ones beside those; `sizes` times them against each other.

Outputs lie in larger ones full of NaN. Times are medians over rounds, candidates interleaved within a round, CUDA events
around each call, L2 overwritten between calls. `check` stops before the timing.
"""

import sys, math, statistics, json, re, time
import torch
from launcher import *
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
out_dir, list_file, folder = sys.argv[1:4]
mode = sys.argv[4] if len(sys.argv) > 4 else 'all'
dev = 'cuda'
torch.zeros(1, device=dev)
t_start = time.time()
M32 = 4294967295



def philox_word(seed, offset, row, key):
    q = key >> 2

    def mulhilo(a, b):
        al, ah = (a & 65535, a >> 16)
        bl, bh = (b & 65535, b >> 16)
        ll = al * bl
        m1 = al * bh + (ll >> 16)
        m2 = ah * bl + (m1 & 65535)
        return (ah * bh + (m1 >> 16) + (m2 >> 16) & M32, (m2 << 16 | ll & 65535) & M32)
    c0, c1 = (q & M32, row & M32)
    c2 = (row >> 32 ^ (q >> 32) * 2246822507) & M32
    c3 = torch.full_like(c0, offset & M32)
    c0, c1, c2, c3 = torch.broadcast_tensors(c0, c1, c2, c3)
    k0, k1 = (seed & M32, (seed >> 32 ^ (offset >> 32) * 2654435769) & M32)
    for _ in range(10):
        h0, l0 = mulhilo(c0, torch.tensor(3528531795, device=dev))
        h1, l1 = mulhilo(c2, torch.tensor(3449720151, device=dev))
        c0, c1, c2, c3 = ((h1 ^ c1 ^ k0) & M32, l1, (h0 ^ c3 ^ k1) & M32, l0)
        k0, k1 = (k0 + 2654435769 & M32, k1 + 3144134277 & M32)
    s = key & 3
    return torch.where(s == 0, c0, torch.where(s == 1, c1, torch.where(s == 2, c2, c3)))



def oracle(q, k, v, scale=None, causal=0, window=(-1, -1), mask=None, softcap=0.0, sinks=None, slopes=None, kv=None, cq=None, ck=None, drop=0.0, seed=0, offset=0, table=None, page_size=0, group=None):
    B, H, L, E = q.shape
    if table is not None:

        def flat(c):
            return torch.stack([torch.cat([c[int(pg)] if pg >= 0 else torch.zeros_like(c[0]) for pg in row], 1) for row in table.tolist()])
        k, v = (flat(k), flat(v))
    S = k.size(2)
    scale = E ** (-0.5) if scale is None else scale
    K = k.double().repeat_interleave(H // k.size(1), 1)
    V = v.double().repeat_interleave(H // v.size(1), 1)
    i = torch.arange(L, device=dev)[:, None]
    j = torch.arange(S, device=dev)[None]
    keep = torch.ones(B, 1, L, S, dtype=torch.bool, device=dev)
    diag = (i + (S - L if causal == 2 else 0)).expand(L, 1)[None, None]
    if cq is not None:
        keep[:] = False
        d = torch.zeros(L, 1, dtype=torch.long, device=dev)
        a, b = (cq.tolist(), ck.tolist())
        vis = torch.zeros(L, S, dtype=torch.bool, device=dev)
        for n in range(len(a) - 1):
            d[a[n]:a[n + 1], 0] = torch.arange(a[n + 1] - a[n], device=dev) + b[n] + (b[n + 1] - b[n] - (a[n + 1] - a[n]) if causal == 2 else 0)
            vis[a[n]:a[n + 1], b[n]:b[n + 1]] = True
        keep = vis[None, None]
        diag = d[None, None]
    elif kv is not None:
        n = kv.to(dev).long().view(B, 1, 1, 1)
        keep = keep & (j < n)
        if causal == 2:
            diag = i + n - L
    rel = j - diag
    if causal:
        keep = keep & (rel <= 0)
    if window[0] >= 0:
        keep = keep & (rel >= -window[0])
    if window[1] >= 0:
        keep = keep & (rel <= window[1])
    s = torch.nan_to_num(q.double(), nan=math.nan) @ K.transpose(2, 3) * scale
    if softcap > 0:
        s = softcap * torch.tanh(s / softcap)
    if mask is not None:
        if mask.dtype == torch.bool:
            keep = keep & mask
        else:
            s = s + mask.double()
            keep = keep & (mask.double() != -math.inf)
    if slopes is not None:
        sl = slopes.double()
        sl = sl.view(-1, H, 1, 1) if sl.dim() == 2 else sl.view(1, H, 1, 1)
        s = s - sl * rel.abs()
    keep = keep.expand_as(s)
    s = torch.where(keep, s, torch.tensor(-math.inf, dtype=torch.float64, device=dev))
    full = s
    if sinks is not None:
        sk = sinks.double().view(1, H, 1, 1).expand(B, H, L, 1)
        sk = torch.where(keep.any(-1, True), sk, torch.tensor(-math.inf, dtype=torch.float64, device=dev))
        full = torch.cat([s, sk], -1)
    lse = torch.logsumexp(full, -1)
    w = torch.exp(s - torch.where(lse == -math.inf, torch.zeros_like(lse), lse)[..., None])
    if drop >= 1:
        w = torch.zeros_like(w)
    elif drop > 0:
        rows = torch.arange(B * H * L, device=dev).view(B, H, L, 1)
        bits = philox_word(seed, offset, rows, torch.arange(S, device=dev).view(1, 1, 1, S))
        w = torch.where(bits >= min(int(drop * 4294967296.0), M32), w / (1 - drop), torch.zeros_like(w))
    if mask is not None and mask.dtype == torch.float32 and (mask == torch.finfo(torch.float32).min).any():
        w = torch.softmax(full, -1)
        top = full.max(-1).values
        lse = torch.where(top < -1e+37, top, lse)
    if torch.isfinite(V).all():
        o = w @ V
    else:
        bad = ~torch.isfinite(V)
        o = w @ torch.where(bad, torch.zeros_like(V), V)
        for b, h, n, d in bad.nonzero().tolist():
            o[b, h, :, d] += torch.where(keep[b, h, :, n], V[b, h, n, d], torch.zeros((), dtype=torch.float64, device=dev))
    return (o, lse)



def rnd(*s, dtype=torch.bfloat16, seed=0):
    return torch.randn(*s, generator=torch.Generator(device=dev).manual_seed(seed), device=dev).to(dtype)



def case(image, dtype, name, B, H, Hk, Hv, L, S, E, Ev, tensors=None, **o):
    q, k, v = tensors or (rnd(B, H, L, E, dtype=dtype, seed=1), rnd(B, Hk, S, E, dtype=dtype, seed=2), rnd(B, Hv, S, Ev, dtype=dtype, seed=3))
    pool = torch.full((B, H, L + 3, Ev + 8), math.nan, device=dev, dtype=dtype)
    out = pool[:, :, :L, :Ev]
    if Ev % 8:
        pool = torch.full((B, H, L + 3, Ev), math.nan, device=dev, dtype=dtype)
        out = pool[:, :, :L]
    lse = torch.full((B * H * L + 9,), 12345.0, device=dev)
    lv = lse[:B * H * L].view(B, H, L)
    image.prepare(q, k, v, out, lv, **o)()
    torch.cuda.synchronize()
    w, wl = oracle(q, k, v, **o)
    tol = 0.008 if dtype == torch.bfloat16 else 0.002
    g, gl = (out.double(), lv.double())
    problems = []
    if not torch.equal(torch.isnan(g), torch.isnan(w)):
        problems.append(f'NaN places: {torch.isnan(g).sum().item()} got {torch.isnan(w).sum().item()} want, first {(torch.isnan(g) != torch.isnan(w)).nonzero()[0].tolist()}')
    elif not torch.equal(torch.isinf(g), torch.isinf(w)):
        problems.append('inf places')
    else:
        fin = torch.isfinite(w)
        d = torch.where(fin, (g - w).abs(), torch.zeros_like(g))
        s = w[fin].abs().max().item() if fin.any() else 1
        rel = d.max().item() / max(s, 1e-30)
        if rel > tol * 2 and d.max() > 1e-30:
            at = d.view(-1).argmax().item()
            at = list(torch.unravel_index(torch.tensor(at), d.shape))
            at = [int(x) for x in at]
            problems.append(f'rel {rel:.2e} at {at} got {g[tuple(at)]:.5f} want {w[tuple(at)]:.5f}; {int((d > tol * 2 * s).sum())} of {d.numel()} wrong')
    if not torch.equal(torch.isnan(gl), torch.isnan(wl)) or not torch.equal(gl == -math.inf, wl == -math.inf):
        problems.append('lse NaN/inf places')
    else:
        f = torch.isfinite(wl)
        e = ((gl - wl)[f].abs() / (1 + wl[f].abs())).max().item() if f.any() else 0
        if e > 0.001:
            problems.append(f'lse error {e:.2e}')
    if Ev % 8 == 0:
        z = pool.clone()
        z[:, :, :L, :Ev] = math.nan
        if not z.isnan().all():
            problems.append('wrote outside')
    if not (lse[B * H * L:] == 12345.0).all():
        problems.append('lse outside')
    return f"  WRONG {image.name} {name}: {'; '.join(problems)}" if problems else ''



def strided_inputs(kind, B, H, L, S, E, Ev, dtype):
    q, k, v = (rnd(B, H, L, E, dtype=dtype, seed=4), rnd(B, H, S, E, dtype=dtype, seed=5), rnd(B, H, S, Ev, dtype=dtype, seed=6))
    if kind == 'seq_major':
        f = lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)
    elif kind == 'stride2':
        f = lambda t: torch.stack([t, t], -1)[..., 0]
    elif kind == 'odd_offset':
        f = lambda t: torch.cat([torch.zeros(1, device=dev, dtype=dtype), t.reshape(-1)])[1:].view_as(t)
    else:
        f = lambda t: t[:, :1].expand_as(t)
    return (f(q), f(k), f(v))



def checks(image, dtype, featured):
    E, Ev = (image.e, image.ev)
    r = []

    def c(name, *a, **o):
        try:
            r.append((name, case(image, dtype, name, *a, **o)))
        except RuntimeError as e:
            r.append((name, f'  FAILED {image.name} {name}: {e}'))
            if 'illegal' in str(e) or 'misaligned' in str(e) or 'unspecified' in str(e):
                print('\n'.join((x for _, x in r if x)), flush=True)
                sys.exit(1)
    c('square', 1, 1, 1, 1, 128, 128, E, Ev)
    c('tiny', 1, 1, 1, 1, 1, 1, E, Ev)
    c('odd', 2, 4, 2, 1, 300, 177, E, Ev)
    c('long', 1, 2, 1, 1, 64, 1000, E, Ev)
    for m in (1, 2):
        c(f'causal{m}', 1, 2, 2, 2, 257, 513, E, Ev, causal=m)
        c(f'causal{m}L>S', 1, 2, 2, 2, 400, 130, E, Ev, causal=m)
    for s in (-0.3, 0.0, 1e-30):
        c(f'scale{s}', 1, 2, 2, 2, 130, 200, E, Ev, scale=s, causal=1)
    for w in ((100, 0), (0, 0), (5, 3), (-1, 70), (200, -1)):
        c(f'window{w}', 1, 2, 2, 2, 300, 520, E, Ev, window=w)
        c(f'window{w}causal2', 1, 2, 2, 2, 300, 520, E, Ev, window=w, causal=2)
    kv = torch.tensor([0, 5, 333], device=dev, dtype=torch.int32)
    c('kv_lengths', 3, 2, 2, 2, 70, 333, E, Ev, kv=kv)
    c('kv_lengths causal2', 3, 2, 2, 2, 70, 333, E, Ev, kv=kv.long(), causal=2)
    t = (rnd(3, 2, 70, E, dtype=dtype, seed=1), rnd(3, 2, 333, E, dtype=dtype, seed=2), rnd(3, 2, 333, Ev, dtype=dtype, seed=3))
    t[1][1, :, 5:] = math.nan
    t[2][1, :, 5:] = math.nan
    tz = (t[0], torch.nan_to_num(t[1]), torch.nan_to_num(t[2]))
    q, k, v = t
    outp = torch.empty(3, 2, 70, Ev, dtype=dtype, device=dev)
    image.prepare(q, k, v, outp, kv=kv)()
    ref = oracle(*tz, kv=kv)[0]
    r.append(('poisoned tail', '' if (outp.double() - ref).abs().max() < 0.05 else f'  WRONG {image.name} poisoned tail {(outp.double() - ref).abs().max().item()}'))
    cq, ck = (torch.tensor([0, 40, 40, 200, 290], device=dev, dtype=torch.int32), torch.tensor([0, 57, 80, 80, 333], device=dev, dtype=torch.int32))
    for m in (0, 1, 2):
        c(f'packed{m}', 1, 2, 1, 2, 300, 340, E, Ev, cq=cq, ck=ck, causal=m)
    c('packed window', 1, 2, 1, 2, 300, 340, E, Ev, cq=cq, ck=ck, window=(20, 4), causal=2)
    c('sinks', 1, 4, 2, 2, 100, 150, E, Ev, sinks=rnd(4, dtype=torch.float32) * 2, causal=2)
    c('sinks bf16 kv', 3, 2, 2, 2, 70, 333, E, Ev, kv=kv, sinks=rnd(2))
    q, k, v = (rnd(1, 2, 200, E, dtype=dtype, seed=1), rnd(1, 2, 200, E, dtype=dtype, seed=2), rnd(1, 2, 200, Ev, dtype=dtype, seed=3))
    v[0, 0, 150, 3] = math.nan
    v[0, 1, 70, Ev - 1] = math.inf
    v[0, 1, 100, 2] = -math.inf
    v[0, 1, 101, 2] = math.inf
    c('NaN V causal', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k, v), causal=1)
    k2 = rnd(1, 2, 200, E, dtype=dtype, seed=2)
    k2[0, 1, 120] = math.nan
    v0 = rnd(1, 2, 200, Ev, dtype=dtype, seed=3)
    c('NaN K causal', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k2, rnd(1, 2, 200, Ev, dtype=dtype, seed=3)), causal=1)
    c('smaller E', 1, 2, 2, 2, 150, 150, max(8, E - 24), max(8, Ev - 40), causal=1)
    c('out strided', 2, 3, 3, 3, 129, 65, E, Ev)
    if featured:
        c('E odd', 2, 2, 1, 1, 70, 90, E - 3, Ev - 5, causal=1)
        c('E1', 1, 2, 2, 2, 70, 90, 1, 1)
        for kind in ('seq_major', 'stride2', 'odd_offset', 'head0'):
            c(kind, 2, 3, 3, 3, 100, 140, E, Ev, tensors=strided_inputs(kind, 2, 3, 100, 140, E, Ev, dtype), causal=1)
        for S in (320, 200, 196, 333):
            for nm, shape in (('full', (2, 2, 150, S)), ('heads', (1, 2, 1, S)), ('keys', (2, 1, 1, S)), ('rows', (1, 1, 150, 1)), ('2d', (150, S))):
                m = torch.rand(*shape, generator=torch.Generator(device=dev).manual_seed(7), device=dev) > 0.4
                c(f'bool {nm} {S}', 2, 2, 2, 2, 150, S, E, Ev, mask=m)
            for bt in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
                c(f'bias {bt} {S}', 2, 2, 2, 2, 150, S, E, Ev, mask=rnd(1, 2, 150, S, dtype=bt, seed=9) * 3, causal=2 if S > 200 else 0)
        c('bias shared', 3, 4, 2, 2, 300, 200, E, Ev, mask=rnd(1, 4, 300, 200, seed=11), causal=2)
        c('NaN V bias', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k, v), mask=torch.where(torch.rand(200, 200, device=dev) > 0.5, 0.0, -math.inf))
        c('NaN K bias', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k2, v0), mask=torch.where(torch.rand(200, 200, device=dev) > 0.5, 0.0, -math.inf))
        c('bias transposed', 2, 2, 2, 2, 150, 160, E, Ev, mask=rnd(160, 150, dtype=torch.float32, seed=9).T)
        m = torch.zeros(1, 1, 300, 1024, dtype=torch.bool, device=dev)
        m[..., 100:130, 500:520] = True
        m[..., 200:, 64:128] = True
        m[..., 3, 1000] = True
        c('bool sparse', 1, 2, 2, 2, 300, 1024, E, Ev, mask=m)
        c('bool none', 1, 2, 2, 2, 300, 1024, E, Ev, mask=m & False)
        b = torch.where(m, 0.0, -math.inf)
        c('bias -inf', 1, 2, 2, 2, 300, 1024, E, Ev, mask=b)
        fm = torch.full((1, 1, 100, 90), torch.finfo(torch.float32).min, device=dev)
        fm[..., 50:, :40] = 0
        c('bias finite min', 1, 2, 2, 2, 100, 90, E, Ev, mask=fm)
        c('NaN V bool', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k, v), mask=torch.rand(200, 200, device=dev) > 0.5)
        c('NaN K bool', 1, 2, 2, 2, 200, 200, E, Ev, tensors=(q, k2, v0), mask=torch.rand(200, 200, device=dev) > 0.5)
        for cap in (2.0, 30.0):
            c(f'softcap{cap}', 1, 2, 2, 2, 200, 200, E, Ev, softcap=cap, causal=1)
        c('alibi', 2, 4, 2, 2, 130, 200, E, Ev, slopes=torch.tensor([0.5, 0.1, 0.01, 1.0], device=dev), causal=2)
        c('alibi b', 2, 4, 2, 2, 130, 200, E, Ev, slopes=torch.rand(2, 4, device=dev))
        c('alibi packed', 1, 2, 1, 2, 300, 340, E, Ev, cq=cq, ck=ck, causal=2, slopes=torch.rand(2, device=dev))
        for dp in (0.1, 0.5, 1.0) if featured == 2 else (1.0,):
            c(f'dropout{dp}', 2, 2, 2, 2, 150, 200, E, Ev, drop=dp, seed=123456789012, offset=77 + (5 << 32), causal=1)
        for ps in (16, 48):
            n = -(-200 // ps)
            kc, vc = (rnd(3 * n, 2, ps, E, dtype=dtype, seed=3), rnd(3 * n, 2, ps, Ev, dtype=dtype, seed=4))
            tb = torch.randperm(3 * n, device=dev).int()[:2 * n].view(2, n)
            c(f'paged{ps}', 2, 4, 2, 2, 33, n * ps, E, Ev, tensors=(rnd(2, 4, 33, E, dtype=dtype), kc, vc), table=tb, page_size=ps, kv=torch.tensor([150, 77], device=dev, dtype=torch.int32), causal=2)
        c('all', 2, 4, 2, 2, 200, 300, E, Ev, softcap=5.0, causal=2, window=(90, 5), drop=0.3 if featured == 2 else 0.0, seed=5, offset=1, slopes=torch.rand(4, device=dev), sinks=rnd(4), mask=rnd(2, 4, 200, 300, dtype=torch.bfloat16))
    return r
images = {}
lines = []
for line in open(list_file):
    f = line.split()
    if not f:
        continue
    name, E, MT, W, K, B, S, FT = (f[0], *map(int, f[1:8]))
    Ev = next((int(x.split('=')[1]) for x in f[8:] if x.startswith('-DATTNSCOPE_EV=')), E)
    for t, dt in (('Bf16', torch.bfloat16), ('F16', torch.float16)):
        try:
            im = Image(f'{folder}/{name}.{t}.cubin', E, 16 * MT * W, 32 * W, f"{name}{('' if t == 'Bf16' else '.f16')}", K, Ev)
        except FileNotFoundError:
            continue
        except RuntimeError as e:
            print(f'  {name}: {e}')
            continue
        if mode in ('all', 'check'):
            r = checks(im, dt, FT)
            bad = [x for _, x in r if x]
            lines += bad[:6]
            print(f"{('right' if not bad else 'WRONG')} {im.name}: {len(r) - len(bad)}/{len(r)}, {im.regs} regs, {im.local} local, {im.shared} shared, {im.blocks} blocks/SM", flush=True)
            if bad:
                print('\n'.join(bad[:4]), flush=True)
            open(f'{out_dir}/wrong.txt', 'a').write('\n'.join(bad) + '\n' if bad else '')
            fatal = [b for n, b in r if b and n in ('square', 'causal1')]
        else:
            fatal = []
        if t == 'Bf16' and (not fatal):
            images[name] = (im, bool(FT))
print(f'checked in {time.time() - t_start:.0f} s', flush=True)
if mode == 'check':
    sys.exit(0)
flush = torch.empty(32 * 2 ** 20, dtype=torch.int32, device=dev)



def time_calls(calls, rounds=3, budget=6.0):
    guess, times = ({}, {n: [] for n in calls})
    for n, f in calls.items():
        a, b = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        f()
        a.record()
        f()
        b.record()
        b.synchronize()
        guess[n] = a.elapsed_time(b)
    for _ in range(rounds):
        for n, f in calls.items():
            ps = []
            for _ in range(max(3, min(15, int(budget / (guess[n] + 0.06))))):
                flush.zero_()
                torch.cuda._sleep(150000)
                a, b = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                a.record()
                f()
                b.record()
                ps.append((a, b))
            torch.cuda.synchronize()
            times[n].append(statistics.median((a.elapsed_time(b) * 1000 for a, b in ps)))
    return {n: statistics.median(t) for n, t in times.items()}



def torch_call(backend, q, k, v, **o):

    def f():
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, **o)
    return f
record = {}



def row(label, calls, peer):
    t = time_calls(calls)
    record[label] = t
    best = min((x for x in t if x != peer), key=t.get)
    print(f'{label}: {peer} {t[peer]:.0f} us; ' + ', '.join((f'{n} {t[peer] / t[n]:.3f}' for n in sorted((x for x in t if x != peer), key=t.get))), flush=True)
    json.dump(record, open(f'{out_dir}/times.json', 'w'), indent=1)


def fitting(D, Dv, wanted):
    """Instances of these head sizes and the embedded images over zeros."""
    up = lambda n: -(-n // 16) * 16
    fit = [(n, im) for n, (im, ft) in images.items() if ft == wanted and not n.startswith('x') and im.e >= D and im.ev >= Dv]
    zeros = [(n, im) for n, im in fit if n[0] in 'df']
    least = min((im.e for _, im in zeros), default=0)
    return [(n, im) for n, im in fit if (im.e, im.ev) == (up(D), up(Dv)) or (n[0] in 'df' and im.e == least)]


if mode == 'sizes':
    for D, Dv in [(48, 48), (80, 80), (112, 112), (144, 144), (160, 160), (176, 176), (192, 192), (192, 128), (208, 208), (224, 224)]:
        for causal in (True, False):
            q, k, v = (rnd(4, 16, 2048, d, seed=n) for n, d in enumerate((D, D, Dv)))
            out = torch.empty_like(v)
            calls = {n: im.prepare(q, k, v, out, causal=int(causal)) for n, im in fitting(D, Dv, False)}
            if D == Dv: calls['flash'] = torch_call(SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=causal)
            if len(calls) > 1: row(f"{D}/{Dv} {'causal' if causal else 'full'}", calls, 'flash' if D == Dv else next(iter(calls)))
    for D in (48, 80, 96, 112, 144, 160, 176, 192, 224):
        q, k, v = (rnd(4, 16, 2048, D, seed=n) for n in range(3))
        out = torch.empty_like(v)
        m = torch.rand(1, 1, 2048, 2048, device=dev) > 0.2
        calls = {n: im.prepare(q, k, v, out, mask=m) for n, im in fitting(D, D, True)}
        calls['efficient'] = torch_call(SDPBackend.EFFICIENT_ATTENTION, q, k, v, attn_mask=m.expand(4, 16, 2048, 2048))
        if len(calls) > 1: row(f'{D} bool', calls, 'efficient')
    sys.exit(0)
print('speed against PyTorch flash, higher is better', flush=True)
for B, H, S, D in [(8, 16, 1024, 64), (4, 16, 4096, 64), (8, 16, 1024, 128), (4, 16, 4096, 128), (2, 8, 4096, 256), (4, 16, 2048, 96), (4, 16, 2048, 192)]:
    for causal in (True, False):
        q, k, v = (rnd(B, H, S, D, seed=n) for n in range(3))
        out = torch.empty_like(q)
        calls = {'flash': torch_call(SDPBackend.FLASH_ATTENTION, q, k, v, is_causal=causal)}
        for n, (im, ft) in images.items():
            if im.e == D and (not n.startswith('x')):
                calls[n] = im.prepare(q, k, v, out, causal=int(causal))
        if len(calls) > 1:
            row(f"{B},{H},{S},{D} {('causal' if causal else 'full')}", calls, 'flash')
print('speed against PyTorch efficient', flush=True)
for B, H, S, D in [(4, 16, 2048, 64), (4, 16, 2048, 128), (2, 8, 2048, 256)]:
    q, k, v = (rnd(B, H, S, D, seed=n) for n in range(3))
    out = torch.empty_like(q)
    for nm, m in (('none', None), ('bias', rnd(1, H, S, S, seed=5).expand(B, H, S, S)), ('bool', torch.rand(1, 1, S, S, device=dev) > 0.2), ('keys', torch.rand(B, 1, 1, S, device=dev) > 0.2)):
        calls = {'efficient': torch_call(SDPBackend.EFFICIENT_ATTENTION, q, k, v, attn_mask=m if m is None else m if m.dtype == torch.bfloat16 else m.expand(B, H, S, S))}
        for n, (im, ft) in images.items():
            if im.e == D and (ft or m is None) and (not n.startswith('x')):
                calls[n] = im.prepare(q, k, v, out, mask=m)
        try:
            row(f'{B},{H},{S},{D} {nm}', calls, 'efficient')
        except RuntimeError as e:
            print(f'{B},{H},{S},{D} {nm}: {str(e)[:100]}')
print(f'done in {time.time() - t_start:.0f} s')
