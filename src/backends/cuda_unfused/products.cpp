#include "backends/cuda_unfused/products.h"

#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::cuda_unfused {
namespace {

int64_t bytes_of(const TensorView& v) {
  return v.numel() * static_cast<int64_t>(dtype_size(v.dtype));
}

// Largest power of two (≤ 16) that divides an address or a distance in bytes.
size_t power_of_two(uint64_t bytes) {
  size_t p = 16;
  while (p > 1 && bytes % p != 0) p /= 2;
  return p;
}

TensorView without_data(TensorView v) {
  v.data = nullptr;
  return v;
}

const TensorView& request_view(const Request& r, int which) {
  return which == 0 ? r.q : which == 1 ? r.k : r.v;
}

bool is_dense(const TensorView& v) {
  int64_t expected = 1;
  for (int d = 3; d >= 0; --d) {
    if (v.size(d) != 1 && v.stride(d) != expected) return false;
    expected *= v.size(d);
  }
  return true;
}

}  // namespace

bool shape_is_empty(const Request& r) {
  return r.batch() * r.heads() * r.q_len() == 0;
}

size_t Products::alignment_of(const TensorView& view, const Collapsed& layout) const {
  const size_t element = dtype_size(view.dtype);
  size_t a = power_of_two(reinterpret_cast<uint64_t>(view.data));
  a = std::min(a, power_of_two(static_cast<uint64_t>(layout.ld) * element));
  return std::min(
      a, layout.batch_stride == 0 ? 16 : power_of_two(static_cast<uint64_t>(layout.batch_stride) * element));
}

Products::Operand Products::operand(const TensorView& view, int64_t groups, const char* what, int which) {
  if (auto layout = collapse(view, groups)) return {false, 0, *layout};
  const TensorView dense = TensorView::contiguous(
      nullptr, view.dtype, {view.size(0), view.size(1), view.size(2), view.size(3)}, view.device);
  const size_t offset = program_.workspace.add(static_cast<size_t>(bytes_of(dense)));
  Step step;
  step.name = "attnscope::contiguous";
  step.note =
      fmt::format("{} has no single batch stride or rows too far apart: it is made dense first", what);
  step.inputs = {without_data(view)};
  step.launches.push_back(
      {EventKind::kKernel, bytes_of(dense), bytes_of(dense), 0, [offset, dense, which](const RunContext& c) {
         TensorView to = dense;
         to.data = c.at<void>(offset);
         return cuda::check(convert(request_view(c.request, which), to, {}, c.stream), "copy kernel");
       }});
  program_.steps.push_back(std::move(step));
  return {true, offset, dense_layout(view.size(2) * groups, view.size(3))};
}

Status Products::scores(const TensorView& q, const TensorView& k, size_t scores, float alpha) {
  const Operand a = operand(q, r_.heads() / k.size(1), "q", 0);
  const Operand b = operand(k, 1, "k", 1);
  return add_scores(a, b, scores, alpha);
}

Status Products::scores_dense(size_t q, size_t k, size_t scores) {
  const int64_t groups = r_.heads() / r_.k.size(1);
  return add_scores({true, q, dense_layout(groups * r_.q_len(), r_.head_dim())},
                    {true, k, dense_layout(r_.kv_len(), r_.head_dim())}, scores, 1.0f);
}

Status Products::add_scores(const Operand& q, const Operand& k, size_t scores, float alpha) {
  const ScoreShape s = score_shape(r_);
  const int64_t heads = r_.k.size(1), groups = r_.heads() / heads;
  cuda::GemmShape shape;
  shape.m = groups * r_.q_len();
  shape.n = r_.kv_len();
  shape.k = r_.head_dim();
  shape.batch = r_.batch() * heads;
  shape.a_ld = q.layout.ld;
  shape.a_batch = q.layout.batch_stride;
  shape.b_ld = k.layout.ld;
  shape.b_batch = k.layout.batch_stride;
  shape.c_ld = s.ld;
  shape.c_batch = shape.m * s.ld;
  shape.b_transposed = true;
  shape.dtype = dtype_;
  shape.plain_f32 = dtype_ == DType::kF32;
  const size_t alignment = std::min(q.in_workspace ? size_t{16} : alignment_of(r_.q, q.layout),
                                    k.in_workspace ? size_t{16} : alignment_of(r_.k, k.layout));
  ATTNSCOPE_ASSIGN(const cuda::Gemm gemm, cuda::Gemm::plan(shape, program_.device, alignment));
  const size_t workspace = program_.workspace.add(gemm.workspace_bytes());
  const auto element = static_cast<int64_t>(dtype_size(dtype_));
  Step step;
  step.name = "attnscope::matmul";
  step.note = "q·kᵀ by cuBLASLt";
  step.inputs = {without_data(r_.q), without_data(r_.k)};
  step.launches.push_back(
      {EventKind::kKernel, (r_.q.numel() + r_.k.numel()) * element, s.rows() * s.kv_len * element,
       static_cast<int64_t>(shape.flops()), [gemm, q, k, scores, alpha, workspace](const RunContext& c) {
         const void* a = q.in_workspace ? c.at<void>(q.offset) : c.request.q.data;
         const void* b = k.in_workspace ? c.at<void>(k.offset) : c.request.k.data;
         return gemm.run(a, b, c.at<void>(scores), alpha, c.at<void>(workspace), c.stream);
       }});
  program_.steps.push_back(std::move(step));
  return {};
}

