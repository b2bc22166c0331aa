// flash and efficient against the float64 oracle, on every instruction set that this processor has.

#include "attention/backend.h"
#include "backends/cpu_common/threads.h"
#include "backends/cpu_fused/isa.h"
#include "support/thinning.h"
#include "tensor/fill.h"
#include "tensor/reference.h"
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
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

std::vector<std::string> present_isas() {
  std::vector<std::string> names;
  for (const cpu::IsaInfo& isa : cpu::known_isas())
    if (isa.supported) names.emplace_back(isa.name);
  return names;
}

struct WithIsa {
  explicit WithIsa(const std::string& name) { setenv("ATTNSCOPE_CPU_ISA", name.c_str(), 1); }
  ~WithIsa() { unsetenv("ATTNSCOPE_CPU_ISA"); }
};

const std::vector<const Backend*>& fused_backends() {
  static const std::vector<const Backend*> both{&cpu_flash_backend(), &cpu_efficient_backend()};
  return both;
}

// Both backends on every instruction set, outputs poisoned before each run.
void check(Case& c, double value_scale = 1.0) {
  const ReferenceResult expected = reference_attention(c.request);
  for (const std::string& name : present_isas()) {
    const WithIsa isa(name);
    for (const Backend* backend : fused_backends()) {
      fill_constant(c.outputs.out, std::nan(""));
      if (c.request.wants.lse) fill_constant(c.outputs.lse, std::nan(""));
      EXPECT_EQ(run(*backend, c), "") << name << " " << backend->name() << ": " << c.text;
      EXPECT_EQ(compare(c, expected, value_scale), "") << name << " " << backend->name() << ": " << c.text;
    }
  }
}

Case plain(DType t, int64_t batch, int64_t heads, int64_t kv_heads, int64_t len, int64_t keys, int64_t e,
           int64_t ev) {
  Case c;
  c.storage.reserve(16);
  c.request.q = c.dense(t, {batch, heads, len, e});
  c.request.k = c.dense(t, {batch, kv_heads, keys, e});
  c.request.v = c.dense(t, {batch, kv_heads, keys, ev});
  fill_normal(c.request.q, 1);
  fill_normal(c.request.k, 2);
  fill_normal(c.request.v, 3);
  c.request.wants.lse = true;
  c.make_outputs(c.dense(t, {batch, heads, len, ev}));
  c.text = std::string(dtype_name(t)) + " L" + std::to_string(len) + " S" + std::to_string(keys);
  return c;
}

#if defined(__SANITIZE_THREAD__)
// The oracle's own OpenMP loop would be reported (its runtime is not instrumented): one thread for it, while
// the backends keep the count read before.
[[maybe_unused]] const bool kOracleAlone = [] {
  cpu::process_threads();
  omp_set_num_threads(1);
  return true;
}();
#endif

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(CpuFused, RandomRequestsMatchTheOracle) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    if (testing::thinned_out(seed, 6)) continue;
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
    if (::testing::Test::HasFailure()) return;
  }
}

// Few query rows: K and V are read where they lie. One to eight rows a K head, head sizes that fill registers
// and others, keys that fill blocks and not, dense and in pages.
TEST(CpuFused, FewRowsMatchTheOracle) {
  uint64_t n = 0;
  for (const DType t : kTypes)
    for (const int64_t group : {1, 2, 3, 4, 7})
      for (const int64_t e : {64, 128, 200})
        for (const int64_t keys : {1, 33, 256, 545}) {
          if (testing::thinned_out(++n, 5)) continue;
          const int64_t ev = n % 3 == 0 ? 72 : e, page = n % 2 == 0 ? 16 : 24,
                        pages = (keys + page - 1) / page;
          Case dense = plain(t, 1, 2 * group, 2, 1, keys, e, ev);
          check(dense);
          Case paged =
              plain(t, pages, 2 * group, 2, 1, page, e, ev);  // the cache is what plain calls K and V
          paged.request.q = paged.dense(t, {1, 2 * group, 1, e});
          fill_normal(paged.request.q, 1);
          paged.make_outputs(paged.dense(t, {1, 2 * group, 1, ev}));
          paged.request.paging.page_size = page;
          paged.request.paging.block_table = paged.dense(DType::kI32, {1, pages});
          for (int64_t i = 0; i < pages; ++i)
            paged.request.paging.block_table.as<int32_t>()[i] = static_cast<int32_t>(pages - 1 - i);
          paged.request.lengths.kv_lengths = paged.ints({keys});
          paged.text = "pages of " + std::to_string(page) + ", S" + std::to_string(keys);
          check(paged);
        }
}

