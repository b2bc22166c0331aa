// math: the reference on the GPU. float32 throughout on plain FMA units, the mask rebuilt on every call, a
// softmax that guards rows without keys: for causal bf16 twenty kernels, step for step the published
// decomposition.

#include "attention/cost.h"
#include "backends/cuda_unfused/common.h"
#include "backends/cuda_unfused/products.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace attnscope {
namespace {

using namespace cuda_unfused;

int64_t dense_bytes(const TensorView& v, int64_t element) {
  return v.numel() * element;
}

TensorView dense_like(const TensorView& v, DType dtype, void* data) {
  TensorView dense =
      TensorView::contiguous(data, dtype, {v.size(0), v.size(1), v.size(2), v.size(3)}, v.device);
  return dense;
}

class MathBuilder {
 public:
  explicit MathBuilder(const Request& request)
      : r_(request), shape_(score_shape(request)), products_(request, DType::kF32, program_) {
    program_.device = r_.q.device.index;
    program_.cost = base_cost(r_);
    elements_ = shape_.rows() * shape_.ld;
    auto part = [&](int64_t n, int64_t element) {
      return program_.workspace.add(static_cast<size_t>(n * element));
    };
    q_ = part(r_.q.numel(), 4);
    k_ = part(r_.k.numel(), 4);
    v_ = part(r_.v.numel(), 4);
    scores_ = part(elements_, 4);
    weights_ = part(elements_, 4);
    removed_ = part(elements_, 1);
    row_empty_ = part(shape_.rows(), 1);
    scalars_ = part(4, 4);
    flag_ = part(1, 4);
    result_ = part(r_.batch() * r_.heads() * r_.q_len() * r_.value_dim(), 4);
    if (restricts(r_)) {
      mask_batches_ = r_.lengths.has_kv_lengths() ? r_.batch() : 1;
      const int64_t n = mask_batches_ * r_.q_len() * shape_.ld;
      mask_ = part(n, 1);
      bias_ = part(n, 4);
    }
    if (half()) cast_ = part(elements_, 2);
    view_ = TensorView::contiguous(nullptr, DType::kF32, {r_.batch(), r_.heads(), r_.q_len(), r_.kv_len()});
  }

  Result<Program> build() {
    if (shape_.rows() == 0) return std::move(program_);
    if (r_.kv_len() == 0) {
      no_keys();
      return std::move(program_);
    }
    to_f32("q");
    to_f32("k");
    to_f32("v");
    if (half()) mul("q");
    if (restricts(r_)) build_mask();
    if (half()) mul("k");
    ATTNSCOPE_TRY(score_product());
    if (r_.softcap > 0) softcap_step();
    if (restricts(r_)) add_mask();
    if (r_.mask_kind == MaskKind::kBool) add_bool_mask();
    if (r_.mask_kind == MaskKind::kBias) add_user_bias();
    safe_softmax();
    if (r_.dropout.p > 0) dropout_step();
    if (half()) cast_weights();
    if (r_.value_dim() == 0) return std::move(program_);
    ATTNSCOPE_TRY(products_.values_dense(scores_, v_, result_));
    to_out();
    return std::move(program_);
  }

 private:
  bool half() const { return r_.q.dtype != DType::kF32; }
  int64_t score_bytes() const { return elements_ * 4; }

  Step& add(std::string_view name, int64_t read, int64_t written, std::string note,
            std::function<Status(const RunContext&)> execute, int64_t flops = 0) {
    Step step;
    step.name = name;
    step.note = std::move(note);
    step.inputs = {view_};
    step.launches.push_back({EventKind::kKernel, read, written, flops, std::move(execute)});
    program_.steps.push_back(std::move(step));
    return program_.steps.back();
  }

  // √|scale| on either side keeps the product from over- and underflowing; the sign is on q.
  float factor_of(char tensor) const {
    const double root = std::sqrt(std::fabs(r_.effective_scale()));
    return static_cast<float>(tensor == 'q' && r_.effective_scale() < 0 ? -root : root);
  }

