// float32 throughout (f64 stays f64), mask rebuilt on every call, softmax made safe for empty rows:
//
//   cast q, k, v · q·√|s|·sign · [ones, tril, (and mask), −inf, 0, where] · k·√|s| · q·kᵀ · (softcap) · +
//   mask · + bias · softmax, isneginf, all, 0, where · (dropout) · cast weights · weights·v · cast out
//
// The scale is split so that neither huge scores overflow before it nor tiny scales underflow. Casts vanish
// when the tensors are f32 already; a paged cache is gathered where the cast would be.

#include "math_program.h"

#include "paging.h"

#include "attention/cost.h"
#include "backends/cpu_common/matmul.h"
#include "backends/cpu_common/steps.h"
#include "backends/cpu_common/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace attnscope::cpu {
namespace {

using From = Operand::From;

bool has_interval(const Request& r) {
  return r.causal != CausalMode::kNone || r.window.active() || r.lengths.has_kv_lengths() ||
         r.lengths.packed();
}

// The mask's own sizes as four right-aligned dimensions.
std::array<int64_t, 4> mask_sizes(const TensorView& mask) {
  std::array<int64_t, 4> sizes{1, 1, 1, 1};
  const auto rank = static_cast<size_t>(mask.rank);
  for (size_t d = 0; d < rank; ++d) sizes[4 - rank + d] = mask.sizes[d];
  return sizes;
}

// What the rebuilt mask varies over.
std::array<int64_t, 4> keep_sizes(const Request& r) {
  std::array<int64_t, 4> sizes{1, 1, 1, 1};
  if (r.mask_kind == MaskKind::kBool) sizes = mask_sizes(r.mask);
  if (has_interval(r)) {
    sizes[2] = r.q_len();
    sizes[3] = r.kv_len();
    if (r.lengths.has_kv_lengths()) sizes[0] = r.batch();
  }
  return sizes;
}

template <typename T>
class MathBuilder {
 public:
  explicit MathBuilder(const Request& request)
      : r_(request), type_(sizeof(T) == 4 ? DType::kF32 : DType::kF64) {
    program_.threads = plan_threads(r_.limits);
    program_.cost = base_cost(r_);
    half_ = r_.q.dtype != type_;
  }

  Result<Program> build() {
    if (r_.paging.append_k.data != nullptr) append();
    q_ = cast("attnscope::to", input(From::kQ, r_.q));
    k_ = r_.paging.active() ? gather(From::kK, r_.k) : cast("attnscope::to", input(From::kK, r_.k));
    v_ = r_.paging.active() ? gather(From::kV, r_.v) : cast("attnscope::to", input(From::kV, r_.v));
    const double scale = r_.effective_scale(), root = std::sqrt(std::fabs(scale));
    q_ = scaled(q_, static_cast<T>(scale < 0 ? -root : root), "q");
    if (has_interval(r_) || r_.mask_kind == MaskKind::kBool) build_mask();
    k_ = scaled(k_, static_cast<T>(root), "k");
    ATTNSCOPE_TRY(score_matmul());
    if (r_.softcap > 0) softcap();
    if (mask_) add_bias(*mask_, "scores + mask, in place; −inf selects");
    if (r_.mask_kind == MaskKind::kBias) add_bias(input(From::kMask, r_.mask), "scores + bias, in place");
    safe_softmax();
    if (r_.dropout.p > 0) dropout();
    ATTNSCOPE_TRY(value_matmul());
    return std::move(program_);
  }

 private:
  void add(std::string_view operation, std::vector<Operand> inputs, std::vector<Kernel> kernels) {
    program_.operations.push_back({operation, std::move(inputs), std::move(kernels)});
  }
  std::string_view typed(const char* step) const {
    return stable_name(fmt::format("{}_{}", step, dtype_name(type_)));
  }
  Operand make(DType dtype, std::array<int64_t, 4> sizes) {
    return scratch(program_.workspace, dtype, sizes);
  }
  static std::array<int64_t, 4> sizes_of(const Operand& o) { return o.view.sizes; }

  void append() {
    for (const auto& [from, to, view, cache] :
         {std::tuple{From::kAppendK, From::kK, &r_.paging.append_k, &r_.k},
          std::tuple{From::kAppendV, From::kV, &r_.paging.append_v, &r_.v}}) {
      const Operand rows = input(from, *view), into = input(to, *cache);
      add("attnscope::append_to_cache", {rows, into},
          {{stable_name(fmt::format("append_{}", dtype_name(cache->dtype))), EventKind::kKernel, rows.bytes(),
            rows.bytes(), 0, "new keys or values into the paged cache",
            [rows, into](const RunContext& c) -> Status {
              append_step(c.request, c.at(rows), c.at(into), c.threads);
              return {};
            }}});
    }
  }

