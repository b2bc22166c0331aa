#include "backends/cpu_common/formula.h"

#include "attention/cost.h"
#include "attention/memory.h"
#include "backends/cpu_common/matmul.h"
#include "backends/cpu_common/steps.h"
#include "backends/cpu_common/threads.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::cpu {
namespace {

using From = Operand::From;

bool masks(const Request& r) {
  return r.causal != CausalMode::kNone || r.window.active() || r.mask_kind == MaskKind::kBool ||
         r.lengths.has_kv_lengths();
}

double score_bytes(const Request& r) {
  return static_cast<double>(r.batch()) * static_cast<double>(r.heads()) * static_cast<double>(r.q_len()) *
         static_cast<double>(r.kv_len()) * static_cast<double>(dtype_size(r.q.dtype));
}

std::string_view typed(const char* step, DType dtype) {
  return stable_name(fmt::format("{}_{}", step, dtype_name(dtype)));
}

// Builds the program; `scores_` is where the scores are, `spare_` the other buffer.
template <typename T>
class FormulaBuilder {
 public:
  FormulaBuilder(const Request& request, Masking masking) : r_(request), masking_(masking) {
    program_.threads = plan_threads(r_.limits);
    program_.cost = base_cost(r_);
    const std::array<int64_t, 4> sizes{r_.batch(), r_.heads(), r_.q_len(), r_.kv_len()};
    scores_ = scratch(program_.workspace, r_.q.dtype, sizes);
    spare_ = scratch(program_.workspace, r_.q.dtype, sizes);
  }

  Result<Program> build() {
    ATTNSCOPE_TRY(score_matmul());
    scale();
    if (r_.mask_kind == MaskKind::kBias) bias();
    if (masks(r_)) mask();
    softmax();
    ATTNSCOPE_TRY(value_matmul());
    return std::move(program_);
  }

 private:
  void add(std::string_view operation, std::vector<Operand> inputs, std::vector<Kernel> kernels) {
    program_.operations.push_back({operation, std::move(inputs), std::move(kernels)});
  }
  int64_t bytes() const { return scores_.bytes(); }
  int64_t elements() const { return scores_.view.numel(); }

  Status score_matmul() {
    const Operand q = input(From::kQ, r_.q), k = input(From::kK, r_.k);
    const MatmulShape shape{r_.batch(), r_.heads(), r_.k.size(1), r_.q_len(), r_.kv_len(), r_.head_dim()};
    ATTNSCOPE_ASSIGN(const auto matmul,
                     Matmul::make(shape, MatrixLayout::of(r_.q), MatrixLayout::transposed(r_.k),
                                  MatrixLayout::of(scores_.view), program_.threads));
    const size_t scratch_at = program_.workspace.reserve(static_cast<double>(matmul->scratch_bytes()));
    add("attnscope::matmul", {q, k},
        {{stable_name(matmul->kernel_name()), EventKind::kKernel, q.bytes() + k.bytes(), bytes(),
          2 * elements() * r_.head_dim(), "q·kᵀ",
          [matmul, q, k, to = scores_, scratch_at](const RunContext& c) {
            return matmul->run(c.at(q).data, c.at(k).data, c.at(to).data, c.workspace + scratch_at);
          }}});
    return {};
  }

  void scale() {
    const auto factor = static_cast<T>(r_.effective_scale());
    add("attnscope::mul", {scores_},
        {{typed("mul", r_.q.dtype), EventKind::kKernel, bytes(), bytes(), elements(),
          fmt::format("scores · {:.6g}", r_.effective_scale()),
          [factor, from = scores_, to = spare_](const RunContext& c) -> Status {
            scale_step<T>(c.at(from), factor, c.at(to), c.threads);
            return {};
          }}});
    std::swap(scores_, spare_);
  }

  void bias() {
    const Operand mask = input(From::kMask, r_.mask);
    add("attnscope::add", {scores_, mask},
        {{typed("add", r_.q.dtype), EventKind::kKernel, bytes() + mask.bytes(), bytes(), elements(),
          "scores + bias", [from = scores_, mask, to = spare_](const RunContext& c) -> Status {
            bias_step<T>(c.at(from), MaskAccess(c.at(mask)), c.at(to), c.threads);
            return {};
          }}});
    std::swap(scores_, spare_);
  }

  void mask() {
    const bool by_tensor = r_.mask_kind == MaskKind::kBool;
    const Operand mask = input(From::kMask, r_.mask);
    std::vector<Kernel> kernels;
    if (masking_ == Masking::kOutOfPlace) {
      kernels.push_back({stable_name("clone"), EventKind::kCopy, bytes(), bytes(), 0,
                         "masking out of place: the scores are copied first",
                         [from = scores_, to = spare_](const RunContext& c) -> Status {
                           copy_step(c.at(from), c.at(to), c.threads);
                           return {};
                         }});
      std::swap(scores_, spare_);
    }
    // The masked part is written; where a mask tensor decides, the scores under it are read and written back.
    const double kept = kept_scores(r_) * static_cast<double>(dtype_size(r_.q.dtype));
    const bool lengths = r_.lengths.has_kv_lengths();
    const int64_t read = by_tensor ? static_cast<int64_t>(kept) + mask.bytes() : 0;
    const int64_t written = by_tensor || lengths ? bytes() : bytes() - static_cast<int64_t>(kept);
    kernels.push_back({typed("masked_fill", r_.q.dtype), EventKind::kKernel, read, written, 0,
                       "−inf where masked; a row without keys becomes NaN in the softmax",
                       [at = scores_, mask, by_tensor](const RunContext& c) -> Status {
                         const MaskAccess keep(c.at(mask));
                         mask_step<T>(c.at(at), c.geometry, by_tensor ? &keep : nullptr, c.threads);
                         return {};
                       }});
    std::vector<Operand> inputs{scores_};
    if (by_tensor) inputs.push_back(mask);
    add(masking_ == Masking::kOutOfPlace ? "attnscope::masked_fill" : "attnscope::masked_fill_",
        std::move(inputs), std::move(kernels));
  }

