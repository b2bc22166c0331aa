// flash and efficient against the float64 oracle, on every instruction set that this processor has.

#include "attention/backend.h"
#include "backends/cpu_fused/isa.h"
#include "tensor/fill.h"
#include "tensor/reference.h"
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace attnscope {

const Backend& cpu_flash_backend();
const Backend& cpu_efficient_backend();

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Owns what a request points to.
struct Case {
  std::vector<Tensor> storage;
  Request request;
  Outputs outputs;
  std::string text;

  TensorView keep(Result<Tensor> t) {
    EXPECT_TRUE(t.has_value());
    storage.push_back(std::move(*t));
    return storage.back().view();
  }
  TensorView dense(DType t, std::initializer_list<int64_t> sizes) { return keep(Tensor::empty(t, sizes)); }
  TensorView ints(const std::vector<int64_t>& values) {
    const TensorView v = dense(DType::kI64, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), v.as<int64_t>());
    return v;
  }
  void make_outputs(TensorView out) {
    outputs.out = out;
    fill_constant(out, std::nan(""));
    if (!request.wants.lse) return;
    outputs.lse = dense(DType::kF32, {request.batch(), request.heads(), request.q_len()});
    fill_constant(outputs.lse, std::nan(""));
  }
};

struct Tolerance {
  double out, lse;
};
Tolerance tolerance(DType t) {
  switch (t) {
    case DType::kBF16: return {1.6e-2, 5e-4};
    case DType::kF16: return {2e-3, 1e-4};
    default: return {3e-6, 1e-5};
  }
}

std::string run(const Backend& backend, const Case& c) {
  const std::vector<Refusal> refused = backend.refusals(c.request);
  if (!refused.empty()) return "refused: " + refused.front().message;
  const auto plan = backend.plan(c.request);
  if (!plan) return plan.error().message;
  const Status status = (*plan)->run(c.request, c.outputs, {});
  return status ? std::string() : status.error().message;
}

