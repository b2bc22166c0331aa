// The built-in cases on every CPU backend, and the proof that the cases bite: faults of
// the reported kinds are planted one by one, and each must make some case fail.
#include "verify/runner.h"

#include "tensor/convert.h"
#include "tensor/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace attnscope::verify {
namespace {

using ::testing::HasSubstr;
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Case> builtin() {
  auto cases = parse_cases(builtin_cases(), "the built-in set");
  EXPECT_TRUE(cases) << cases.error().message;
  return cases ? *cases : std::vector<Case>{};
}

TEST(BuiltinCases, AreRightOnEveryBackend) {
  int ran = 0, ok = 0;
  for (const Case& c : builtin()) {
    const CaseResult result = run_case(c, {});
    if (!result.skipped.empty()) continue;
    ++ran;
    for (const BackendResult& b : result.backends) {
      EXPECT_NE(b.outcome, Outcome::kFailed) << c.id << " on " << b.backend << ": " << b.detail;
      if (b.outcome == Outcome::kRefused) {
        EXPECT_FALSE(b.code.empty()) << c.id;
      }
      ok += b.outcome == Outcome::kOk ? 1 : 0;
    }
  }
  EXPECT_GT(ran, 100);
  EXPECT_GT(ok, 3 * ran);
}

TEST(BuiltinCases, EveryReportedIdIsThere) {
  const std::vector<Case> cases = builtin();
  const auto has = [&](const char* id) {
    return std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return c.id == id; });
  };
  for (const char* id : {"M01", "M15", "D01", "D14", "S01", "S17", "E01", "E07", "A01", "A09",
                         "G01", "G06", "H01", "H09", "N01", "N09", "R01", "R12", "X01", "X09"})
    EXPECT_TRUE(has(id)) << id;
}

// --- planted faults -----------------------------------------------------------------------------

struct Fault {
  const char* name;
  std::function<void(Request&)> before;
  std::function<void(const Request&, const Outputs&)> after;
};

// fn(row, b, h, i) for every row of the output.
template <typename Fn>
void rows_of(const Outputs& o, Fn fn) {
  for (int64_t b = 0; b < o.out.size(0); ++b)
    for (int64_t h = 0; h < o.out.size(1); ++h)
      for (int64_t i = 0; i < o.out.size(2); ++i) fn(b, h, i);
}
void set_row(const Outputs& o, int64_t b, int64_t h, int64_t i, double value) {
  for (int64_t e = 0; e < o.out.size(3); ++e) write_element(o.out, value, b, h, i, e);
}
bool empty_row(const Outputs& o, int64_t b, int64_t h, int64_t i) {
  return o.lse.data != nullptr && read_element(o.lse, b, h, i) == -kInf;
}

// Copies that a fault needs live here until the next fault.
Tensor g_spare;
TensorView rounded_to(const TensorView& v, DType dtype) {
  g_spare = *Tensor::empty(dtype, std::span(v.sizes).first(static_cast<size_t>(v.rank)));
  EXPECT_TRUE(copy_elements(v, g_spare));
  return g_spare;
}

