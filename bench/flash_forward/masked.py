"""The images with a mask against float64, then beside PyTorch's memory-efficient attention: masked.py FOLDER_OF_IMAGES OUT_FOLDER [check]

FOLDER_OF_IMAGES/manifest.json lists them (featured_build.py). Outputs lie in poisoned larger buffers; every element is compared, NaN
and infinities by position. Times: candidates interleaved, L2 overwritten between calls, CUDA events, medians of rounds.
"""

import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from featured_launcher import Featured, MaskTiles

folder, out_folder = sys.argv[1:3]
dev = "cuda"
torch.zeros(1, device=dev)
INF = math.inf


def reference(q, k, v, f):
    B, H, L, E = q.shape
    S = k.shape[2]
    kk, vv = (t.double().repeat_interleave(H // t.shape[1], 1) for t in (k, v))
    i, j = torch.arange(L, device=dev)[:, None], torch.arange(S, device=dev)[None]
    n = torch.full((B, 1, 1, 1), S, device=dev) if f.get("kv_lengths") is None else f["kv_lengths"].long().view(B, 1, 1, 1)
    d = i + (n - L if f.get("lower_right") else 0)
    keep = (j < n) & torch.ones(B, H, L, S, dtype=torch.bool, device=dev)
    if f.get("causal"): keep &= j <= d
    if f.get("left", -1) >= 0: keep &= d - j <= f["left"]
    mask = f["mask"]
    s = (q.double() @ kk.transpose(2, 3)) * f.get("scale", E**-0.5)
    if mask.dtype == torch.bool: keep &= mask
    else:
        keep &= mask != -INF
        s = s + mask.double()
    s = torch.where(keep, s, -INF)
    logits = s if f.get("sinks") is None else torch.cat([s, torch.where(keep.any(-1, True), f["sinks"].double().view(1, H, 1, 1), -INF).expand(B, H, L, 1)], -1)
    lse = torch.logsumexp(logits, -1)
    w = torch.softmax(logits, -1)[..., :S]
    w = torch.where(keep.any(-1, True), w, 0.0)
    finite = torch.isfinite(vv)
    o = torch.where(keep, w, 0.0) @ torch.where(finite, vv, 0.0)
    if not finite.all():
        m = keep.double()
        nan, plus, minus = (m @ x.double() > 0 for x in (vv.isnan(), vv == INF, vv == -INF))
        o = torch.where(plus, INF, o); o = torch.where(minus, -INF, o); o = torch.where(nan | (plus & minus), math.nan, o)
    lse = torch.where(keep.any(-1), lse, -INF)
    return o, lse


def random(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=torch.Generator(device=dev).manual_seed(seed), device=dev).to(dtype)


def cases(kind, dtype):
    """(name, (B, H, Hk, L, S), features, poison)"""
    C = []
    low = torch.finfo(dtype).min
    def mask(*shape, p=0.6, seed=7):
        keep = torch.rand(*shape, generator=torch.Generator(device=dev).manual_seed(seed), device=dev) < p
        return keep if kind == "bool" else random(*shape, seed=seed, dtype=dtype) * 2
    def holes(m, seed=8):  # a bias with −∞ in it
        return m if kind == "bool" else torch.where(torch.rand(m.shape, generator=torch.Generator(device=dev).manual_seed(seed), device=dev) < 0.6, m, -INF)
    add = lambda name, shape, m, poison=None, **f: C.append((name, shape, dict(f, mask=m), poison))
    add("square", (1, 2, 2, 256, 256), mask(256, 256))
    add("one tile", (1, 1, 1, 64, 128), mask(64, 128))
    add("small", (2, 3, 1, 3, 16), mask(3, 16))
    for shape_name, shape in (("full", (3, 4, 200, 400)), ("heads", (1, 4, 200, 400)), ("batches", (3, 1, 200, 400)), ("keys", (3, 1, 1, 400)), ("key row", (1, 1, 1, 400)),
                              ("2d", (200, 400)), ("per head keys", (1, 4, 1, 400))):
        for causal, lr in ((0, 0), (1, 0), (1, 1)):
            add(f"{shape_name} {causal}{lr}", (3, 4, 2, 200, 400), mask(*shape), causal=bool(causal), lower_right=bool(lr))
    wide = mask(2, 4, 330, 1200)
    add("view of a larger one", (2, 4, 4, 300, 1008), wide[:, :, 16:316, 64:1072])
    add("expanded", (2, 4, 1, 300, 560), mask(1, 1, 300, 560).expand(2, 4, 300, 560))
    add("odd keys in a padded one", (2, 2, 1, 150, 333), mask(2, 2, 150, 336)[..., :333])
    add("many tiles", (3, 20, 4, 700, 704), mask(1, 20, 700, 704), causal=True)
    add("many tiles, lengths", (5, 4, 2, 200, 400), mask(1, 4, 200, 400), "past", kv_lengths=torch.tensor([399, 0, 1, 130, 257], device=dev))
    add("window", (2, 2, 1, 500, 640), holes(mask(500, 640)), left=100, causal=True)
    add("sinks", (2, 4, 2, 200, 400), holes(mask(1, 4, 200, 400)), sinks=torch.tensor([0.5, -3.0, 9.0, 0.0], device=dev), causal=True)
    for scale in (0.0, -0.3, 1.5): add(f"scale {scale}", (1, 2, 1, 200, 336), mask(200, 336), scale=scale, causal=scale != 0)
    sparse = mask(300, 1024, p=0.02)
    none = torch.zeros(300, 1024, dtype=torch.bool, device=dev)
    blocks = none.clone(); blocks[100:130, 500:520] = True; blocks[200:, 64:128] = True; blocks[3, 1000] = True
    if kind == "bool":
        add("sparse", (1, 2, 2, 300, 1024), sparse)
        add("blocks", (2, 2, 2, 300, 1024), blocks)
        add("none", (1, 2, 2, 300, 1024), none)
        add("causal as a mask", (2, 4, 2, 1000, 1008), torch.ones(1000, 1008, dtype=torch.bool, device=dev).tril())
    else:
        add("holes", (2, 4, 2, 200, 400), holes(mask(200, 400)))
        add("blocks", (1, 2, 2, 300, 1024), torch.where(blocks, 0.0, -INF).to(dtype))
        add("none", (1, 2, 2, 300, 1024), torch.full((300, 1024), -INF, dtype=dtype, device=dev))
        lowest = torch.full((100, 192), low, dtype=dtype, device=dev); lowest[50:, :40] = 0; lowest[60, :] = -INF; lowest[70, 5:] = -INF
        add("finite minima", (1, 2, 2, 100, 192), lowest)
        first = torch.zeros(100, 448, dtype=dtype, device=dev); first[:, :128] = low; first[10, 300:] = low
        add("finite minima first", (1, 2, 2, 100, 448), first)
        large = random(200, 400, seed=3, dtype=dtype) * 300
        add("large", (1, 2, 2, 200, 400), large)
    for kinds in ("nan", "mixed"): add(f"values {kinds}", (1, 2, 1, 300, 400), holes(mask(300, 400)), ("values", kinds))
    add("values nan, causal, per head", (2, 2, 1, 300, 400), holes(mask(1, 2, 300, 400)), ("values", "mixed"), causal=True)
    add("values nan, one row", (2, 2, 1, 300, 400), holes(mask(2, 1, 1, 400)), ("values", "mixed"))
    add("keys nan", (1, 2, 1, 300, 400), holes(mask(300, 400)), ("keys", "nan"))
    add("keys nan hidden", (1, 2, 1, 300, 400), holes(mask(300, 400)), ("hidden keys", "nan"))
    return C


def run_case(image, name, shape, f, poison):
    dtype = torch.bfloat16 if image.dtype == "bf16" else torch.float16
    B, H, Hk, L, S = shape
    q, k, v = (random(B, h, n, e, seed=len(name) + x, dtype=dtype) for x, (h, n, e) in enumerate(((H, L, image.use_e), (Hk, S, image.use_e), (Hk, S, image.use_ev))))
    if poison == "past":
        for b, n in enumerate(f["kv_lengths"].tolist()): k[b, :, n:] = math.nan; v[b, :, n::2] = math.nan; v[b, :, n + 1::2] = INF
    elif poison and poison[0] == "values":
        kinds = {"nan": [math.nan], "mixed": [math.nan, INF, -INF]}[poison[1]]
        for at, row in enumerate((0, 70, 131, 200, 255, 256, 290)):
            v[..., row, (at * 13) % image.use_ev] = kinds[at % len(kinds)]; v[..., row, 3] = kinds[(at + 1) % len(kinds)]
    elif poison:
        k[:, :, 77] = math.nan
        if poison[0] == "hidden keys":
            f = dict(f, mask=f["mask"].clone()); f["mask"][..., 77] = False if f["mask"].dtype == torch.bool else -INF
    pool = torch.full((B, H, L + 5, image.use_ev + 8), math.nan, dtype=dtype, device=dev)
    mark = pool.view(torch.int16); mark.fill_(-1)
    out = pool[:, :, :L, : image.use_ev]
    lse_pool = torch.full((B * H * L + 64,), 12345.0, device=dev)
    Featured.mask_tiles = tiles if L % 3 == 0 or S > 1000 else None
    image.prepare(q, k, v, out, lse_pool, f)()
    torch.cuda.synchronize()
    want, want_lse = reference(q, k, v, f)
    got, got_lse = out.double(), lse_pool[: B * H * L].view(B, H, L).double()
    def differ(a, b, tol):
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= tol)
        if same.all(): return None
        at = (~same).nonzero()[0].tolist()
        return f"{int((~same).sum())} of {same.numel()} differ, first {at}: got {a[tuple(at)].item():.6g} want {b[tuple(at)].item():.6g}"
    problem = differ(got, want, 4.5 * (0.016 if dtype == torch.bfloat16 else 0.003))
    if problem: return "out: " + problem
    fin = torch.isfinite(want) & torch.isfinite(got)
    if fin.any() and want[fin].norm() > 1e-6:
        err = ((got - want)[fin].norm() / want[fin].norm()).item()
        if err > (6e-3 if dtype == torch.bfloat16 else 1.5e-3): return f"rel l2 {err:.2e}"
    problem = differ(got_lse, want_lse, 3e-3 + 1e-6 * want_lse.abs().nan_to_num(0, 0, 0))
    if problem: return "lse: " + problem
    outside = torch.ones_like(mark, dtype=torch.bool); outside[:, :, :L, : image.use_ev] = False
    if not bool((mark[outside] == -1).all()) or not bool((lse_pool[B * H * L:] == 12345.0).all()): return "wrote outside"
    first = out.clone()
    image.prepare(q, k, v, out, None, f)()
    torch.cuda.synchronize()
    return None if torch.equal(first.view(torch.int16), out.contiguous().view(torch.int16)) else "runs differ"


def check(infos):
    """The images that are right."""
    right = []
    for info in infos:
        if info.get("unchecked"): right.append(info); continue  # a try that is only to be timed
        sizes = [(info["e"], info["ev"])] + ([(info["e"] - 24, info["ev"] - 16)] if info.get("default", True) else [])
        good, bad, began = 0, [], time.time()
        for e, ev in sizes:
            try: image = Featured({**info, "use_e": e, "use_ev": ev}, folder)
            except Exception as problem: bad.append(f"   {problem}"); continue
            for c in cases(info["mask"], torch.bfloat16 if info["dtype"] == "bf16" else torch.float16):
                try: problem = run_case(image, *c)
                except Exception as error:
                    print(f"DEAD {info['name']} E {e} at {c[0]}: {type(error).__name__} {str(error)[:300]}", flush=True); sys.exit(1)
                if problem: bad.append(f"   E {e} {c[0]}: {problem}")
                else: good += 1
        open(out_folder + "/masked_wrong.txt", "a").write("".join(f"{info['name']} {b}\n" for b in bad))
        print(f"{'WRONG' if bad else 'right'} {info['name']}: {good} right, {len(bad)} wrong, {time.time() - began:.1f} s", flush=True)
        if bad: print("\n".join(bad[:4]), flush=True)
        else: right.append(info)
    return right


def peer(q, k, v, mask):
    def call():
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]): return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return call


