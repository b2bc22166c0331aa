// Every request that no backend could take: one line with the values.
#include "support/attention_case.h"
#include "tensor/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace attnscope::testing {
namespace {

using ::testing::HasSubstr;

CaseSpec base() {
  CaseSpec spec;
  spec.B = 2;
  spec.Hq = 4;
  spec.Hk = spec.Hv = 2;
  spec.L = 3;
  spec.S = 5;
  spec.E = spec.Ev = 8;
  return spec;
}

struct Bad {
  const char* what;
  std::function<void(Request&)> spoil;
  const char* message;
};

class InvalidRequest : public ::testing::TestWithParam<Bad> {};

TEST_P(InvalidRequest, IsRefusedWithItsValues) {
  AttentionCase test(base());
  ASSERT_TRUE(validate(test.request()));
  ASSERT_TRUE(
      sdpa(test.request(), test.outputs()));  // its plan is cached, and must not let the spoilt one in
  GetParam().spoil(test.request());
  const Status status = validate(test.request());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  // No door around the check.
  EXPECT_FALSE(plan(test.request()));
  EXPECT_FALSE(sdpa(test.request(), test.outputs()));
  const Decision decision = choose(test.request());
  EXPECT_EQ(decision.winner, nullptr);
  ASSERT_EQ(decision.refusals.size(), 1u);
  EXPECT_EQ(decision.refusals[0].code, "invalid-request");
}

TensorView mask_view(DType dtype, int rank, std::array<int64_t, 4> sizes) {
  static double storage[4096];
  TensorView v = TensorView::contiguous(storage, dtype, sizes);
  v.rank = rank;
  return v;
}

INSTANTIATE_TEST_SUITE_P(
    All, InvalidRequest,
    ::testing::Values(
        Bad{"rank", [](Request& r) { r.q.rank = 3; }, "q has rank 3"},
        Bad{"integer q", [](Request& r) { r.q.dtype = DType::kI32; }, "q is i32"},
        Bad{"dtype mix", [](Request& r) { r.k.dtype = DType::kBF16; }, "q is f32, k is bf16, v is f32"},
        Bad{"negative size", [](Request& r) { r.q.sizes[2] = -1; }, "negative size"},
        Bad{"negative stride", [](Request& r) { r.q.strides[2] = -8; }, "stride -8"},
        Bad{"address space", [](Request& r) { r.q.strides[2] = int64_t{1} << 62; }, "address space"},
        Bad{"head_dim", [](Request& r) { r.k.sizes[3] = 7; }, "head_dim of q is 8, of k 7"},
        Bad{"head_dim beyond counting",
            [](Request& r) {
              for (TensorView* v : {&r.q, &r.k}) {
                v->sizes[3] = int64_t{1} << 53;
                v->strides[3] = 0;
              }
            },
            "head_dim is 9007199254740992"},
        Bad{"between elements", [](Request& r) { r.k.data = r.k.as<char>() + 2; },
            "k does not begin on an element of f32"},
        Bad{"k and v length", [](Request& r) { r.v.sizes[2] = 6; }, "k holds 5 keys, v holds 6 values"},
        Bad{"k and v batch", [](Request& r) { r.v.sizes[0] = 1; }, "batch of k is 2, of v 1"},
        Bad{"q batch", [](Request& r) { r.q.sizes[0] = 1; }, "batch of q is 1, of k and v 2"},
        Bad{"heads of k", [](Request& r) { r.k.sizes[1] = 3; }, "q has 4 heads, k has 3"},
        Bad{"heads of v", [](Request& r) { r.v.sizes[1] = 0; }, "q has 4 heads, v has 0"},
        Bad{"device", [](Request& r) { r.v.device = {DeviceType::kCuda, 0}; }, "another device"},
        Bad{"scale", [](Request& r) { r.scale = std::nan(""); }, "scale is nan"},
        Bad{"infinite scale", [](Request& r) { r.scale = INFINITY; }, "scale is inf"},
        Bad{"softcap", [](Request& r) { r.softcap = -1; }, "softcap is -1"},
        Bad{"softcap beyond f32", [](Request& r) { r.softcap = 1e39; }, "softcap is 1e+39"},
        Bad{"softcap below f32", [](Request& r) { r.softcap = 1e-50; }, "softcap is 1e-50"},
        Bad{"softcap nan", [](Request& r) { r.softcap = std::nan(""); }, "softcap is nan"},
        Bad{"dropout above", [](Request& r) { r.dropout.p = 1.5; }, "dropout is 1.5"},
        Bad{"dropout below", [](Request& r) { r.dropout.p = -0.1; }, "dropout is -0.1"},
        Bad{"dropout nan", [](Request& r) { r.dropout.p = std::nan(""); }, "dropout is nan"},
        Bad{"window", [](Request& r) { r.window.left = -2; }, "window (-2, -1)"},
        Bad{"limits", [](Request& r) { r.limits.threads = -1; }, "limits"},
        Bad{"mask shape",
            [](Request& r) {
              r.mask_kind = MaskKind::kBool;
              r.mask = mask_view(DType::kBool, 2, {3, 4, 1, 1});
            },
            "mask [3,4] does not broadcast to the scores [2,4,3,5]"},
        Bad{"mask of three dimensions binds heads",
            [](Request& r) {
              r.mask_kind = MaskKind::kBool;
              r.mask = mask_view(DType::kBool, 3, {2, 3, 5, 1});
            },
            "mask [2,3,5] does not broadcast"},
        Bad{"bool mask of floats",
            [](Request& r) {
              r.mask_kind = MaskKind::kBool;
              r.mask = mask_view(DType::kF32, 2, {3, 5, 1, 1});
            },
            "a bool mask has dtype f32"},
        Bad{"mask of no kind", [](Request& r) { r.mask = mask_view(DType::kBool, 2, {3, 5, 1, 1}); },
            "a mask is given, but its kind is none"},
        Bad{"bias of integers",
            [](Request& r) {
              r.mask_kind = MaskKind::kBias;
              r.mask = mask_view(DType::kI32, 2, {3, 5, 1, 1});
            },
            "a bias has dtype i32"},
        Bad{"lengths of another batch",
            [](Request& r) { r.lengths.kv_lengths = mask_view(DType::kI32, 1, {3, 1, 1, 1}); },
            "kv_lengths must be"},
        Bad{"lengths of floats",
            [](Request& r) { r.lengths.kv_lengths = mask_view(DType::kF32, 1, {2, 1, 1, 1}); },
            "kv_lengths must be"},
        Bad{"one offset vector", [](Request& r) { r.lengths.cu_q = mask_view(DType::kI32, 1, {3, 1, 1, 1}); },
            "both cu_q and cu_k"},
        Bad{"packed with batch 2",
            [](Request& r) { r.lengths.cu_q = r.lengths.cu_k = mask_view(DType::kI32, 1, {3, 1, 1, 1}); },
            "batch 1"},
        Bad{"append without pages", [](Request& r) { r.paging.append_k = r.k; }, "block table"},
        Bad{"pages without lengths",
            [](Request& r) {
              r.paging.block_table = mask_view(DType::kI32, 2, {2, 1, 1, 1});
              r.paging.page_size = 5;
            },
            "needs kv_lengths"},
        Bad{"page size",
            [](Request& r) {
              r.paging.block_table = mask_view(DType::kI32, 2, {2, 1, 1, 1});
              r.paging.page_size = 4;
            },
            "page_size is 4"},
        Bad{"more keys than 64 bits count",
            [](Request& r) {
              r.paging.block_table = mask_view(DType::kI32, 2, {2, int64_t{1} << 40, 1, 1});
              r.paging.block_table.strides = {0, 0, 0, 0};
              r.paging.page_size = r.k.sizes[2] = r.v.sizes[2] = int64_t{1} << 30;
              r.k.strides[2] = r.v.strides[2] = 0;
            },
            "1099511627776 pages of 1073741824 keys do not fit"},
        Bad{"cu_k without cu_q", [](Request& r) { r.lengths.cu_k = mask_view(DType::kI64, 1, {2, 1, 1, 1}); },
            "both cu_q and cu_k"},
        Bad{"values appended without pages",
            [](Request& r) { r.paging.append_v = mask_view(DType::kF32, 4, {2, 2, 1, 8}); },
            "an append needs a block table"},
        Bad{"sinks", [](Request& r) { r.sinks = mask_view(DType::kF32, 1, {3, 1, 1, 1}); },
            "sinks must be float [4]"},
        Bad{"alibi slopes", [](Request& r) { r.alibi_slopes = mask_view(DType::kF32, 1, {3, 1, 1, 1}); },
            "alibi_slopes must be f32 [4] or [2,4]"}),
    [](const auto& param) {
      std::string name = param.param.what;
      for (char& c : name)
        if (c == ' ' || c == '_') c = 'X';
      return name;
    });

TEST(ValidateRun, OutputsAndContents) {
  AttentionCase test(base());
  Outputs outputs = test.outputs();
  outputs.out.sizes[3] = 7;
  EXPECT_THAT(sdpa(test.request(), outputs).error().message,
              HasSubstr("out is f32 [2,4,3,7]; it must be f32 [2,4,3,8]"));
  outputs = test.outputs();
  outputs.out.strides[1] = 0;
  EXPECT_THAT(sdpa(test.request(), outputs).error().message, HasSubstr("stride 0 in dimension 1"));
  outputs = test.outputs();
  outputs.out.data = nullptr;
  EXPECT_THAT(sdpa(test.request(), outputs).error().message, HasSubstr("out has no data"));
  outputs = test.outputs();
  outputs.out.data = outputs.out.as<char>() + 1;
  EXPECT_THAT(sdpa(test.request(), outputs).error().message, HasSubstr("out does not begin on an element"));
  outputs = test.outputs();
  outputs.lse.dtype = DType::kF64;
  EXPECT_THAT(sdpa(test.request(), outputs).error().message, HasSubstr("lse is f64"));
  Request no_data = test.request();
  no_data.k.data = nullptr;
  EXPECT_THAT(sdpa(no_data, test.outputs()).error().message, HasSubstr("no data"));
}

TEST(ValidateRun, HalfAPackedRequestDoesNotFindTheWholeOnesPlan) {
  CaseSpec spec = base();
  spec.packed = true;
  spec.B = 1;
  spec.L = 16;
  for (const bool without_keys : {true, false}) {
    AttentionCase test(spec);
    const auto made = plan(test.request());
    ASSERT_TRUE(made);
    ASSERT_TRUE(sdpa(test.request(), test.outputs()));
    Lengths& lengths = test.request().lengths;
    (without_keys ? lengths.cu_k : lengths.cu_q).data = nullptr;
    const Status status = sdpa(test.request(), test.outputs());
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("both cu_q and cu_k"));
    EXPECT_FALSE(run(**made, test.request(), test.outputs()));
  }
}