std::vector<Fault> faults() {
  const auto dense = [](TensorView& v) { v = TensorView::contiguous(v.data, v.dtype, v.sizes, v.device); };
  return {
      {"mask ignored",
       [](Request& r) {
         r.mask_kind = MaskKind::kNone;
         r.mask = {};
       },
       {}},
      {"bool mask of row 0 for every row",
       [](Request& r) {
         if (r.mask_kind == MaskKind::kBool && r.mask.rank >= 2)
           r.mask.strides[static_cast<size_t>(r.mask.rank - 2)] = 0;
       },
       {}},
      {"mask of batch 0 for every batch",
       [](Request& r) { r.mask.strides[0] = r.mask.rank == 4 ? 0 : r.mask.strides[0]; },
       {}},
      {"causal ignored", [](Request& r) { r.causal = CausalMode::kNone; }, {}},
      {"causal anchored at the wrong corner",
       [](Request& r) {
         if (r.causal == CausalMode::kTopLeft) {
           r.causal = CausalMode::kLowerRight;
         } else if (r.causal == CausalMode::kLowerRight) {
           r.causal = CausalMode::kTopLeft;
         }
       },
       {}},
      {"window ignored", [](Request& r) { r.window = {}; }, {}},
      {"window off by one to the left", [](Request& r) { r.window.left += r.window.left >= 0 ? 1 : 0; }, {}},
      {"window off by one to the right",
       [](Request& r) { r.window.right += r.window.right >= 0 ? 1 : 0; },
       {}},
      {"scale ignored",
       [](Request& r) { r.scale = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(r.head_dim(), 1))); },
       {}},
      {"scale of the padded head_dim",
       [](Request& r) {
         if (!r.scale) r.scale = 1.0 / std::sqrt(static_cast<double>((r.head_dim() + 7) / 8 * 8));
       },
       {}},
      {"sign of the scale lost", [](Request& r) { r.scale = std::fabs(r.effective_scale()); }, {}},
      {"dropout ignored", [](Request& r) { r.dropout.p = 0; }, {}},
      {"dropout of another seed", [](Request& r) { r.dropout.seed += 1; }, {}},
      {"dropout offset cut to 32 bits", [](Request& r) { r.dropout.offset &= 0xffffffffu; }, {}},
      {"lengths ignored",
       [](Request& r) {
         if (!r.paging.active()) r.lengths.kv_lengths.data = nullptr;
       },
       {}},
      {"packed sequences run into each other",
       [](Request& r) { r.lengths.cu_q.data = r.lengths.cu_k.data = nullptr; },
       {}},
      {"strides of k and v ignored",
       [=](Request& r) {
         dense(r.k);
         dense(r.v);
       },
       {}},
      {"strides of q ignored", [=](Request& r) { dense(r.q); }, {}},
      {"last stride ignored", [](Request& r) { r.k.strides[3] = r.v.strides[3] = 1; }, {}},
      {"v read with the strides of k",
       [](Request& r) {
         if (r.v.size(3) == r.k.size(3) && r.v.size(1) == r.k.size(1)) r.v.data = r.k.data;
       },
       {}},
      {"heads repeated instead of interleaved",
       [](Request& r) {
         // Head h reads h mod Hk: the same as k and v repeated as a whole.
         if (r.k.size(1) == r.heads() || r.v.size(1) != r.k.size(1) || r.batch() != 1 || r.paging.active())
           return;
         const int64_t hk = r.k.size(1), s = r.v.size(2), e = r.v.size(3);
         Tensor wide = *Tensor::empty(r.v.dtype, {1, r.heads(), s, e});
         for (int64_t h = 0; h < r.heads(); ++h)
           for (int64_t j = 0; j < s; ++j)
             for (int64_t d = 0; d < e; ++d)
               write_element(wide, read_element(r.v, 0, h % hk, j, d), 0, h, j, d);
         g_spare = std::move(wide);
         r.v = g_spare;
       },
       {}},
      {"f32 bias rounded to bf16",
       [](Request& r) {
         if (r.mask_kind == MaskKind::kBias) r.mask = rounded_to(r.mask, DType::kBF16);
       },
       {}},
      {"inputs rounded to bf16 (TF32 and worse)",
       [](Request& r) {
         if (r.q.dtype != DType::kF32) return;
         Tensor cut = *Tensor::empty(DType::kF32, std::span(r.q.sizes));
         for (int64_t b = 0; b < r.q.size(0); ++b)
           for (int64_t h = 0; h < r.q.size(1); ++h)
             for (int64_t i = 0; i < r.q.size(2); ++i)
               for (int64_t e = 0; e < r.q.size(3); ++e)
                 write_element(cut, bf16_to_f32(f64_to_bf16(read_element(r.q, b, h, i, e))), b, h, i, e);
         g_spare = std::move(cut);
         r.q = g_spare;
       },
       {}},
      {"empty rows are NaN",
       {},
       [](const Request&, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (empty_row(o, b, h, i)) set_row(o, b, h, i, std::nan(""));
         });
       }},
      {"empty rows are the mean",
       {},
       [](const Request& r, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (empty_row(o, b, h, i) && r.v.size(2) > 0) set_row(o, b, h, i, 6.0);
         });
       }},
      {"LSE +inf in empty rows",
       {},
       [](const Request&, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (empty_row(o, b, h, i)) write_element(o.lse, kInf, b, h, i);
         });
       }},
      {"LSE in base 2",
       {},
       [](const Request&, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (o.lse.data != nullptr)
             write_element(o.lse, read_element(o.lse, b, h, i) * 1.4426950408889634, b, h, i);
         });
       }},
      {"LSE zeros",
       {},
       [](const Request&, const Outputs& o) {
         if (o.lse.data != nullptr) fill_constant(o.lse, 0);
       }},
      {"NaN rows come back as 0",
       {},
       [](const Request&, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (o.lse.data != nullptr && std::isnan(read_element(o.lse, b, h, i))) set_row(o, b, h, i, 0);
         });
       }},
      {"last row not written",
       {},
       [](const Request&, const Outputs& o) {
         if (o.out.numel() > 0)
           set_row(o, o.out.size(0) - 1, o.out.size(1) - 1, o.out.size(2) - 1, std::nan(""));
       }},
      {"columns past E not written",
       {},
       [](const Request& r, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           for (int64_t e = r.head_dim(); e < o.out.size(3); ++e) write_element(o.out, 0, b, h, i, e);
         });
       }},
      {"overflow to infinity",
       {},
       [](const Request& r, const Outputs& o) {
         rows_of(o, [&](int64_t b, int64_t h, int64_t i) {
           if (r.q.dtype == DType::kF16 && o.lse.data != nullptr && read_element(o.lse, b, h, i) > 65504)
             set_row(o, b, h, i, std::nan(""));
         });
       }},
  };
}