  Operand gather(From from, const TensorView& cache) {
    const Operand pages = input(from, cache);
    const Operand dense = make(type_, {r_.batch(), cache.size(1), r_.kv_len(), cache.size(3)});
    const int64_t read = dense.view.numel() * static_cast<int64_t>(dtype_size(cache.dtype));
    add("attnscope::gather_pages", {pages},
        {{stable_name(fmt::format("gather_{}_{}", dtype_name(cache.dtype), dtype_name(type_))),
          EventKind::kKernel, read, dense.bytes(), 0, "the cache's pages made one tensor",
          [pages, dense](const RunContext& c) -> Status {
            gather_step<T>(c.request, c.at(pages), c.at(dense), c.threads);
            return {};
          }}});
    return dense;
  }

  Operand cast(std::string_view operation, const Operand& from) {
    if (!half_) return from;
    const Operand to = make(type_, sizes_of(from));
    add(operation, {from}, {cast_kernel(from, to, "")});
    return to;
  }
  Kernel cast_kernel(const Operand& from, const Operand& to, std::string note) {
    return {stable_name(fmt::format("cast_{}_{}", dtype_name(from.view.dtype), dtype_name(to.view.dtype))),
            EventKind::kKernel,
            from.bytes(),
            to.bytes(),
            0,
            std::move(note),
            [from, to](const RunContext& c) -> Status {
              scale_step<T>(c.at(from), T{1}, c.at(to), c.threads);
              return {};
            }};
  }

  Operand scaled(const Operand& from, T factor, const char* what) {
    const Operand to = make(type_, sizes_of(from));
    add("attnscope::mul", {from},
        {{typed("mul"), EventKind::kKernel, from.bytes(), to.bytes(), from.view.numel(),
          fmt::format("{} · {:.6g}", what, static_cast<double>(factor)),
          [from, to, factor](const RunContext& c) -> Status {
            scale_step<T>(c.at(from), factor, c.at(to), c.threads);
            return {};
          }}});
    return to;
  }

  Operand scalar(double value) {
    const Operand to = make(type_, {1, 1, 1, 1});
    add("attnscope::scalar_tensor", {}, {fill_scalar(to, value)});
    return to;
  }
  Kernel fill_scalar(const Operand& to, double value) {
    return {typed("fill"),
            EventKind::kKernel,
            0,
            to.bytes(),
            0,
            fmt::format("one element, {:g}", value),
            [to, value](const RunContext& c) -> Status {
              *c.at(to).template as<T>() = static_cast<T>(value);
              return {};
            }};
  }

  void build_mask() {
    const Operand user = input(From::kMask, r_.mask);
    const bool by_tensor = r_.mask_kind == MaskKind::kBool;
    Operand keep = user;
    if (has_interval(r_)) {
      keep = make(DType::kBool, keep_sizes(r_));
      add("attnscope::ones", {keep},
          {{stable_name("fill_bool"), EventKind::kKernel, 0, keep.bytes(), 0, "",
            [keep](const RunContext& c) -> Status {
              ones_step(c.at(keep), c.threads);
              return {};
            }}});
      const bool plain = r_.causal != CausalMode::kNone && !r_.window.active();
      add(plain ? "attnscope::tril" : "attnscope::band", {keep},
          {{stable_name(plain ? "tril_bool" : "band_bool"), EventKind::kKernel, 0, keep.bytes() / 2, 0,
            "the keys that causal mode, window and lengths leave to each row",
            [keep](const RunContext& c) -> Status {
              interval_step(c.geometry, c.at(keep), c.threads);
              return {};
            }}});
      if (by_tensor)
        add("attnscope::logical_and", {keep, user},
            {{stable_name("and_bool"), EventKind::kKernel, keep.bytes() + user.bytes(), keep.bytes(), 0, "",
              [keep, user](const RunContext& c) -> Status {
                and_step(MaskAccess(c.at(user)), c.at(keep), c.threads);
                return {};
              }}});
    }
    const Operand neg_inf = scalar(-std::numeric_limits<double>::infinity()), zero = scalar(0.0);
    const Operand bias = make(type_, keep_sizes(r_));
    add("attnscope::where", {keep, zero, neg_inf},
        {{typed("where"), EventKind::kKernel, keep.bytes(), bias.bytes(), 0, "bool to additive mask",
          [keep, neg_inf, zero, bias](const RunContext& c) -> Status {
            where_step<T>(MaskAccess(c.at(keep)), *c.at(neg_inf).template as<T>(),
                          *c.at(zero).template as<T>(), c.at(bias), c.threads);
            return {};
          }}});
    mask_ = bias;
  }