TEST(ValidateRun, OutputsThatShareMemory) {
  CaseSpec spec = base();
  spec.L = spec.S;
  spec.Hk = spec.Hv = spec.Hq;
  spec.mask = MaskSpec::kBiasF32;
  AttentionCase test(spec);
  const auto refused = [&](const Outputs& outputs) {
    const Status status = sdpa(test.request(), outputs);
    return status ? std::string() : status.error().message;
  };
  Outputs outputs = test.outputs();
  EXPECT_EQ(refused(outputs), "");
  for (const auto& [view, what] :
       {std::pair{test.request().q, "out shares memory with q"}, std::pair{test.request().k, "with k"},
        std::pair{test.request().v, "out shares memory with v"}}) {
    outputs.out = view;
    EXPECT_THAT(refused(outputs), HasSubstr(what));
  }
  // The second half of v's memory, and what lies around it.
  outputs.out = test.request().v;
  outputs.out.data = test.request().v.as<float>() + 8 * spec.S;
  EXPECT_THAT(refused(outputs), HasSubstr("out shares memory with v"));
  outputs = test.outputs();
  outputs.lse.data = test.request().mask.data;
  EXPECT_THAT(refused(outputs), HasSubstr("lse shares memory with the mask"));
  outputs.lse.data = outputs.out.data;
  EXPECT_THAT(refused(outputs), HasSubstr("lse shares memory with out"));

  // q, k, v and out take turns within each row of one buffer: nothing is shared.
  const int64_t heads = spec.Hq, rows = spec.L, batch = spec.B;
  const Tensor buffer = *Tensor::empty(DType::kF32, {batch, rows, 4 * heads, 8});
  const auto part = [&](int64_t n) {
    TensorView v = buffer;
    v.sizes = {batch, heads, rows, 8};
    v.strides = {rows * 4 * heads * 8, 8, 4 * heads * 8, 1};
    v.data = buffer.as<float>() + n * heads * 8;
    return v;
  };
  Request packed = test.request();
  packed.q = part(0);
  packed.k = part(1);
  packed.v = part(2);
  for (const TensorView& v : {packed.q, packed.k, packed.v}) fill_normal(v, 3);
  const ReferenceResult expected = reference_attention(packed);
  outputs = test.outputs();
  outputs.out = part(3);
  ASSERT_TRUE(sdpa(packed, outputs));
  EXPECT_EQ(compare(outputs.out, expected.out, 1e-4), "");
}

