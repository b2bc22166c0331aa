"""attnscope on tensors of another framework, in its process: sdpa, plans and the profiler, through ctypes.

    import attnscope, torch
    out = attnscope.sdpa(q, k, v, causal="top_left")            # torch tensors on the CPU or a GPU
    plan = attnscope.Plan(q, k, v, causal="top_left", backends="cudnn")
    plan.run(q, k, v, out)                                      # costs its launches and no more
    with attnscope.Session(cuda=True) as session:
        with attnscope.range("attn_fwd"): attnscope.sdpa(q, k, v)
    print(session.summary["kernels"])

The library is libattnscope.so: ATTNSCOPE_LIBRARY, beside this package, or the loader's path.
"""
from ._api import (Error, Plan, Session, backends, choose, library_path, range, sdpa, version)

__all__ = ["Error", "Plan", "Session", "backends", "choose", "library_path", "range", "sdpa", "version"]