def time_all(infos):
    images = [Featured({**i, "use_e": i["e"], "use_ev": i["ev"]}, folder) for i in infos if i["dtype"] == "bf16"]
    flush = torch.empty(32 * 2**20, dtype=torch.int32, device=dev)
    record = {}
    for b, h, s, d in ((4, 16, 2048, 64), (4, 16, 2048, 128), (2, 8, 2048, 256)):
        q, k, v = (random(b, h, s, d, seed=n) for n in range(3))
        o = torch.empty_like(q)
        for name, m in (("bias", random(1, h, s, s, seed=5)), ("bool", torch.rand(1, 1, s, s, device=dev) > 0.2), ("keys", torch.rand(b, 1, 1, s, device=dev) > 0.2),
                        ("tril", torch.ones(1, 1, s, s, dtype=torch.bool, device=dev).tril())):
            calls = {"PyTorch": peer(q, k, v, m.expand(b, h, s, s))}
            for i in images:
                if i.e != d or i.mask != ("bias" if name == "bias" else "bool"): continue
                Featured.mask_tiles = tiles
                calls[i.name] = i.prepare(q, k, v, o, None, dict(mask=m))
                Featured.mask_tiles = None
                if name == "tril": calls[i.name + " all tiles"] = i.prepare(q, k, v, o, None, dict(mask=m))
                if name == "bias": calls[i.name + " batch by batch"] = i.prepare(q, k, v, o, None, dict(mask=m, heads_first=False))
            times, guess = {n: [] for n in calls}, {}
            for n, c in calls.items():
                a, z = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                c(); a.record(); c(); z.record(); z.synchronize(); guess[n] = a.elapsed_time(z)
            for _ in range(3):
                for n, c in calls.items():
                    pairs = []
                    for _ in range(max(3, min(12, int(5 / (guess[n] + 0.06))))):
                        flush.zero_(); torch.cuda._sleep(150_000)
                        a, z = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                        a.record(); c(); z.record(); pairs.append((a, z))
                    torch.cuda.synchronize(); times[n].append(statistics.median(a.elapsed_time(z) * 1000 for a, z in pairs))
            us = {n: statistics.median(t) for n, t in times.items()}
            record[f"{b},{h},{s},{d} {name}"] = us
            print(f"{b},{h},{s},{d} {name}: " + " · ".join(f"{n} {t:.0f}" + (f" ({us['PyTorch'] / t:.2f})" if n != "PyTorch" else "") for n, t in us.items()), flush=True)
            json.dump(record, open(out_folder + "/masked.json", "w"), indent=1)


began = time.time()
tiles = MaskTiles(folder + "/mask_tiles.cubin")
infos = [i for i in json.load(open(folder + "/manifest.json")) if i.get("mask")]
right = check(infos)
print(f"checked in {time.time() - began:.0f} s", flush=True)
if len(sys.argv) < 4: time_all(right)
sys.exit(len(right) != len(infos))