TEST(ValidateRun, LengthsThatPointOutside) {
  CaseSpec spec = base();
  spec.kv_lengths = true;
  AttentionCase test(spec);
  write_element(test.request().lengths.kv_lengths, 6, 0);
  EXPECT_THAT(sdpa(test.request(), test.outputs()).error().message, HasSubstr("kv_lengths[0] is 6"));
  write_element(test.request().lengths.kv_lengths, -1, 0);
  EXPECT_THAT(sdpa(test.request(), test.outputs()).error().message, HasSubstr("kv_lengths[0] is -1"));

  spec = base();
  spec.packed = true;
  spec.B = 1;
  spec.L = 16;
  AttentionCase packed(spec);
  write_element(packed.request().lengths.cu_q, 1, 0);
  EXPECT_THAT(sdpa(packed.request(), packed.outputs()).error().message, HasSubstr("cu_q[0] is 1"));
  write_element(packed.request().lengths.cu_q, 0, 0);
  write_element(packed.request().lengths.cu_q, 99, 4);
  EXPECT_THAT(sdpa(packed.request(), packed.outputs()).error().message, HasSubstr("cu_q ends at 99"));

  spec = base();
  spec.paged = true;
  spec.S = 8;
  AttentionCase paged(spec);
  write_element(paged.request().paging.block_table, 1000, 0, 0);
  EXPECT_THAT(sdpa(paged.request(), paged.outputs()).error().message, HasSubstr("block_table[0][0] is 1000"));
}

}  // namespace
}  // namespace attnscope::testing
