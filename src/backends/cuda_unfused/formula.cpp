#include "backends/cuda_unfused/formula.h"

#include "attention/cost.h"
#include "backends/cuda_unfused/common.h"
#include "backends/cuda_unfused/products.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::cuda_unfused {
namespace {

bool masks(const Request& r) {
  return restricts(r) || r.mask_kind == MaskKind::kBool;
}

class FormulaBuilder {
 public:
  FormulaBuilder(const Request& request, Masking masking)
      : r_(request),
        masking_(masking),
        shape_(score_shape(request)),
        products_(request, request.q.dtype, program_) {
    program_.device = r_.q.device.index;
    program_.cost = base_cost(r_);
    elements_ = shape_.rows() * shape_.ld;
    bytes_ = elements_ * static_cast<int64_t>(dtype_size(r_.q.dtype));
    scores_ = program_.workspace.add(static_cast<size_t>(bytes_));
    spare_ = program_.workspace.add(static_cast<size_t>(bytes_));
    view_ = TensorView::contiguous(nullptr, r_.q.dtype, {r_.batch(), r_.heads(), r_.q_len(), r_.kv_len()});
  }

  Result<Program> build() {
    ATTNSCOPE_TRY(products_.scores(r_.q, r_.k, scores_, 1.0f));
    scale();
    if (r_.mask_kind == MaskKind::kBias) bias();
    if (masks(r_)) mask();
    softmax();
    ATTNSCOPE_TRY(products_.values(scores_, r_.v, "weights·v"));
    return std::move(program_);
  }

 private:
  Step& add(std::string_view name, int64_t read, int64_t written, int64_t flops, std::string note,
            std::function<Status(const RunContext&)> execute) {
    Step step;
    step.name = name;
    step.note = std::move(note);
    step.inputs = {view_};
    step.launches.push_back({EventKind::kKernel, read, written, flops, std::move(execute)});
    program_.steps.push_back(std::move(step));
    return program_.steps.back();
  }

  void scale() {
    add("attnscope::mul", bytes_, bytes_, elements_, fmt::format("scores · {:.6g}", r_.effective_scale()),
        [dtype = r_.q.dtype, n = elements_, from = scores_, to = spare_,
         factor = static_cast<float>(r_.effective_scale())](const RunContext& c) {
          return cuda::check(
              cuda_unfused::scale(c.at<void>(from), c.at<void>(to), dtype, n, factor, c.stream),
              "scale kernel");
        });
    std::swap(scores_, spare_);
  }

  void bias() {
    Step& step = add("attnscope::add_", bytes_, bytes_, elements_, "scores + bias",
                     [dtype = r_.q.dtype, shape = shape_, at = scores_](const RunContext& c) {
                       return cuda::check(
                           add_bias(c.at<void>(at), dtype, shape, broadcast_mask(c.request.mask), c.stream),
                           "bias kernel");
                     });
    step.inputs.push_back(r_.mask);
  }

  void mask() {
    const bool by_tensor = r_.mask_kind == MaskKind::kBool;
    const double kept = kept_scores(r_) * static_cast<double>(dtype_size(r_.q.dtype));
    const bool partial = by_tensor;
    const int64_t read = by_tensor ? static_cast<int64_t>(kept) : 0;
    const int64_t written = partial ? bytes_ : std::max<int64_t>(bytes_ - static_cast<int64_t>(kept), 0);
    const bool copies = masking_ == Masking::kOutOfPlace;
    const size_t from = scores_;
    if (copies) std::swap(scores_, spare_);
    Step& step = add(copies ? "attnscope::masked_fill" : "attnscope::masked_fill_", read, written, 0,
                     copies ? "masking out of place: the scores are copied device to device first"
                            : "−inf where masked; a row without keys becomes NaN in the softmax",
                     [dtype = r_.q.dtype, shape = shape_, at = scores_, by_tensor](const RunContext& c) {
                       const BroadcastMask keep =
                           by_tensor ? broadcast_mask(c.request.mask) : BroadcastMask{};
                       return cuda::check(
                           masked_fill(c.at<void>(at), dtype, shape, key_geometry(c.request), keep, c.stream),
                           "masking kernel");
                     });
    if (copies)
      step.launches.insert(
          step.launches.begin(),
          Launch{EventKind::kCopy, bytes_, bytes_, 0,
                 [from, to = scores_, bytes = static_cast<size_t>(bytes_)](const RunContext& c) {
                   return cuda::check(cudaMemcpyAsync(c.at<void>(to), c.at<void>(from), bytes,
                                                      cudaMemcpyDeviceToDevice, c.stream),
                                      "copy of the scores");
                 }});
    if (by_tensor) step.inputs.push_back(r_.mask);
  }

  void softmax() {
    add("attnscope::softmax", bytes_, bytes_, 4 * elements_, "",
        [dtype = r_.q.dtype, shape = shape_, from = scores_, to = spare_](const RunContext& c) {
          return cuda::check(
              cuda_unfused::softmax(c.at<void>(from), c.at<void>(to), dtype, shape, {}, c.stream),
              "softmax kernel");
        });
    std::swap(scores_, spare_);
  }

  const Request& r_;
  Masking masking_;
  ScoreShape shape_;
  Program program_;
  Products products_;
  int64_t elements_ = 0, bytes_ = 0;
  size_t scores_ = 0, spare_ = 0;
  TensorView view_;
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
  if (r.lengths.has_kv_lengths())
    refusals.add("kv-lengths", "keys past a length would reach the product as 0 · value", use_math);
  if (r.paging.active()) refusals.add("paged-cache", "k and v in pages would have to be copied", use_math);
  if (r.sinks.data != nullptr) refusals.add("sinks", "attention sinks are no step of the formula", use_math);
  if (r.alibi_slopes.data != nullptr)
    refusals.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
  if (!r.score_program.empty()) refusals.add("score-program", "score programs are not implemented");
  if (r.limits.splits > 1)
    refusals.add("splits", fmt::format("cannot split the keys into {} parts", r.limits.splits),
                 "leave splits at 0");
  if (r.limits.sm_count > 0)
    refusals.add("sm-count", fmt::format("cannot be held to {} multiprocessors", r.limits.sm_count),
                 "leave sm_count at 0");
  if (r.kv_len() == 0 || r.head_dim() == 0 || r.value_dim() == 0 || shape_is_empty(r))
    refusals.add("empty", "the formula needs at least one query, key and column", use_math);
  refuse_common(r, 2 * score_elements(r) * static_cast<double>(dtype_size(r.q.dtype)), refusals);
}

Result<Program> formula_program(const Request& request, Masking masking) {
  return FormulaBuilder(request, masking).build();
}

}  // namespace attnscope::cuda_unfused
