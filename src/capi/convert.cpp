#include "capi/convert.h"

#include "capi/places.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attnscope::capi {
namespace {

enum DlDevice { kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13 };
enum DlType { kDlInt = 0, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6 };

Result<DType> to_dtype(const attnscope_tensor& t, const char* name) {
  const auto [code, bits, lanes] = t.dtype;
  if (lanes <= 1) {
    if (code == kDlFloat && bits == 16) return DType::kF16;
    if (code == kDlFloat && bits == 32) return DType::kF32;
    if (code == kDlFloat && bits == 64) return DType::kF64;
    if (code == kDlBfloat && bits == 16) return DType::kBF16;
    if (code == kDlBool && bits == 8) return DType::kBool;
    if (code == kDlInt && bits == 32) return DType::kI32;
    if (code == kDlInt && bits == 64) return DType::kI64;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} has DLPack type code {}, {} bits, {} lanes, which is not known", name,
                          static_cast<int>(code), static_cast<int>(bits), static_cast<int>(lanes)),
              "use f16, bf16, f32, f64, bool, int32 or int64");
}

// The field when it lies inside what the caller's header knew.
template <typename T>
T field(const attnscope_request* r, T attnscope_request::* member, T missing) {
  const auto* at = reinterpret_cast<const char*>(&(r->*member));
  // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer, and its own size is meant
  const auto end = static_cast<size_t>(at - reinterpret_cast<const char*>(r)) + sizeof(T);
  return end <= r->struct_size ? r->*member : missing;
}

Status optional_view(const attnscope_tensor* tensor, const char* name, TensorView& to) {
  if (!tensor) return {};
  ATTNSCOPE_ASSIGN(to, to_view(*tensor, name));
  if (!to.data) return fail(ErrorCode::kInvalidArgument, fmt::format("{} has no data", name));
  return {};
}

}  // namespace

Result<TensorView> to_view(const attnscope_tensor& t, const char* name) {
  if (t.ndim < 1 || t.ndim > 4)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} dimensions; 1 to 4 are taken", name, t.ndim));
  if (!t.shape) return fail(ErrorCode::kInvalidArgument, fmt::format("{} has no shape", name));
  TensorView view;
  ATTNSCOPE_ASSIGN(view.dtype, to_dtype(t, name));
  switch (t.device.device_type) {
    case kDlCpu:
    case kDlCudaHost: view.device = {DeviceType::kCpu, 0}; break;
    case kDlCuda:
    case kDlCudaManaged: view.device = {DeviceType::kCuda, t.device.device_id}; break;
    default:
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is on DLPack device type {}", name, t.device.device_type),
                  "CPU and CUDA tensors are taken");
  }
  view.rank = t.ndim;
  int64_t dense = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    view.sizes[i] = t.shape[d];
    view.strides[i] = t.strides ? t.strides[d] : dense;
    if (__builtin_mul_overflow(dense, std::max<int64_t>(t.shape[d], 1), &dense))
      return fail(ErrorCode::kInvalidArgument, fmt::format("the sizes of {} do not fit 64 bits", name));
  }
  view.data = t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr;
  // An empty tensor may have no memory; the library tells "not given" from "empty" by the pointer.
  static char nothing[16];
  if (!view.data && view.numel() == 0) view.data = nothing;
  return view;
}