  void softmax() {
    // Rows of 16-bit scores are widened whole: their maximum comes before their sum.
    const double row_bytes = static_cast<double>(sizeof(T)) * static_cast<double>(r_.kv_len());
    const size_t rows_at =
        program_.workspace.reserve(dtype_is_half(r_.q.dtype) ? row_bytes * program_.threads : 0.0);
    add("attnscope::softmax", {scores_},
        {{typed("softmax", r_.q.dtype), EventKind::kKernel, bytes(), bytes(), 4 * elements(), "",
          [from = scores_, to = spare_, rows_at](const RunContext& c) -> Status {
            softmax_step<T>(c.at(from), c.at(to), TensorView{}, reinterpret_cast<T*>(c.workspace + rows_at),
                            c.threads);
            return {};
          }}});
    std::swap(scores_, spare_);  // scores_ now holds the weights, spare_ the masked scores
  }

  Status value_matmul() {
    const Operand v = input(From::kV, r_.v);
    TensorView out =
        TensorView::contiguous(nullptr, r_.q.dtype, {r_.batch(), r_.heads(), r_.q_len(), r_.value_dim()});
    const MatmulShape shape{r_.batch(), r_.heads(), r_.v.size(1), r_.q_len(), r_.value_dim(), r_.kv_len()};
    // Outputs are not part of a plan: a product for dense ones is made now, others take the blocked one.
    ATTNSCOPE_ASSIGN(const auto matmul, OutputMatmul::make(shape, MatrixLayout::of(scores_.view),
                                                           MatrixLayout::of(r_.v), out, program_.threads));
    const size_t scratch_at = program_.workspace.reserve(static_cast<double>(matmul->scratch_bytes()));
    const bool select = masks(r_) || r_.mask_kind == MaskKind::kBias;
    const int64_t out_bytes = out.numel() * static_cast<int64_t>(dtype_size(out.dtype));
    add("attnscope::matmul", {scores_, v},
        {{stable_name(matmul->kernel_name()), EventKind::kKernel, bytes() + v.bytes() * (select ? 2 : 1),
          out_bytes, 2 * elements() * r_.value_dim(), select ? kSelectingProduct : "weights·v",
          [matmul, weights = scores_, scores = spare_, v, select, scratch_at](const RunContext& c) -> Status {
            if (select && !finite_step<T>(c.at(v), c.threads)) {
              select_matmul_step<T>(c.at(weights), c.at(scores), c.at(v), c.outputs.out, c.threads);
              return {};
            }
            return matmul->run(c.at(weights).data, c.at(v).data, c.outputs.out, c.workspace + scratch_at);
          },
          [matmul](const RunContext& c) { return stable_name(matmul->kernel_name_for(c.outputs.out)); }}});
    return {};
  }

  const Request& r_;
  Masking masking_;
  Program program_;
  Operand scores_, spare_;
};

}  // namespace

void refuse_beyond_formula(const Request& r, Refusals& refusals) {
  const char* use_math = "use math, efficient or flash";
  if (r.softcap > 0)
    refusals.add("softcap", fmt::format("softcap {:g} is no step of the formula", r.softcap), use_math);
  if (r.dropout.p > 0)
    refusals.add("dropout", fmt::format("dropout {:g} is no step of the formula", r.dropout.p), use_math);
  if (r.wants.lse) refusals.add("lse", "the log-sum-exp is not kept", use_math);
  if (r.lengths.packed())
    refusals.add("packed-sequences", "scores of packed sequences are not one matrix", use_math);
  if (r.paging.active()) refusals.add("paged-cache", "k and v in pages would have to be copied", use_math);
  if (r.sinks.data != nullptr) refusals.add("sinks", "attention sinks are not implemented");
  if (r.alibi_slopes.data != nullptr)
    refusals.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
  if (!r.score_program.empty()) refusals.add("score-program", "score programs are not implemented");
  if (r.limits.splits > 1)
    refusals.add("splits", fmt::format("cannot split the keys into {} parts", r.limits.splits),
                 "leave splits at 0");
  const double rows = dtype_is_half(r.q.dtype) ? 4.0 * static_cast<double>(r.kv_len()) : 0.0;
  refuse_if_too_big(r, 2 * score_bytes(r) + rows * plan_threads(r.limits), refusals);
}

Result<Program> formula_program(const Request& request, Masking masking) {
  if (request.q.dtype == DType::kF64) return FormulaBuilder<double>(request, masking).build();
  return FormulaBuilder<float>(request, masking).build();
}

}  // namespace attnscope::cpu