TEST(CpuFused, MaskedNanNeverMatters) {
  for (const DType t : kTypes)
    for (const int64_t len : {1, 3, 40}) {  // streamed and packed
      Case c = plain(t, 2, 2, 1, len, 300, 24, 40);
      c.request.lengths.kv_lengths = c.ints({130, 7});
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t j = b == 0 ? 130 : 7; j < 300; ++j) {
          write_element(c.request.k, std::nan(""), b, 0, j, 3);
          write_element(c.request.v, j % 2 ? std::nan("") : kInf, b, 0, j, 5);
        }
      check(c);
      c.request.lengths = {};
      c.request.mask_kind = MaskKind::kBool;
      c.request.mask = c.dense(DType::kBool, {2, 1, 1, 300});
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t j = 0; j < 300; ++j) c.request.mask.as<bool>()[b * 300 + j] = j < (b == 0 ? 130 : 7);
      check(c);
    }
}

TEST(CpuFused, NanBehindTheDiagonalNeverMatters) {
  for (const DType t : kTypes) {
    Case c = plain(t, 1, 2, 2, 70, 70, 32, 33);
    c.request.causal = CausalMode::kTopLeft;
    write_element(c.request.k, std::nan(""), 0, 0, 69, 0);
    write_element(c.request.v, std::nan(""), 0, 1, 50, 32);
    check(c);  // rows before 69 (and 50) stay finite, those from there on are NaN
  }
}

TEST(CpuFused, AKeptNanMakesItsRowNan) {
  for (const DType t : kTypes)
    for (const int64_t len : {2, 30}) {
      Case c = plain(t, 1, 1, 1, len, 90, 16, 16);
      write_element(c.request.q, std::nan(""), 0, 0, 1, 2);
      check(c);
      EXPECT_TRUE(std::isnan(read_element(c.outputs.lse, 0, 0, 1)));
      EXPECT_FALSE(std::isnan(read_element(c.outputs.lse, 0, 0, 0)));
      c.request.mask_kind = MaskKind::kBool;  // the only kept key has the NaN
      c.request.mask = c.dense(DType::kBool, {90});
      std::fill_n(c.request.mask.as<bool>(), 90, false);
      c.request.mask.as<bool>()[33] = true;
      check(c);
    }
}

TEST(CpuFused, EmptyRowsAreZeroWithLseMinusInfinity) {
  for (const DType t : kTypes) {
    Case c = plain(t, 1, 2, 1, 5, 2, 8, 8);
    c.request.causal = CausalMode::kLowerRight;  // the first three rows see nothing
    check(c);
    EXPECT_EQ(read_element(c.outputs.lse, 0, 0, 2), -kInf);
    EXPECT_EQ(read_element(c.outputs.out, 0, 1, 2, 7), 0.0);
  }
}

TEST(CpuFused, ZeroSizes) {
  for (const DType t : kTypes) {
    for (const auto& [len, keys, e, ev] : std::vector<std::array<int64_t, 4>>{
             {3, 0, 8, 8}, {0, 3, 8, 8}, {3, 5, 0, 8}, {3, 5, 8, 0}, {40, 0, 8, 8}, {40, 5, 0, 20}}) {
      Case c = plain(t, 2, 2, 1, len, keys, e, ev);
      check(c);
    }
    Case c = plain(t, 0, 2, 1, 4, 4, 8, 8);
    check(c);
  }
}

TEST(CpuFused, ScalesThatOverflowOrVanish) {
  {  // the product alone is 1e40
    Case c = plain(DType::kF32, 1, 1, 1, 1, 2, 1, 1);
    fill_constant(c.request.q, 1e20);
    write_element(c.request.k, 1e20, 0, 0, 0, 0);
    write_element(c.request.k, 9e19, 0, 0, 1, 0);
    c.request.scale = 1e-30;
    check(c);
    EXPECT_EQ(read_element(c.outputs.out, 0, 0, 0, 0), read_element(c.request.v, 0, 0, 0, 0));
  }
  {  // f16 products of 4e6
    Case c = plain(DType::kF16, 1, 1, 1, 1, 2, 64, 64);
    fill_constant(c.request.q, 256);
    fill_constant(c.request.k, 256);
    for (int64_t e = 0; e < 64; ++e) write_element(c.request.k, 255.75, 0, 0, 1, e);
    check(c);
    EXPECT_EQ(read_element(c.outputs.lse, 0, 0, 0), 524288.0);
  }
  for (const double scale : {1e30, -1e30, 0.0, -0.0, 1e-300, -1.0}) {
    Case c = plain(DType::kF32, 1, 2, 2, 20, 30, 16, 16);
    c.request.scale = scale;
    c.request.wants.lse = std::fabs(scale) < 1e3;  // 1e30 times a rounding is no figure to compare
    check(c);
  }
}