Result<Request> to_request(const attnscope_request* r) {
  if (!r) return fail(ErrorCode::kInvalidArgument, "no request was given");
  if (r->struct_size < offsetof(attnscope_request, mask))
    return fail(ErrorCode::kInvalidArgument, "the request was not made by attnscope_request_init()");
  if (!r->q || !r->k || !r->v) return fail(ErrorCode::kInvalidArgument, "q, k and v must be given");
  Request request;
  ATTNSCOPE_ASSIGN(request.q, to_view(*r->q, "q"));
  ATTNSCOPE_ASSIGN(request.k, to_view(*r->k, "k"));
  ATTNSCOPE_ASSIGN(request.v, to_view(*r->v, "v"));
  if (r->causal < 0 || r->causal > 2)
    return fail(ErrorCode::kInvalidArgument, fmt::format("causal is {}; 0, 1 or 2", r->causal));
  request.causal = static_cast<CausalMode>(r->causal);
  if (const attnscope_tensor* mask =
          field(r, &attnscope_request::mask, static_cast<const attnscope_tensor*>(nullptr))) {
    ATTNSCOPE_ASSIGN(request.mask, to_view(*mask, "mask"));
    request.mask_kind = request.mask.dtype == DType::kBool ? MaskKind::kBool : MaskKind::kBias;
  }
  request.window.left = field(r, &attnscope_request::window_left, int64_t{-1});
  request.window.right = field(r, &attnscope_request::window_right, int64_t{-1});
  if (field(r, &attnscope_request::has_scale, 0)) request.scale = field(r, &attnscope_request::scale, 0.0);
  request.softcap = field(r, &attnscope_request::softcap, 0.0);
  request.dropout.p = field(r, &attnscope_request::dropout_p, 0.0);
  request.dropout.seed = field(r, &attnscope_request::dropout_seed, uint64_t{0});
  request.dropout.offset = field(r, &attnscope_request::dropout_offset, uint64_t{0});
  request.dropout.seed_on_device =
      field(r, &attnscope_request::dropout_seed_on_device, static_cast<const uint64_t*>(nullptr));
  const struct {
    const attnscope_tensor* attnscope_request::* member;
    const char* name;
    TensorView& to;
  } optional[] = {{&attnscope_request::kv_lengths, "kv_lengths", request.lengths.kv_lengths},
                  {&attnscope_request::cu_q, "cu_q", request.lengths.cu_q},
                  {&attnscope_request::cu_k, "cu_k", request.lengths.cu_k},
                  {&attnscope_request::block_table, "block_table", request.paging.block_table},
                  {&attnscope_request::append_k, "append_k", request.paging.append_k},
                  {&attnscope_request::append_v, "append_v", request.paging.append_v},
                  {&attnscope_request::sinks, "sinks", request.sinks},
                  {&attnscope_request::alibi_slopes, "alibi_slopes", request.alibi_slopes}};
  for (const auto& o : optional)
    ATTNSCOPE_TRY(
        optional_view(field(r, o.member, static_cast<const attnscope_tensor*>(nullptr)), o.name, o.to));
  request.paging.page_size = field(r, &attnscope_request::page_size, int64_t{0});
  request.wants.lse = field(r, &attnscope_request::want_lse, 0) != 0;
  request.wants.gradients = field(r, &attnscope_request::want_gradients, 0) != 0;
  request.wants.deterministic = field(r, &attnscope_request::deterministic, 0) != 0;
  request.limits.sm_count = field(r, &attnscope_request::limit_sm_count, 0);
  request.limits.splits = field(r, &attnscope_request::limit_splits, 0);
  request.limits.threads = field(r, &attnscope_request::limit_threads, 0);
  request.limits.memory_bytes = field(r, &attnscope_request::limit_memory_bytes, int64_t{0});
  return request;
}

Result<Outputs> to_outputs(const attnscope_tensor* out, const attnscope_tensor* lse) {
  if (!out) return fail(ErrorCode::kInvalidArgument, "no output tensor was given");
  Outputs outputs;
  ATTNSCOPE_ASSIGN(outputs.out, to_view(*out, "out"));
  ATTNSCOPE_TRY(optional_view(lse, "lse", outputs.lse));
  return outputs;
}

ChooseOptions to_choice(const char* backends) {
  ChooseOptions options;
  if (!backends) return options;
  for (std::string_view name : split(backends, ',')) {
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) options.backends.emplace_back(name);
  }
  return options;
}

Status check_places(const Request& r, const Outputs& o) {
  const std::pair<const char*, const TensorView*> views[] = {{"q", &r.q},
                                                             {"k", &r.k},
                                                             {"v", &r.v},
                                                             {"mask", &r.mask},
                                                             {"kv_lengths", &r.lengths.kv_lengths},
                                                             {"cu_q", &r.lengths.cu_q},
                                                             {"cu_k", &r.lengths.cu_k},
                                                             {"out", &o.out},
                                                             {"lse", &o.lse},
                                                             {"sinks", &r.sinks},
                                                             {"alibi_slopes", &r.alibi_slopes},
                                                             {"block_table", &r.paging.block_table},
                                                             {"append_k", &r.paging.append_k},
                                                             {"append_v", &r.paging.append_v}};
  for (const auto& [name, view] : views)
    if (view->data != nullptr && view->numel() > 0 && view->device.type == DeviceType::kCuda)
      ATTNSCOPE_TRY(check_cuda_pointer(name, *view));
  return {};
}

}  // namespace attnscope::capi