// Largest allowed difference grows with the values that are averaged.
std::string compare(const Case& c, const ReferenceResult& expected, double value_scale = 1.0) {
  const Tolerance t = tolerance(c.request.q.dtype);
  const TensorView& out = c.outputs.out;
  size_t n = 0;
  for (int64_t b = 0; b < out.size(0); ++b)
    for (int64_t h = 0; h < out.size(1); ++h)
      for (int64_t i = 0; i < out.size(2); ++i) {
        const size_t row = static_cast<size_t>((b * out.size(1) + h) * out.size(2) + i);
        if (c.request.wants.lse) {
          const double want = expected.lse[row], got = read_element(c.outputs.lse, b, h, i);
          const bool same = std::isnan(want)   ? std::isnan(got)
                            : std::isinf(want) ? got == want
                                               : std::fabs(got - want) <= t.lse * (1 + std::fabs(want));
          if (!same)
            return "lse[" + std::to_string(b) + "," + std::to_string(h) + "," + std::to_string(i) + "] is " +
                   std::to_string(got) + ", not " + std::to_string(want);
        }
        for (int64_t e = 0; e < out.size(3); ++e, ++n) {
          const double want = expected.out[n], got = read_element(out, b, h, i, e);
          const bool same = std::isnan(want)
                                ? std::isnan(got)
                                : std::fabs(got - want) <= t.out * (value_scale + std::fabs(want));
          if (!same)
            return "out[" + std::to_string(b) + "," + std::to_string(h) + "," + std::to_string(i) + "," +
                   std::to_string(e) + "] is " + std::to_string(got) + ", not " + std::to_string(want);
        }
      }
  return "";
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t in(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return in(1, n) == 1; }
  template <typename T>
  T of(std::initializer_list<T> list) {
    return list.begin()[in(0, static_cast<int64_t>(list.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

// Any order of the dimensions in memory, gaps between elements, an odd start, sometimes stride 0.
TensorView any_layout(Case* c, Random* rng, DType t, const std::vector<int64_t>& sizes, bool may_repeat) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (rng->one_in(2))
    for (size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[static_cast<size_t>(rng->in(0, static_cast<int64_t>(i)))]);
  std::vector<int64_t> strides(sizes.size());
  int64_t step = rng->one_in(4) ? rng->in(1, 3) : 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = step;
    step *= std::max<int64_t>(1, sizes[order[k]]);
    if (rng->one_in(3)) step += rng->in(0, 5);
  }
  if (may_repeat && rng->one_in(4))
    strides[static_cast<size_t>(rng->in(0, static_cast<int64_t>(sizes.size()) - 1))] = 0;
  return c->keep(Tensor::strided(t, sizes, strides, rng->one_in(3) ? rng->in(0, 7) : 0));
}

void add_mask(Case* c, Random* rng) {
  Request& r = c->request;
  const std::vector<int64_t> full{r.batch(), r.heads(), r.q_len(), r.kv_len()};
  std::vector<int64_t> sizes(full.end() - rng->in(1, 4), full.end());
  for (int64_t& s : sizes)
    if (rng->one_in(3)) s = 1;
  if (rng->one_in(2)) {
    r.mask_kind = MaskKind::kBool;
    r.mask = any_layout(c, rng, DType::kBool, sizes, false);
    fill_bernoulli(r.mask, 17, 0.7);
  } else {
    r.mask_kind = MaskKind::kBias;
    r.mask = any_layout(c, rng, rng->of({DType::kF32, DType::kF16, DType::kBF16, DType::kF64}), sizes, false);
    fill_normal(r.mask, 18);
    if (rng->one_in(2)) {
      TensorView m = r.mask;
      for (int d = m.rank; d < 4; ++d) m.sizes[static_cast<size_t>(d)] = 1;
      for (int64_t n = 0; n < 20; ++n)
        write_element(r.mask, -kInf, rng->in(0, m.size(0) - 1), rng->in(0, m.size(1) - 1),
                      rng->in(0, m.size(2) - 1), rng->in(0, m.size(3) - 1));
    }
  }
  c->text += r.mask_kind == MaskKind::kBool ? " bool mask" : " bias";
}

void add_lengths(Case* c, Random* rng, int64_t batch, int64_t keys) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < batch; ++b) lengths.push_back(rng->in(0, keys));
  c->request.lengths.kv_lengths = c->ints(lengths);
  c->text += " lengths";
}

void add_packed(Case* c, Random* rng) {
  Request& r = c->request;
  std::vector<int64_t> q{0}, k{0};
  const int64_t n = rng->in(1, 5);
  for (int64_t i = 0; i < n; ++i) {
    q.push_back(rng->in(q.back(), r.q.size(2)));
    k.push_back(rng->in(k.back(), r.k.size(2)));
  }
  if (rng->one_in(2)) q.back() = r.q.size(2);
  r.lengths.cu_q = c->ints(q);
  r.lengths.cu_k = c->ints(k);
  c->text += " packed";
}

// k and v become pages of a cache, handed out in a scrambled order.
void add_pages(Case* c, Random* rng, int64_t batch, int64_t keys, int64_t k_heads, int64_t v_heads, int64_t e,
               int64_t ev) {
  Request& r = c->request;
  const DType t = r.q.dtype;
  const int64_t page = rng->of<int64_t>({1, 4, 16, 24}), per_batch = (keys + page - 1) / page;
  r.paging.page_size = page;
  r.k = any_layout(c, rng, t, {batch * per_batch, k_heads, page, e}, false);
  r.v = any_layout(c, rng, t, {batch * per_batch, v_heads, page, ev}, false);
  fill_normal(r.k, 2);
  fill_normal(r.v, 3);
  r.paging.block_table = c->dense(DType::kI32, {batch, per_batch});
  for (int64_t i = 0; i < batch * per_batch; ++i)
    r.paging.block_table.as<int32_t>()[i] = static_cast<int32_t>((i * 7 + 3) % (batch * per_batch));
  if (batch * per_batch % 7 == 0)
    for (int64_t i = 0; i < batch * per_batch; ++i)
      r.paging.block_table.as<int32_t>()[i] = static_cast<int32_t>(i);
  const int64_t append = rng->one_in(2) ? rng->in(1, std::min<int64_t>(5, per_batch * page)) : 0;
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < batch; ++b) lengths.push_back(rng->in(0, per_batch * page - append));
  r.lengths.kv_lengths = c->ints(lengths);
  if (append > 0) {
    r.paging.append_k = any_layout(c, rng, t, {batch, k_heads, append, e}, false);
    r.paging.append_v = any_layout(c, rng, t, {batch, v_heads, append, ev}, false);
    fill_normal(r.paging.append_k, 5);
    fill_normal(r.paging.append_v, 6);
  }
  c->text += " paged";
}