TEST(CpuFused, AFiniteMinimumIsNotAMask) {
  for (const DType bias : {DType::kF32, DType::kF64, DType::kBF16}) {
    Case c = plain(DType::kF32, 1, 1, 1, 3, 3, 4, 4);
    fill_constant(c.request.q, 0.0);
    c.request.mask_kind = MaskKind::kBias;
    c.request.mask = c.dense(bias, {3, 3});
    fill_constant(c.request.mask, 1.0);
    const double minimum = bias == DType::kF64    ? std::numeric_limits<double>::lowest()
                           : bias == DType::kBF16 ? -3.3895313892515355e38
                                                  : std::numeric_limits<float>::lowest();
    for (int64_t j = 0; j < 3; ++j) write_element(c.request.mask, minimum, 0, j);
    c.request.wants.lse = bias != DType::kF64;  // −1.8e308 has no f32
    check(c);
  }
}

TEST(CpuFused, PartsOfTheKeysGiveTheSameResult) {
  Case c = plain(DType::kF32, 1, 4, 2, 2, 3000, 64, 64);
  for (const int splits : {1, 2, 7, 50}) {
    c.request.limits.splits = splits;
    check(c);
  }
}

TEST(CpuFused, TheResultDoesNotDependOnTheThreadCount) {
  Case c = plain(DType::kF32, 2, 4, 2, 90, 500, 32, 32);
  c.request.limits.splits = 3;
  std::vector<float> first;
  for (const int threads : {1, 2, 4}) {
    c.request.limits.threads = threads;
    ASSERT_EQ(run(cpu_flash_backend(), c), "");
    const float* out = c.outputs.out.as<float>();
    const std::vector<float> now(out, out + c.outputs.out.numel());
    if (first.empty()) first = now;
    EXPECT_EQ(now, first) << threads << " threads";
  }
}

TEST(CpuFused, OnePlanRunsFromManyThreads) {
  Case c = plain(DType::kBF16, 1, 2, 2, 60, 200, 32, 32);
  c.request.limits.threads = 2;
  const ReferenceResult expected = reference_attention(c.request);
  const auto plan = cpu_flash_backend().plan(c.request);
  ASSERT_TRUE(plan.has_value());
  std::vector<Case> cases;
  for (int i = 0; i < 4; ++i) {
    cases.push_back(plain(DType::kBF16, 1, 2, 2, 60, 200, 32, 32));
    cases.back().request.limits.threads = 2;
  }
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (Case& mine : cases)
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n)
        if (!(*plan)->run(mine.request, mine.outputs, {})) ++failures;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, 0);
  for (const Case& mine : cases) EXPECT_EQ(compare(mine, expected), "");
}

TEST(CpuFused, MemoryDoesNotGrowWithTheScores) {
  for (const Backend* backend : fused_backends()) {
    const auto bytes = [&](int64_t n) {
      Case c = plain(DType::kF32, 1, 1, 1, n, n, 64, 64);
      c.request.limits.threads = 1;
      return (*backend->plan(c.request))->workspace_bytes();
    };
    EXPECT_LE(bytes(8192), bytes(4096)) << backend->name();
    EXPECT_LT(bytes(8192), 16u << 20) << backend->name();
  }
}

TEST(CpuFused, RefusesWhatItCannotDo) {
  for (const Backend* backend : fused_backends()) {
    Case c = plain(DType::kF64, 1, 1, 1, 2, 2, 4, 4);
    c.request.sinks = c.dense(DType::kF32, {1});
    c.request.score_program = "score * 2";
    std::vector<std::string> codes;
    for (const Refusal& r : backend->refusals(c.request)) codes.push_back(r.code);
    EXPECT_EQ(codes, (std::vector<std::string>{"dtype", "sinks", "score-program"}));
    Case small = plain(DType::kF32, 1, 1, 1, 100, 100, 64, 64);
    small.request.limits.memory_bytes = 1000;
    ASSERT_EQ(backend->refusals(small.request).size(), 1u);
    EXPECT_EQ(backend->refusals(small.request).front().code, "too-big-for-memory");
  }
}

TEST(CpuFused, AnUnknownInstructionSetIsAnErrorThatListsTheKnown) {
  const WithIsa isa("avx1024");
  Case c = plain(DType::kF32, 1, 1, 1, 2, 2, 4, 4);
  const auto plan = cpu_flash_backend().plan(c.request);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(plan.error().message.find("avx1024"), std::string::npos);
  EXPECT_NE(plan.error().remedy.find("portable"), std::string::npos);
  EXPECT_NE(cpu_flash_backend().unavailable_reason(), "");
}

}  // namespace
}  // namespace attnscope
