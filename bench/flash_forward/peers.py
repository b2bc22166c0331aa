"""FlashAttention-3 and FlashAttention-4 as peers, where their wheels (`fa3-fwd`, `flash-attn-4` on PyPI) load.

ATTNSCOPE_PEERS names the ones to try (default: both, "none" for none). `found()` gives, per peer, either a call or the reason that there is none; nothing here is needed for the bench.
"""
import os


def _fa3():
    from fa3_fwd_interface import flash_attn_func

    def call(q, k, v, causal):
        out = flash_attn_func(q, k, v, causal=causal)
        return out[0] if isinstance(out, tuple) else out

    return call


def _fa4():
    from flash_attn.cute import flash_attn_func

    def call(q, k, v, causal):
        out = flash_attn_func(q, k, v, causal=causal)
        return out[0] if isinstance(out, tuple) else out

    return call


def found():
    """{name: (call or None, reason)}; call takes [B, L, H, E] tensors, the layout these libraries are made for, and
    returns the output in it. Causal there is aligned to the lower right, the same as ours where L = S."""
    peers, wanted = {}, os.environ.get("ATTNSCOPE_PEERS", "fa3,fa4").split(",")
    for name, load in (("fa3", _fa3), ("fa4", _fa4)):
        if name not in wanted:
            continue
        try:
            peers[name] = (load(), "")
        except Exception as problem:  # whatever a foreign wheel does on import
            peers[name] = (None, f"{type(problem).__name__}: {problem}")
    return peers