  // f32 tensors are multiplied on the way (q, k) or made dense (v): there is nothing to cast.
  void to_f32(const char* which) {
    const char tensor = *which;
    const TensorView& view = tensor == 'q' ? r_.q : tensor == 'k' ? r_.k : r_.v;
    const size_t to = tensor == 'q' ? q_ : tensor == 'k' ? k_ : v_;
    const float factor = half() || tensor == 'v' ? 1.0f : factor_of(tensor);
    const char* name = half() ? "attnscope::to" : tensor == 'v' ? "attnscope::contiguous" : "attnscope::mul";
    Step& step = add(
        name, dense_bytes(view, static_cast<int64_t>(dtype_size(view.dtype))), dense_bytes(view, 4),
        fmt::format("{} {}", which,
                    half()          ? "to f32"
                    : tensor == 'v' ? "dense"
                                    : "· √scale"),
        [tensor, to, factor, flag = flag_](const RunContext& c) {
          const Request& r = c.request;
          const TensorView& from = tensor == 'q' ? r.q : tensor == 'k' ? r.k : r.v;
          ConvertExtras extras;
          extras.factor = factor;
          if (tensor == 'q') extras.reset_flag = c.at<int>(flag);
          if (tensor == 'v') {
            // What a mask removes must not reach the product as 0 · NaN: see convert_out().
            extras.nonfinite_flag = c.at<int>(flag);
            const KeyGeometry g = key_geometry(r);
            extras.kv_lengths = g.kv_lengths;
            extras.kv_stride = g.kv_stride;
            extras.wide_lengths = g.wide_lengths;
          }
          return cuda::check(convert(from, dense_like(from, DType::kF32, c.at<void>(to)), extras, c.stream),
                             "cast kernel");
        });
    step.inputs = {view};
    step.inputs[0].data = nullptr;
  }

  void mul(const char* which) {
    const TensorView& view = *which == 'q' ? r_.q : r_.k;
    const size_t at = *which == 'q' ? q_ : k_;
    add("attnscope::mul", dense_bytes(view, 4), dense_bytes(view, 4), fmt::format("{} · √scale", which),
        [at, n = view.numel(), factor = factor_of(*which)](const RunContext& c) {
          const TensorView flat = TensorView::contiguous(c.at<void>(at), DType::kF32, {1, 1, 1, n});
          ConvertExtras extras;
          extras.factor = factor;
          return cuda::check(convert(flat, flat, extras, c.stream), "scale kernel");
        });
  }

  size_t scalar(int index) const { return scalars_ + static_cast<size_t>(index) * 4; }
  void fill_scalar_step(int index, float value) {
    add("attnscope::fill_", 0, 4, fmt::format("{:g}", value),
        [at = scalar(index), value](const RunContext& c) {
          return cuda::check(fill_scalar(c.at<float>(at), value, c.stream), "fill kernel");
        });
  }

  void build_mask() {
    const int64_t n = mask_batches_ * r_.q_len() * shape_.ld;
    add("attnscope::ones", 0, n, "bool mask", [at = mask_, n](const RunContext& c) {
      return cuda::check(fill_bytes(c.at<uint8_t>(at), n, 1, c.stream), "fill kernel");
    });
    add("attnscope::tril", n, n,
        r_.causal == CausalMode::kNone ? "window and lengths" : "keys up to the diagonal",
        [at = mask_, batches = mask_batches_, ld = shape_.ld](const RunContext& c) {
          return cuda::check(
              band(c.at<uint8_t>(at), batches, c.request.q_len(), ld, key_geometry(c.request), c.stream),
              "mask kernel");
        });
    fill_scalar_step(0, 0.0f);
    fill_scalar_step(1, -std::numeric_limits<float>::infinity());
    add("attnscope::where", n, n * 4, "bool to an additive bias",
        [mask = mask_, bias = bias_, n, zero = scalar(0), inf = scalar(1)](const RunContext& c) {
          return cuda::check(where_bias(c.at<uint8_t>(mask), c.at<float>(bias), n, c.at<float>(zero),
                                        c.at<float>(inf), c.stream),
                             "where kernel");
        });
  }

  // Without keys every row is empty: output 0, LSE −inf.
  void no_keys() {
    const int64_t n = r_.batch() * r_.heads() * r_.q_len() * r_.value_dim();
    auto zero = [](size_t at, int64_t bytes) {
      return [at, bytes](const RunContext& c) {
        return cuda::check(cudaMemsetAsync(c.at<void>(at), 0, static_cast<size_t>(bytes), c.stream),
                           "memset");
      };
    };
    Step& step = add("attnscope::zeros", 0, n * 4, "there are no keys", zero(result_, n * 4));
    step.launches[0].kind = EventKind::kFill;
    step.launches.push_back({EventKind::kFill, 0, 4, 0, zero(flag_, 4)});
    if (r_.wants.lse) softmax_step();
    if (n > 0) to_out();
  }

  Status score_product() {
    if (r_.head_dim() > 0 && r_.kv_len() > 0) return products_.scores_dense(q_, k_, scores_);
    Step& step =
        add("attnscope::zeros", 0, score_bytes(), "no columns to multiply: every score is 0",
            [at = scores_, bytes = score_bytes()](const RunContext& c) {
              return cuda::check(cudaMemsetAsync(c.at<void>(at), 0, static_cast<size_t>(bytes), c.stream),
                                 "memset");
            });
    step.launches[0].kind = EventKind::kFill;
    return {};
  }