Result<cuda::Gemm> Products::values_gemm(const Collapsed& v, size_t alignment) {
  const ScoreShape s = score_shape(r_);
  const int64_t heads = r_.v.size(1), groups = r_.heads() / heads;
  cuda::GemmShape shape;
  shape.m = groups * r_.q_len();
  shape.n = r_.value_dim();
  shape.k = r_.kv_len();
  shape.batch = r_.batch() * heads;
  shape.a_ld = s.ld;
  shape.a_batch = shape.m * s.ld;
  shape.b_ld = v.ld;
  shape.b_batch = v.batch_stride;
  shape.c_ld = r_.value_dim();
  shape.c_batch = shape.m * r_.value_dim();
  shape.dtype = dtype_;
  shape.plain_f32 = dtype_ == DType::kF32;
  return cuda::Gemm::plan(
      shape, program_.device,
      std::min(alignment, power_of_two(static_cast<uint64_t>(r_.value_dim()) * dtype_size(dtype_))));
}

Status Products::values(size_t weights, const TensorView& v, const char* note) {
  const Operand b = operand(v, 1, "v", 2);
  const size_t alignment = b.in_workspace ? 16 : alignment_of(v, b.layout);
  ATTNSCOPE_ASSIGN(const cuda::Gemm gemm, values_gemm(b.layout, alignment));
  const size_t workspace = program_.workspace.add(gemm.workspace_bytes());
  const TensorView dense = TensorView::contiguous(
      nullptr, dtype_, {r_.batch(), r_.heads(), r_.q_len(), r_.value_dim()}, r_.q.device);
  const size_t result = program_.workspace.add(static_cast<size_t>(bytes_of(dense)));
  const auto element = static_cast<int64_t>(dtype_size(dtype_));
  Step step;
  step.name = "attnscope::matmul";
  step.note = fmt::format("{} by cuBLASLt; one more kernel when out is not dense", note);
  step.inputs = {without_data(v)};
  step.launches.push_back(
      {EventKind::kKernel, score_shape(r_).rows() * r_.kv_len() * element + bytes_of(v), bytes_of(dense),
       static_cast<int64_t>(gemm.shape().flops()),
       [gemm, b, weights, workspace, result, dense](const RunContext& c) -> Status {
         const TensorView& out = c.outputs.out;
         const bool direct = is_dense(out) && reinterpret_cast<uint64_t>(out.data) % 16 == 0;
         void* to = direct ? out.data : c.at<void>(result);
         const void* values = b.in_workspace ? c.at<void>(b.offset) : c.request.v.data;
         ATTNSCOPE_TRY(gemm.run(c.at<void>(weights), values, to, 1.0f, c.at<void>(workspace), c.stream));
         if (direct) return {};
         TensorView from = dense;
         from.data = to;
         return cuda::check(convert(from, out, {}, c.stream), "copy kernel of the output");
       }});
  program_.steps.push_back(std::move(step));
  return {};
}

Status Products::values_dense(size_t weights, size_t v, size_t result) {
  ATTNSCOPE_ASSIGN(const cuda::Gemm gemm, values_gemm(dense_layout(r_.kv_len(), r_.value_dim()), 16));
  const size_t workspace = program_.workspace.add(gemm.workspace_bytes());
  const auto element = static_cast<int64_t>(dtype_size(dtype_));
  Step step;
  step.name = "attnscope::matmul";
  step.note = "weights·v by cuBLASLt";
  step.inputs = {without_data(r_.v)};
  step.launches.push_back({EventKind::kKernel,
                           score_shape(r_).rows() * r_.kv_len() * element + r_.v.numel() * element,
                           r_.batch() * r_.heads() * r_.q_len() * r_.value_dim() * element,
                           static_cast<int64_t>(gemm.shape().flops()),
                           [gemm, weights, v, result, workspace](const RunContext& c) {
                             return gemm.run(c.at<void>(weights), c.at<void>(v), c.at<void>(result), 1.0f,
                                             c.at<void>(workspace), c.stream);
                           }});
  program_.steps.push_back(std::move(step));
  return {};
}

}  // namespace attnscope::cuda_unfused