TEST(PlantedFaults, EachMakesACaseFail) {
  std::vector<Case> small;
  for (Case& c : builtin())
    if (c.merge.empty() && !c.q.sizes.empty() && touched_elements(c) < 5e4 && storage_bytes(c) < 1e8 &&
        !c.expect_error)
      small.push_back(std::move(c));
  ASSERT_GT(small.size(), 60u);
  const std::vector<Fault> planted = faults();
  ASSERT_GE(planted.size(), 25u);
  for (const Fault& fault : planted) {
    Options options;
    options.backends = {"math"};
    options.before = fault.before;
    options.after = fault.after;
    std::vector<std::string> caught;
    for (const Case& c : small)
      if (run_case(c, options).failed()) {
        caught.push_back(c.id);
        break;
      }
    EXPECT_FALSE(caught.empty()) << fault.name << " went unnoticed";
  }
}

// Where the oracle answers some rows only, the formula's NaN in a row without keys is no fault, in another
// row it is.
TEST(SampledRows, NanIsFineOnlyInRowsWithoutKeys) {
  for (const Case& c : builtin()) {
    if (c.id != "S12-small") continue;
    Options options;
    options.backends = {"naive"};
    options.oracle_flops = 1;
    EXPECT_FALSE(run_case(c, options).failed());
    options.after = [](const Request&, const Outputs& o) {
      store_f64(o.out.data, o.out.dtype, element_offset(o.out, 0, 1, 3, 5), std::nan(""));
    };
    EXPECT_TRUE(run_case(c, options).failed());
    return;
  }
  FAIL() << "S12-small is gone";
}

TEST(Options, UnknownBackendListsTheKnown) {
  Options options;
  options.backends = {"flahs"};
  const Status status = check_options(options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().remedy, HasSubstr("flash"));
}

}  // namespace
}  // namespace attnscope::verify