  void softcap_step() {
    add("attnscope::softcap", score_bytes(), score_bytes(),
        fmt::format("{0:g} · tanh(scores / {0:g})", r_.softcap),
        [at = scores_, n = elements_, cap = static_cast<float>(r_.softcap)](const RunContext& c) {
          return cuda::check(softcap(c.at<void>(at), DType::kF32, n, cap, c.stream), "softcap kernel");
        });
  }

  void add_mask() {
    add("attnscope::add_", score_bytes(), score_bytes(), "scores + mask, in place",
        [at = scores_, bias = bias_, shape = shape_, per_batch = mask_batches_ > 1](const RunContext& c) {
          BroadcastMask mask;
          mask.data = c.at<float>(bias);
          mask.dtype = DType::kF32;
          mask.stride_b = per_batch ? shape.q_len * shape.ld : 0;
          mask.stride_i = shape.ld;
          mask.stride_j = 1;
          return cuda::check(add_bias(c.at<float>(at), DType::kF32, shape, mask, c.stream), "mask kernel");
        });
  }

  void add_bool_mask() {
    std::array<int64_t, 4> n{1, 1, 1, 1};
    for (int d = 0; d < r_.mask.rank; ++d)
      n[static_cast<size_t>(4 - r_.mask.rank) + static_cast<size_t>(d)] = r_.mask.size(d);
    const int64_t ld = padded(n[3]);
    const size_t bias = program_.workspace.add(static_cast<size_t>(n[0] * n[1] * n[2] * ld * 4));
    fill_scalar_step(0, 0.0f);
    fill_scalar_step(1, -std::numeric_limits<float>::infinity());
    add("attnscope::where", r_.mask.numel(), n[0] * n[1] * n[2] * ld * 4, "bool to an additive bias",
        [bias, n, ld, zero = scalar(0), inf = scalar(1)](const RunContext& c) {
          return cuda::check(
              where_bias_strided(broadcast_mask(c.request.mask), c.at<float>(bias), n[0], n[1], n[2], n[3],
                                 ld, c.at<float>(zero), c.at<float>(inf), c.stream),
              "where kernel");
        });
    add("attnscope::add_", score_bytes(), score_bytes(), "scores + mask, in place",
        [at = scores_, bias, shape = shape_, n, ld](const RunContext& c) {
          BroadcastMask mask;
          mask.data = c.at<float>(bias);
          mask.dtype = DType::kF32;
          mask.stride_b = n[0] > 1 ? n[1] * n[2] * ld : 0;
          mask.stride_h = n[1] > 1 ? n[2] * ld : 0;
          mask.stride_i = n[2] > 1 ? ld : 0;
          mask.stride_j = n[3] > 1 ? 1 : 0;
          return cuda::check(add_bias(c.at<float>(at), DType::kF32, shape, mask, c.stream), "mask kernel");
        });
  }

  void add_user_bias() {
    add("attnscope::add_", score_bytes(), score_bytes(), "scores + bias, in place",
        [at = scores_, shape = shape_](const RunContext& c) {
          return cuda::check(
              add_bias(c.at<float>(at), DType::kF32, shape, broadcast_mask(c.request.mask), c.stream),
              "bias kernel");
        });
  }

  void softmax_step() {
    add(
        "attnscope::softmax", score_bytes(), score_bytes(), r_.wants.lse ? "and the log-sum-exp" : "",
        [from = scores_, to = weights_, shape = shape_](const RunContext& c) {
          SoftmaxExtras extras;
          if (c.request.sinks.data) {
            extras.sinks = c.request.sinks.data;
            extras.sinks_dtype = c.request.sinks.dtype;
            extras.sinks_stride = c.request.sinks.stride(0);
          }
          if (c.request.wants.lse) {
            const TensorView& lse = c.outputs.lse;
            extras.lse = lse.as<float>();
            extras.lse_stride_b = lse.stride(0);
            extras.lse_stride_h = lse.stride(1);
            extras.lse_stride_i = lse.stride(2);
          }
          return cuda::check(softmax(c.at<void>(from), c.at<void>(to), DType::kF32, shape, extras, c.stream),
                             "softmax kernel");
        },
        4 * elements_);
  }

