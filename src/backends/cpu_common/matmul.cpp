#include "backends/cpu_common/matmul.h"

#include "backends/cpu_common/matmul_blocked.h"
#include "backends/cpu_common/threads.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <optional>
#include <string_view>

namespace attnscope::cpu {
namespace {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

std::optional<dnnl::memory::data_type> dnnl_type(DType t) {
  if (t == DType::kF32) return dnnl::memory::data_type::f32;
  if (t == DType::kBF16) return dnnl::memory::data_type::bf16;
  return std::nullopt;
}

// The stack [batch, heads, rows, cols] with `group` neighbouring heads folded into the rows; nothing when
// oneDNN cannot address it.
std::optional<dnnl::memory::desc> describe(const MatrixLayout& l, int64_t batch, int64_t heads, int64_t group,
                                           int64_t rows, int64_t cols) {
  const auto type = dnnl_type(l.dtype);
  if (!type) return std::nullopt;
  if (group > 1 && rows > 1 && l.head != rows * l.row) return std::nullopt;
  const int64_t row = rows > 1 ? l.row : group > 1 ? l.head : l.row;
  dnnl::memory::dims sizes{batch, heads / group, rows * group, cols};
  dnnl::memory::dims strides{l.batch, l.head * group, row, l.col};
  int64_t dense = 1;
  for (size_t d = 4; d-- > 0;) {
    if (sizes[d] == 1) strides[d] = dense;  // meaningless, but oneDNN looks at it
    if (strides[d] == 0) return std::nullopt;
    dense = std::max(dense, strides[d] * sizes[d]);
  }
  if (strides[2] != 1 && strides[3] != 1) return std::nullopt;
  return dnnl::memory::desc(sizes, *type, strides);
}

class DnnlMatmul final : public Matmul {
 public:
  DnnlMatmul(dnnl::matmul::primitive_desc pd, int threads, std::string name)
      : pd_(std::move(pd)), primitive_(pd_), threads_(threads), name_(std::move(name)) {}

  Status run(const void* a, const void* b, void* c, std::byte* scratch) const override {
    const OmpThreadScope team(threads_);  // the team that the primitive was made for
    try {
      dnnl::stream stream(engine());
      const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
        return dnnl::memory(desc, engine(), const_cast<void*>(data));
      };
      primitive_.execute(stream, {{DNNL_ARG_SRC, memory(pd_.src_desc(), a)},
                                  {DNNL_ARG_WEIGHTS, memory(pd_.weights_desc(), b)},
                                  {DNNL_ARG_DST, memory(pd_.dst_desc(), c)},
                                  {DNNL_ARG_SCRATCHPAD, memory(pd_.scratchpad_desc(), scratch)}});
      stream.wait();
    } catch (const std::exception& e) {
      return fail(ErrorCode::kInternal, fmt::format("oneDNN matmul failed: {}", e.what()));
    }
    return {};
  }
  size_t scratch_bytes() const override { return pd_.scratchpad_desc().get_size() + 64; }
  std::string kernel_name() const override { return name_; }

 private:
  dnnl::matmul::primitive_desc pd_;
  dnnl::matmul primitive_;
  int threads_;
  std::string name_;
};

std::shared_ptr<const Matmul> make_dnnl(const MatmulShape& s, const MatrixLayout& a, const MatrixLayout& b,
                                        const MatrixLayout& c, int threads) {
  if (a.dtype != b.dtype || s.batch < 1 || s.heads < 1 || s.m < 1 || s.n < 1 || s.k < 1) return nullptr;
  const int64_t group = s.heads / s.b_heads;
  const OmpThreadScope team(threads);
  try {
    const auto da = describe(a, s.batch, s.heads, group, s.m, s.k);
    const auto db = describe(b, s.batch, s.b_heads, 1, s.k, s.n);
    const auto dc = describe(c, s.batch, s.heads, group, s.m, s.n);
    if (!da || !db || !dc) return nullptr;
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc pd({*da, *db, *dc}, attr, engine());
    // Its reference loops are slower than ours: take only the tuned implementations.
    if (std::string_view(pd.impl_info_str()).find("ref") != std::string_view::npos) return nullptr;
    return std::make_shared<DnnlMatmul>(pd, threads, fmt::format("onednn_matmul_{}", dtype_name(a.dtype)));
  } catch (const dnnl::error&) {
    return nullptr;  // this machine or layout has no implementation: ours takes it
  }
}

// Waking a team costs more than a small product.
int threads_for(const MatmulShape& s, int threads) {
  constexpr double kFlopsPerThread = 5e5;
  const double flops = 2.0 * static_cast<double>(s.batch) * static_cast<double>(s.heads) *
                       static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return flops < kFlopsPerThread * threads ? std::max(1, static_cast<int>(flops / kFlopsPerThread)) : threads;
}

}  // namespace

Result<std::shared_ptr<const Matmul>> Matmul::make(const MatmulShape& shape, const MatrixLayout& a,
                                                   const MatrixLayout& b, const MatrixLayout& c,
                                                   int threads) {
  threads = threads_for(shape, threads);
  if (auto dnnl = make_dnnl(shape, a, b, c, threads)) return dnnl;
  return make_blocked_matmul(shape, a, b, c, threads);
}

Result<std::shared_ptr<const OutputMatmul>> OutputMatmul::make(const MatmulShape& shape,
                                                               const MatrixLayout& a, const MatrixLayout& b,
                                                               const TensorView& dense_out, int threads) {
  auto made = std::make_shared<OutputMatmul>();
  made->shape_ = shape;
  made->a_ = a;
  made->b_ = b;
  made->dense_out_ = dense_out;
  made->threads_ = threads = threads_for(shape, threads);
  ATTNSCOPE_ASSIGN(made->dense_, Matmul::make(shape, a, b, MatrixLayout::of(dense_out), threads));
  made->any_ = make_blocked_matmul(shape, a, b, MatrixLayout::of(dense_out), threads);
  return made;
}

size_t OutputMatmul::scratch_bytes() const {
  return std::max(dense_->scratch_bytes(), any_->scratch_bytes());
}

bool OutputMatmul::is_dense(const TensorView& out) const {
  bool dense = true;
  for (int d = 0; d < 4; ++d) dense = dense && (out.size(d) == 1 || out.stride(d) == dense_out_.stride(d));
  return dense;
}

Status OutputMatmul::run(const void* a, const void* b, const TensorView& out, std::byte* scratch) const {
  if (is_dense(out)) return dense_->run(a, b, out.data, scratch);
  return make_blocked_matmul(shape_, a_, b_, MatrixLayout::of(out), threads_)->run(a, b, out.data, scratch);
}

}  // namespace attnscope::cpu