  Status score_matmul() {
    const std::array<int64_t, 4> sizes{r_.batch(), r_.heads(), r_.q_len(), r_.kv_len()};
    scores_ = make(type_, sizes);
    const MatmulShape shape{sizes[0], sizes[1], k_.view.size(1), sizes[2], sizes[3], r_.head_dim()};
    ATTNSCOPE_ASSIGN(const auto matmul,
                     Matmul::make(shape, MatrixLayout::of(q_.view), MatrixLayout::transposed(k_.view),
                                  MatrixLayout::of(scores_.view), program_.threads));
    const size_t at = program_.workspace.reserve(static_cast<double>(matmul->scratch_bytes()));
    add("attnscope::matmul", {q_, k_},
        {{stable_name(matmul->kernel_name()), EventKind::kKernel, q_.bytes() + k_.bytes(), scores_.bytes(),
          2 * scores_.view.numel() * r_.head_dim(), "q·kᵀ",
          [matmul, q = q_, k = k_, to = scores_, at](const RunContext& c) {
            return matmul->run(c.at(q).data, c.at(k).data, c.at(to).data, c.workspace + at);
          }}});
    return {};
  }

  void softcap() {
    add("attnscope::softcap", {scores_},
        {{typed("softcap"), EventKind::kKernel, scores_.bytes(), scores_.bytes(), 20 * scores_.view.numel(),
          fmt::format("{0:g}·tanh(x/{0:g})", r_.softcap),
          [at = scores_, cap = static_cast<T>(r_.softcap)](const RunContext& c) -> Status {
            softcap_step<T>(c.at(at), cap, c.threads);
            return {};
          }}});
  }

  void add_bias(const Operand& bias, const char* note) {
    add("attnscope::add_", {scores_, bias},
        {{typed("add"), EventKind::kKernel, scores_.bytes() + bias.bytes(), scores_.bytes(),
          scores_.view.numel(), note, [at = scores_, bias](const RunContext& c) -> Status {
            bias_step<T>(c.at(at), MaskAccess(c.at(bias)), c.at(at), c.threads);
            return {};
          }}});
  }

  void safe_softmax() {
    const auto sizes = sizes_of(scores_);
    weights_ = make(type_, sizes);
    // The flags die with the softmax, then the narrowed weights of half-precision tensors take their place.
    flags_ = make(half_ ? r_.q.dtype : DType::kBool, sizes);
    const Operand flags = reuse(flags_, DType::kBool, sizes);
    const Operand rows = make(DType::kBool, {sizes[0], sizes[1], sizes[2], 1});
    const Operand zero = make(type_, {1, 1, 1, 1});
    std::vector<Kernel> kernels;
    kernels.push_back(
        {typed("softmax"), EventKind::kKernel, scores_.bytes(), weights_.bytes(), 4 * scores_.view.numel(),
         "", [from = scores_, to = weights_](const RunContext& c) -> Status {
           softmax_step<T>(c.at(from), c.at(to), c.request.wants.lse ? c.outputs.lse : TensorView{}, nullptr,
                           c.threads);
           return {};
         }});
    kernels.push_back({typed("isneginf"), EventKind::kKernel, scores_.bytes(), flags.bytes(), 0, "",
                       [from = scores_, flags](const RunContext& c) -> Status {
                         is_neg_inf_step<T>(c.at(from), c.at(flags), c.threads);
                         return {};
                       }});
    kernels.push_back({stable_name("all_bool"), EventKind::kKernel, flags.bytes(), rows.bytes(), 0,
                       "rows without any key", [flags, rows](const RunContext& c) -> Status {
                         all_step(c.at(flags), c.at(rows), c.threads);
                         return {};
                       }});
    kernels.push_back(fill_scalar(zero, 0.0));
    kernels.push_back({typed("where"), EventKind::kKernel, rows.bytes(), 0, 0,
                       "weight 0 in rows without any key",
                       [rows, zero, weights = weights_](const RunContext& c) -> Status {
                         zero_rows_step(c.at(rows), static_cast<double>(*c.at(zero).template as<T>()),
                                        c.at(weights), c.threads);
                         return {};
                       }});
    add("attnscope::safe_softmax", {scores_}, std::move(kernels));
  }