  // Softmax, then: which scores are −inf, which rows are all −inf, and 0 in their place. The result is in
  // scores_.
  void safe_softmax() {
    softmax_step();
    add("attnscope::isneginf", score_bytes(), elements_, "",
        [at = scores_, to = removed_, n = elements_](const RunContext& c) {
          return cuda::check(is_minus_inf(c.at<float>(at), c.at<uint8_t>(to), n, c.stream),
                             "isneginf kernel");
        });
    add("attnscope::all", elements_, shape_.rows(), "along rows",
        [from = removed_, to = row_empty_, shape = shape_](const RunContext& c) {
          return cuda::check(all_in_row(c.at<uint8_t>(from), c.at<uint8_t>(to), shape, c.stream),
                             "all kernel");
        });
    fill_scalar_step(2, 0.0f);
    add("attnscope::where", score_bytes() + shape_.rows(), score_bytes(), "0 in rows without keys",
        [empty = row_empty_, from = weights_, to = scores_, zero = scalar(2),
         shape = shape_](const RunContext& c) {
          return cuda::check(where_rows(c.at<uint8_t>(empty), c.at<float>(from), c.at<float>(to), shape,
                                        c.at<float>(zero), c.stream),
                             "where kernel");
        });
  }

  void dropout_step() {
    Step& step = add("attnscope::dropout", score_bytes(), score_bytes(), fmt::format("p {:g}", r_.dropout.p),
                     [at = scores_, shape = shape_](const RunContext& c) {
                       const Dropout& d = c.request.dropout;
                       return cuda::check(dropout(c.at<void>(at), DType::kF32, shape,
                                                  {d.p, d.seed, d.offset, d.seed_on_device}, c.stream),
                                          "dropout kernel");
                     });
    if (r_.dropout.p >= 1.0) {
      step.launches[0].kind = EventKind::kFill;
    }
  }

  void cast_weights() {
    add("attnscope::to", score_bytes(), elements_ * 2,
        "weights to the input's dtype: the second result, which nobody reads",
        [from = scores_, to = cast_, n = elements_, dtype = r_.q.dtype](const RunContext& c) {
          return cuda::check(cast_rows(c.at<float>(from), c.at<void>(to), dtype, n, c.stream), "cast kernel");
        });
  }

  void to_out() {
    const int64_t n = r_.batch() * r_.heads() * r_.q_len() * r_.value_dim();
    add("attnscope::to", n * 4, n * static_cast<int64_t>(dtype_size(r_.q.dtype)), "out to the input's dtype",
        [from = result_, flag = flag_, weights = scores_, removed = removed_,
         shape = shape_](const RunContext& c) {
          NonFiniteFix fix;
          fix.flag = c.at<int>(flag);
          fix.weights = c.at<float>(weights);
          fix.removed = c.at<uint8_t>(removed);
          fix.v = c.request.v;
          fix.shape = shape;
          const TensorView& out = c.outputs.out;
          return cuda::check(convert_out(dense_like(out, DType::kF32, c.at<void>(from)), out, fix, c.stream),
                             "cast kernel");
        });
  }

  const Request& r_;
  ScoreShape shape_;
  Program program_;
  Products products_;
  int64_t elements_ = 0, mask_batches_ = 0;
  size_t q_ = 0, k_ = 0, v_ = 0, scores_ = 0, weights_ = 0, removed_ = 0, row_empty_ = 0, scalars_ = 0,
         flag_ = 0, result_ = 0, mask_ = 0, bias_ = 0, cast_ = 0;
  TensorView view_;
};

class CudaMath final : public Backend {
 public:
  std::string_view name() const override { return "math"; }
  std::string_view description() const override {
    return "reference: f32 throughout on plain FMA units, mask rebuilt per call, safe softmax";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override { return cuda_unfused::unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& r) const override {
    Refusals refusals(name());
    if (r.paging.active())
      refusals.add("paged-cache", "k and v in pages would have to be copied", "use flash");
    if (r.alibi_slopes.data != nullptr)
      refusals.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
    if (!r.score_program.empty()) refusals.add("score-program", "score programs are not implemented");
    if (r.limits.splits > 1)
      refusals.add("splits", fmt::format("cannot split the keys into {} parts", r.limits.splits),
                   "leave splits at 0");
    if (r.limits.sm_count > 0)
      refusals.add("sm-count", fmt::format("cannot be held to {} multiprocessors", r.limits.sm_count),
                   "leave sm_count at 0");
    refuse_common(r, score_elements(r) * (9 + (r.q.dtype == DType::kF32 ? 0 : 2)), refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program, MathBuilder(request).build());
    return make_plan(std::move(program));
  }
};

}  // namespace

const Backend& cuda_math_backend() {
  static const CudaMath backend;
  return backend;
}

}  // namespace attnscope
