// One C entry, so that the bench loads the library into the process that runs PyTorch: same memory, same
// OpenMP threads, calls interleaved.

#include "attnscope/attention.h"

#include <cstdio>

using namespace attnscope;

// Dense [B, H, L, E] tensors on the host. shape: B, Hq, Hk, L, S, E, Ev; dtype: 0 f32, 1 f16, 2 bf16.
// Returns 0, or 1 after writing the reason into `reason`.
extern "C" int attnscope_bench_sdpa(const char* backend, const int64_t* shape, int dtype, int causal,
                                    int threads, void* q, void* k, void* v, void* out, char* reason,
                                    size_t reason_bytes) {
  const DType t = dtype == 0 ? DType::kF32 : dtype == 1 ? DType::kF16 : DType::kBF16;
  const int64_t batch = shape[0], heads = shape[1], kv_heads = shape[2], len = shape[3], keys = shape[4];
  Request r;
  r.q = TensorView::contiguous(q, t, {batch, heads, len, shape[5]});
  r.k = TensorView::contiguous(k, t, {batch, kv_heads, keys, shape[5]});
  r.v = TensorView::contiguous(v, t, {batch, kv_heads, keys, shape[6]});
  r.causal = causal ? CausalMode::kTopLeft : CausalMode::kNone;
  r.limits.threads = threads;
  Outputs outputs;
  outputs.out = TensorView::contiguous(out, t, {batch, heads, len, shape[6]});
  const Status status = sdpa(r, outputs, {{backend}}, {});
  if (status) return 0;
  std::snprintf(reason, reason_bytes, "%s", status.error().message.c_str());
  return 1;
}