  void dropout() {
    add("attnscope::dropout", {weights_},
        {{typed("dropout"), EventKind::kKernel, weights_.bytes(), weights_.bytes(), weights_.view.numel(),
          fmt::format("p = {:g}", r_.dropout.p), [at = weights_](const RunContext& c) -> Status {
            const Dropout& d = c.request.dropout;
            const uint64_t* seed = d.seed_on_device;
            dropout_step<T>(c.at(at), d.p, seed != nullptr ? seed[0] : d.seed,
                            seed != nullptr ? seed[1] : d.offset, c.threads);
            return {};
          }}});
  }

  Status value_matmul() {
    if (half_)
      add("attnscope::to", {weights_},
          {cast_kernel(weights_, reuse(flags_, r_.q.dtype, sizes_of(weights_)),
                       "the second output, attention weights, which nobody reads")});
    const std::array<int64_t, 4> sizes{r_.batch(), r_.heads(), r_.q_len(), r_.value_dim()};
    const TensorView dense = TensorView::contiguous(nullptr, type_, sizes);
    const Operand out = half_ ? make(type_, sizes) : Operand{From::kOut, 0, dense};
    if (r_.dropout.p >= 1)
      drop_all(out);
    else
      ATTNSCOPE_TRY(weigh_values(out, dense));
    if (half_) {
      const Operand result{From::kOut, 0, TensorView::contiguous(nullptr, r_.q.dtype, sizes)};
      add("attnscope::to", {out}, {cast_kernel(out, result, "")});
    }
    return {};
  }

  void drop_all(const Operand& out) {
    add("attnscope::zeros", {weights_},
        {{typed("fill"), EventKind::kKernel, weights_.bytes(), out.bytes(), 0,
          "dropout 1: no value has a weight", [weights = weights_, out](const RunContext& c) -> Status {
            drop_all_step<T>(c.at(weights), c.at(out), c.threads);
            return {};
          }}});
  }

  Status weigh_values(const Operand& out, const TensorView& dense) {
    const auto& sizes = dense.sizes;
    const MatmulShape shape{sizes[0], sizes[1], v_.view.size(1), sizes[2], sizes[3], r_.kv_len()};
    ATTNSCOPE_ASSIGN(const auto matmul,
                     OutputMatmul::make(shape, MatrixLayout::of(weights_.view), MatrixLayout::of(v_.view),
                                        dense, program_.threads));
    const size_t at = program_.workspace.reserve(static_cast<double>(matmul->scratch_bytes()));
    const bool select = mask_.has_value() || r_.mask_kind == MaskKind::kBias;
    add("attnscope::matmul", {weights_, v_},
        {{stable_name(matmul->kernel_name()), EventKind::kKernel,
          weights_.bytes() + v_.bytes() * (select ? 2 : 1), out.bytes(),
          2 * scores_.view.numel() * r_.value_dim(), select ? kSelectingProduct : "weights·v",
          [matmul, weights = weights_, scores = scores_, v = v_, out, select,
           at](const RunContext& c) -> Status {
            if (select && !finite_step<T>(c.at(v), c.threads)) {
              select_matmul_step<T>(c.at(weights), c.at(scores), c.at(v), c.at(out), c.threads);
              return {};
            }
            return matmul->run(c.at(weights).data, c.at(v).data, c.at(out), c.workspace + at);
          },
          [matmul, out](const RunContext& c) { return stable_name(matmul->kernel_name_for(c.at(out))); }}});
    return {};
  }

  const Request& r_;
  DType type_;
  bool half_ = false;
  Program program_;
  Operand q_, k_, v_, scores_, weights_, flags_;
  std::optional<Operand> mask_;
};

}  // namespace

double math_bytes(const Request& r) {
  const double type = r.q.dtype == DType::kF64 ? 8 : 4;
  const double rows =
      static_cast<double>(r.batch()) * static_cast<double>(r.heads()) * static_cast<double>(r.q_len());
  const double kv_rows = static_cast<double>(r.batch()) * static_cast<double>(r.kv_len());
  const double score_width = 2 * type + (dtype_is_half(r.q.dtype) ? 2 : 1);
  double bytes = rows * static_cast<double>(r.kv_len()) * score_width;
  bytes +=
      2 * type * rows * static_cast<double>(r.head_dim()) + type * rows * static_cast<double>(r.value_dim());
  bytes += type * kv_rows *
           (2 * static_cast<double>(r.k.size(1)) * static_cast<double>(r.head_dim()) +
            static_cast<double>(r.v.size(1)) * static_cast<double>(r.value_dim()));
  double keep = type + 1;
  for (const int64_t size : keep_sizes(r)) keep *= static_cast<double>(size);
  return bytes + keep;
}

Result<Program> math_program(const Request& request) {
  if (request.q.dtype == DType::kF64) return MathBuilder<double>(request).build();
  return MathBuilder<float>(request).build();
}

}  // namespace attnscope::cpu