Case random_case(uint64_t seed) {
  Random rng(seed);
  Case c;
  c.storage.reserve(32);
  Request& r = c.request;
  const DType t = rng.of({DType::kF32, DType::kF32, DType::kF16, DType::kBF16, DType::kBF16});
  const int64_t k_heads = rng.in(1, 3), v_heads = rng.one_in(3) ? rng.in(1, 3) : k_heads;
  const int64_t heads = k_heads * v_heads * rng.in(1, 3);
  const int64_t len = rng.one_in(5) ? rng.in(100, 300) : rng.one_in(4) ? 1 : rng.in(1, 40);
  const int64_t keys = rng.one_in(4) ? rng.in(200, 700) : rng.in(1, 70);
  const int64_t e = rng.one_in(3) ? rng.of<int64_t>({32, 64, 80, 128}) : rng.in(1, 40);
  const int64_t ev = rng.one_in(2) ? e : rng.in(1, 70);
  const bool packed = rng.one_in(5);
  const int64_t batch = packed ? 1 : rng.in(1, 3);
  c.text = std::string(dtype_name(t)) + " B" + std::to_string(batch) + " H" + std::to_string(heads) + "/" +
           std::to_string(k_heads) + "/" + std::to_string(v_heads) + " L" + std::to_string(len) + " S" +
           std::to_string(keys) + " E" + std::to_string(e) + " Ev" + std::to_string(ev);
  r.q = any_layout(&c, &rng, t, {batch, heads, len, e}, true);
  fill_normal(r.q, 1);
  if (!packed && rng.one_in(5)) {
    add_pages(&c, &rng, batch, keys, k_heads, v_heads, e, ev);
  } else {
    r.k = any_layout(&c, &rng, t, {batch, k_heads, keys, e}, true);
    r.v = any_layout(&c, &rng, t, {batch, v_heads, keys, ev}, true);
    fill_normal(r.k, 2);
    fill_normal(r.v, 3);
    if (packed)
      add_packed(&c, &rng);
    else if (rng.one_in(5))
      add_lengths(&c, &rng, batch, keys);
  }
  r.causal = rng.of({CausalMode::kNone, CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight});
  if (rng.one_in(4)) r.window = {rng.in(-1, 30), rng.in(-1, 30)};
  if (rng.one_in(3)) add_mask(&c, &rng);
  if (rng.one_in(3)) r.scale = rng.of({-0.3, 0.0, 1.0, 0.05, 3.0});
  if (rng.one_in(5)) r.softcap = rng.of({0.5, 5.0, 30.0});
  if (rng.one_in(4))
    r.dropout = {rng.of({0.1, 0.5, 0.9, 1.0}), 42, static_cast<uint64_t>(rng.in(0, 1000)), nullptr};
  if (rng.one_in(5)) r.limits.splits = static_cast<int>(rng.in(1, 4));
  r.limits.threads = rng.one_in(2) ? 1 : 0;
  r.wants.lse = rng.one_in(2);
  c.make_outputs(any_layout(&c, &rng, t, {batch, heads, len, ev}, false));
  c.text += " scale " + std::to_string(r.effective_scale()) + " causal " +
            std::to_string(static_cast<int>(r.causal)) + " window " + std::to_string(r.window.left) + "," +
            std::to_string(r.window.right) + " softcap " + std::to_string(r.softcap) + " dropout " +
            std::to_string(r.dropout.p) + " splits " + std::to_string(r.limits.splits);
  return c;
}

// Each test runs once for every instruction set present.
class CpuFused : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { setenv("ATTNSCOPE_ISA", GetParam().c_str(), 1); }
  void TearDown() override { unsetenv("ATTNSCOPE_ISA"); }
  static std::vector<const Backend*> backends() { return {&cpu_flash_backend(), &cpu_efficient_backend()}; }

  static void check(Case& c, double value_scale = 1.0) {
    const ReferenceResult expected = reference_attention(c.request);
    for (const Backend* backend : backends()) {
      fill_constant(c.outputs.out, std::nan(""));
      if (c.request.wants.lse) fill_constant(c.outputs.lse, std::nan(""));
      EXPECT_EQ(run(*backend, c), "") << backend->name() << ": " << c.text;
      EXPECT_EQ(compare(c, expected, value_scale), "") << backend->name() << ": " << c.text;
    }
  }
};

std::vector<std::string> present() {
  std::vector<std::string> names;
  for (const cpu_fused::IsaInfo& isa : cpu_fused::known_isas())
    if (isa.supported) names.emplace_back(isa.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Isa, CpuFused, ::testing::ValuesIn(present()),
                         [](const auto& isa) { return isa.param; });

TEST_P(CpuFused, RandomRequestsMatchTheOracle) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Case c = random_case(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    // A tenth of the weights left means sums of ten times the values; a score of 50 is known to 50 roundings.
    const double p = c.request.dropout.p;
    const auto dim = static_cast<double>(c.request.head_dim());
    const bool aligned =
        c.request.q.stride(3) == 0 && c.request.k.stride(3) == 0;  // vectors all in one direction
    const double largest_score =
        std::fabs(c.request.effective_scale()) * 4 * (aligned ? 3 * dim : std::sqrt(dim));
    check(c, (p < 1.0 ? 1.0 / (1.0 - p) : 1.0) * (1.0 + largest_score / 4));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace attnscope
