// What must hold whatever the numbers are: layout does not matter, the future does not matter, a batch is its
// samples.
#include "attention/backend.h"
#include "support/attention_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace attnscope::testing {
namespace {

CaseSpec base(DType dtype) {
  CaseSpec spec;
  spec.dtype = dtype;
  spec.B = 3;
  spec.Hq = 4;
  spec.Hk = 2;
  spec.Hv = 4;
  spec.L = 37;
  spec.S = 53;
  spec.E = 24;
  spec.Ev = 16;
  spec.lse = false;
  return spec;
}

void for_each_backend(const Request& request, const std::function<void(const std::string&)>& fn) {
  for (const Backend* backend : registered_backends())
    if (backend->device() == DeviceType::kCpu && backend->refusals(request).empty())
      fn(std::string(backend->name()));
}

std::vector<double> result(AttentionCase& test, const std::string& backend) {
  test.out().poison();
  EXPECT_TRUE(sdpa(test.request(), test.outputs(), {{backend}})) << backend;
  const TensorView& v = test.out().view();
  std::vector<double> values;
  for (int64_t a = 0; a < v.size(0); ++a)
    for (int64_t b = 0; b < v.size(1); ++b)
      for (int64_t c = 0; c < v.size(2); ++c)
        for (int64_t d = 0; d < v.size(3); ++d) values.push_back(read_element(v, a, b, c, d));
  return values;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << " at " << i;
}

TEST(Properties, LayoutDoesNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    AttentionCase dense(base(dtype));
    for_each_backend(dense.request(), [&](const std::string& name) {
      const auto expected = result(dense, name);
      for (const Layout layout :
           {Layout::kSeqMajor, Layout::kOddOffset, Layout::kLastStride2, Layout::kInterleaved}) {
        CaseSpec spec = base(dtype);
        spec.layout = layout;
        AttentionCase other(spec);
        // The same values in another place: the order of additions may differ, nothing else.
        expect_near(result(other, name), expected,
                    2 * tolerance_for(dense.request(), name == "naive" || name == "inplace").out,
                    name + spec.name());
      }
    });
  }
}

TEST(Properties, TheFutureDoesNotMatter) {
  for (const CausalMode mode : {CausalMode::kTopLeft, CausalMode::kLowerRight}) {
    CaseSpec spec = base(DType::kF32);
    spec.causal = mode;
    AttentionCase clean(spec), disturbed(spec);
    // Row 20 and earlier see no key past `last`; change everything after it, NaN included.
    const int64_t row = 20, last = mode == CausalMode::kTopLeft ? row : row + spec.S - spec.L;
    for (const TensorView& v : {disturbed.request().k, disturbed.request().v})
      for (int64_t b = 0; b < v.size(0); ++b)
        for (int64_t h = 0; h < v.size(1); ++h)
          for (int64_t j = last + 1; j < v.size(2); ++j)
            for (int64_t e = 0; e < v.size(3); ++e)
              write_element(v, (j + e) % 3 == 0 ? std::nan("") : 1e30, b, h, j, e);
    for_each_backend(clean.request(), [&](const std::string& name) {
      const auto before = result(clean, name), after = result(disturbed, name);
      for (int64_t n = 0; n < spec.B * spec.Hq; ++n)
        for (int64_t i = 0; i <= row; ++i)
          for (int64_t e = 0; e < spec.Ev; ++e) {
            const auto at = static_cast<size_t>((n * spec.L + i) * spec.Ev + e);
            ASSERT_NEAR(before[at], after[at], 1e-5) << name << " row " << i;
          }
    });
  }
}

TEST(Properties, ABatchIsItsSamples) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CaseSpec spec = base(dtype);
    spec.causal = CausalMode::kTopLeft;
    AttentionCase batch(spec);
    for_each_backend(batch.request(), [&](const std::string& name) {
      const auto all = result(batch, name);
      const size_t per_sample = all.size() / static_cast<size_t>(spec.B);
      for (int64_t b = 0; b < spec.B; ++b) {
        Request one = batch.request();
        for (TensorView* v : {&one.q, &one.k, &one.v}) {
          v->data = v->as<std::byte>() + b * v->stride(0) * static_cast<int64_t>(dtype_size(dtype));
          v->sizes[0] = 1;
        }
        GuardedOutput out(dtype, {1, spec.Hq, spec.L, spec.Ev}, Layout::kDense);
        ASSERT_TRUE(sdpa(one, {out.view(), {}}, {{name}}));
        const double tolerance = 2 * tolerance_for(one, name == "naive" || name == "inplace").out;
        EXPECT_EQ(
            compare(out.view(),
                    {all.begin() + static_cast<std::ptrdiff_t>(b * static_cast<int64_t>(per_sample)),
                     all.begin() + static_cast<std::ptrdiff_t>((b + 1) * static_cast<int64_t>(per_sample))},
                    tolerance),
            "")
            << name;
      }
    });
  }
}

TEST(Properties, RunsAreRepeatable) {
  AttentionCase test(base(DType::kF32));
  for_each_backend(test.request(), [&](const std::string& name) {
    EXPECT_EQ(result(test, name), result(test, name)) << name;
  });
}

TEST(Properties, ThreadCountDoesNotChangeWhatIsRight) {
  for (const int threads : {1, 2, 3}) {
    AttentionCase test(base(DType::kBF16));
    test.request().limits.threads = threads;
    for_each_backend(test.request(), [&](const std::string& name) {
      result(test, name);
      EXPECT_EQ(compare(test.out().view(), test.reference().out,
                        tolerance_for(test.request(), name == "naive" || name == "inplace").out),
                "")
          << name << " with " << threads;
    });
  }
}

}  // namespace
}  // namespace attnscope::testing
