#include "analysis/attention.h"

#include "analysis/metrics.h"
#include "analysis/op_inputs.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace {

using support::load_trace;

struct Loaded {
  std::unique_ptr<support::LoadedTrace> trace;
  Metrics metrics;
};
Loaded load(const char* name) {
  Loaded loaded{load_trace(name), {}};
  loaded.metrics = compute_metrics(loaded.trace->trace, loaded.trace->links);
  return loaded;
}

TEST(Attention, NamesWhatRanOnTheArticlesTraces) {
  const struct {
    const char* file;
    AttentionImpl implementation;
    uint32_t kernels, fills;
  } cases[] = {{"article/flash.json.gz", AttentionImpl::kFlash2, 1, 0},
               {"article/cudnn.json.gz", AttentionImpl::kCudnn, 1, 1},
               {"article/efficient.json.gz", AttentionImpl::kEfficient, 1, 0},
               {"article/math.json.gz", AttentionImpl::kAtenMath, 20, 0},
               {"article/flex_compiled.json.gz", AttentionImpl::kFlex, 1, 0}};
  for (const auto& expected : cases) {
    SCOPED_TRACE(expected.file);
    const Loaded loaded = load(expected.file);
    ASSERT_EQ(loaded.metrics.attention_calls.size(), 3u);
    for (const AttentionCall& call : loaded.metrics.attention_calls) {
      EXPECT_EQ(call.implementation, expected.implementation);
      EXPECT_EQ(call.kernels, expected.kernels);
      EXPECT_EQ(call.fills, expected.fills);
      EXPECT_EQ(call.dtype, NumericType::kBF16);
      EXPECT_EQ(call.shape.text(), "8×16×1024×64");
      EXPECT_EQ(call.pass, AttentionPass::kForward);
    }
    ASSERT_EQ(loaded.metrics.attention_groups.size(), 1u);
  }
}

TEST(Attention, CausalCountsHalfTheWork) {
  const Loaded loaded = load("article/flash.json.gz");
  const AttentionCall& call = loaded.metrics.attention_calls[0];
  EXPECT_EQ(call.mask, MaskUse::kCausal);
  ASSERT_TRUE(call.flops && call.bytes);
  EXPECT_DOUBLE_EQ(*call.flops, 2.0 * 8 * 16 * 1024 * 1024 * 64);  // 4 · B·H·L²·D ÷ 2
  EXPECT_DOUBLE_EQ(*call.bytes, 4.0 * 8 * 16 * 1024 * 64 * 2);     // q, k, v read, out written
}

TEST(Attention, FindsItWrittenOutByHand) {
  for (const char* file :
       {"article/naive.json.gz", "article/inplace.json.gz", "article/naive_compiled.json.gz"}) {
    SCOPED_TRACE(file);
    const Loaded loaded = load(file);
    ASSERT_EQ(loaded.metrics.attention_calls.size(), 3u);
    const AttentionCall& call = loaded.metrics.attention_calls[0];
    EXPECT_TRUE(call.hand_written);
    EXPECT_EQ(call.mask, MaskUse::kTensor);
    EXPECT_EQ(call.shape.length, 1024);
    EXPECT_EQ(call.shape.head_dim, 64);
  }
  EXPECT_EQ(load("article/naive.json.gz").metrics.attention_calls[0].copies, 1u);
}

TEST(Attention, BackwardRunsOnAnotherThread) {
  const Loaded loaded = load("programs/autocast_encoder_train.json.gz");
  int forward = 0, backward = 0;
  for (const AttentionCall& call : loaded.metrics.attention_calls) {
    if (call.pass == AttentionPass::kBackward) {
      ++backward;
      EXPECT_EQ(call.op, "aten::_scaled_dot_product_cudnn_attention_backward");
      EXPECT_EQ(call.kernels, 3u);
      EXPECT_DOUBLE_EQ(*call.flops, 2.5 * 4 * 8 * 8 * 256 * 256 * 64);
    } else {
      ++forward;
      EXPECT_EQ(call.mask, MaskUse::kNone);
    }
  }
  EXPECT_EQ(forward, 2);
  EXPECT_EQ(backward, 2);
}

TEST(Attention, GroupedQueriesAndGraphs) {
  const Loaded llama = load("programs/llama_prefill_sdpa.json.gz");
  ASSERT_EQ(llama.metrics.attention_calls.size(), 8u);
  EXPECT_EQ(llama.metrics.attention_calls[0].shape.text(), "4×16×1024×64, kv 4×1024");
  const Loaded graph = load("programs/llama_cuda_graph.json.gz");
  ASSERT_EQ(graph.metrics.attention_calls.size(), 8u);
  for (const AttentionCall& call : graph.metrics.attention_calls) {
    EXPECT_TRUE(call.bare_kernel);
    EXPECT_EQ(call.implementation, AttentionImpl::kCudnn);
    EXPECT_FALSE(call.flops.has_value());
  }
}

TEST(Attention, OnACpu) {
  const Loaded loaded = load("programs/cpu_sdpa.json.gz");
  ASSERT_EQ(loaded.metrics.attention_calls.size(), 2u);
  EXPECT_EQ(loaded.metrics.attention_calls[0].implementation, AttentionImpl::kAtenMath);
  EXPECT_EQ(loaded.metrics.attention_calls[1].implementation, AttentionImpl::kCpuFlash);
}

TEST(OpInputs, ReadsShapesTypesAndConcreteValues) {
  trace::OperatorArgs args;
  args.input_dims = "[[8, 16], [], [[2, 3], [4]]]";
  args.input_strides = "[[16, 1], [], [[3, 1], [1]]]";
  args.input_types = R"(["c10::BFloat16", "Scalar", "TensorList"])";
  args.concrete_inputs = R"(["", "0.125", ""])";
  const std::vector<OpInput> inputs = parse_op_inputs(args);
  ASSERT_EQ(inputs.size(), 3u);
  EXPECT_EQ(inputs[0].dims, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(inputs[0].strides, (std::vector<int64_t>{16, 1}));
  EXPECT_TRUE(inputs[0].is_tensor());
  EXPECT_EQ(inputs[1].concrete, "0.125");
  ASSERT_EQ(inputs[2].members.size(), 2u);
  EXPECT_EQ(inputs[2].members[1].dims, (std::vector<int64_t>{4}));
}

TEST(OpInputs, SurvivesNonsense) {
  for (const char* text : {"", "[", "[[", "[[1,", "]]]]", "{\"a\":[1]}", "[[1e9999, x, null], \"",
                           "[[[[[[[[1]]]]]]]]", "[,,,]", "nonsense"}) {
    trace::OperatorArgs args;
    args.input_dims = args.input_strides = args.input_types = args.concrete_inputs = text;
    EXPECT_LE(parse_op_inputs(args).size(), 256u) << text;
  }
}

}  // namespace
}  // namespace attnscope
