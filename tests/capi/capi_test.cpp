// The C ABI as another language would use it: only attnscope.h, only the shared library.
#include "attnscope/attnscope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct F32Tensor {
  std::vector<float> values;
  int64_t shape[4];
  attnscope_tensor tensor{};
  F32Tensor(int64_t b, int64_t h, int64_t l, int64_t e)
      : values(static_cast<size_t>(b * h * l * e)), shape{b, h, l, e} {
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37f * static_cast<float>(i + 1));
    tensor.data = values.data();
    tensor.device = {1, 0};
    tensor.ndim = 4;
    tensor.dtype = {2, 32, 1};
    tensor.shape = shape;
  }
};

struct Call {
  F32Tensor q{1, 2, 5, 8}, k{1, 2, 7, 8}, v{1, 2, 7, 8}, out{1, 2, 5, 8};
  attnscope_request request;
  Call() {
    attnscope_request_init(&request);
    request.q = &q.tensor;
    request.k = &k.tensor;
    request.v = &v.tensor;
    std::fill(out.values.begin(), out.values.end(), NAN);
  }
  // out[0,0,i,:] straight from the definition
  std::vector<double> row(int i, bool causal) const {
    std::vector<double> scores, result(8, 0.0);
    for (int j = 0; j < (causal ? i + 1 : 7); ++j) {
      double s = 0;
      for (int e = 0; e < 8; ++e)
        s += q.values[static_cast<size_t>(i * 8 + e)] * k.values[static_cast<size_t>(j * 8 + e)];
      scores.push_back(std::exp(s / std::sqrt(8.0)));
    }
    double sum = 0;
    for (double s : scores) sum += s;
    for (size_t j = 0; j < scores.size(); ++j)
      for (size_t e = 0; e < 8; ++e) result[e] += scores[j] / sum * v.values[j * 8 + e];
    return result;
  }
};

TEST(CApi, SdpaComputesAttention) {
  for (const bool causal : {false, true}) {
    Call c;
    c.request.causal = causal ? ATTNSCOPE_CAUSAL_TOP_LEFT : ATTNSCOPE_CAUSAL_NONE;
    ASSERT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_OK)
        << attnscope_error_message();
    for (int i = 0; i < 5; ++i) {
      const auto expected = c.row(i, causal);
      for (size_t e = 0; e < 8; ++e)
        EXPECT_NEAR(c.out.values[static_cast<size_t>(i) * 8 + e], expected[e], 1e-5) << i;
    }
  }
}

TEST(CApi, APlanRunsAndSaysWhatItIs) {
  Call c;
  attnscope_plan* plan = nullptr;
  ASSERT_EQ(attnscope_plan_create(&c.request, "math", &plan), ATTNSCOPE_OK) << attnscope_error_message();
  EXPECT_STREQ(attnscope_plan_backend(plan), "math");
  EXPECT_NE(std::strstr(attnscope_plan_describe(plan), "kernel"), nullptr);
  ASSERT_EQ(attnscope_plan_run(plan, &c.request, &c.out.tensor, nullptr, nullptr, nullptr, 0), ATTNSCOPE_OK);
  EXPECT_NEAR(c.out.values[0], c.row(0, false)[0], 1e-5);
  Call other;
  other.k.shape[2] = other.v.shape[2] = 6;
  EXPECT_EQ(attnscope_plan_run(plan, &other.request, &other.out.tensor, nullptr, nullptr, nullptr, 0),
            ATTNSCOPE_E_ARGUMENT);
  attnscope_plan_destroy(plan);
  attnscope_plan_destroy(nullptr);
}

TEST(CApi, ErrorsHaveAMessageAndARemedy) {
  Call c;
  EXPECT_EQ(attnscope_sdpa(&c.request, "flsh", &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  EXPECT_NE(std::string(attnscope_error_message()).find("flsh"), std::string::npos);
  EXPECT_NE(std::string(attnscope_error_message()).find("did you mean"), std::string::npos);
  EXPECT_EQ(attnscope_sdpa(nullptr, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  c.request.v = nullptr;
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
}

TEST(CApi, UnknownTypesDevicesAndRanksAreRefusedByName) {
  Call c;
  c.k.tensor.dtype = {2, 8, 1};
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  EXPECT_EQ(std::string(attnscope_error_message()).rfind("k has DLPack type", 0), 0u);
  c.k.tensor.dtype = {2, 32, 1};
  c.k.tensor.device.device_type = 10;
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  c.k.tensor.device.device_type = 1;
  c.q.tensor.ndim = 5;
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  EXPECT_NE(std::string(attnscope_error_message()).find("5 dimensions"), std::string::npos);
}

TEST(CApi, ATensorThatIsGivenButHasNoMemoryIsNotTakenForNone) {
  Call c;
  int64_t length_shape[1] = {1};
  attnscope_tensor lengths{};
  lengths.device = {1, 0};
  lengths.ndim = 1;
  lengths.dtype = {0, 64, 1};
  lengths.shape = length_shape;
  c.request.kv_lengths = &lengths;
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
  EXPECT_STREQ(attnscope_error_message(), "kv_lengths has no data");
  int64_t length = 3;
  lengths.data = &length;
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_OK)
      << attnscope_error_message();
}

TEST(CApi, SizesBeyond64BitsAreRefused) {
  Call c;
  for (int64_t& size : c.q.shape) size = int64_t{1} << 40;
  for (void* data : {c.q.tensor.data, static_cast<void*>(nullptr)}) {
    c.q.tensor.data = data;
    EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_E_ARGUMENT);
    EXPECT_STREQ(attnscope_error_message(), "the sizes of q do not fit 64 bits");
  }
}

TEST(CApi, AnOlderCallersShorterRequestStillWorks) {
  Call c;
  c.request.struct_size = offsetof(attnscope_request, mask);
  c.request.dropout_p = 77;  // beyond what that caller's header knew: not read
  EXPECT_EQ(attnscope_sdpa(&c.request, nullptr, &c.out.tensor, nullptr, nullptr), ATTNSCOPE_OK)
      << attnscope_error_message();
}

TEST(CApi, ChooseAndBackendsAreJson) {
  Call c;
  char* json = nullptr;
  ASSERT_EQ(attnscope_choose(&c.request, nullptr, &json), ATTNSCOPE_OK);
  EXPECT_NE(std::strstr(json, "\"winner\""), nullptr);
  attnscope_free(json);
  // A name that is no UTF-8 comes back as JSON all the same.
  ASSERT_EQ(attnscope_choose(&c.request,
                             "fla\xff"
                             "h",
                             &json),
            ATTNSCOPE_OK)
      << attnscope_error_message();
  EXPECT_NE(std::strstr(json, "unknown-backend"), nullptr);
  attnscope_free(json);
  ASSERT_EQ(attnscope_backends(&json), ATTNSCOPE_OK);
  EXPECT_NE(std::strstr(json, "\"math\""), nullptr);
  attnscope_free(json);
  EXPECT_EQ(attnscope_backends(nullptr), ATTNSCOPE_E_ARGUMENT);
}

TEST(CApi, ASessionRecordsRangesAndWritesATrace) {
  attnscope_session* session = nullptr;
  ASSERT_EQ(attnscope_session_start(0, 1, &session), ATTNSCOPE_OK) << attnscope_error_message();
  attnscope_session* second = nullptr;
  EXPECT_EQ(attnscope_session_start(0, 0, &second), ATTNSCOPE_E_UNAVAILABLE);
  Call c;
  attnscope_range_push("attn_fwd");
  ASSERT_EQ(attnscope_sdpa(&c.request, "naive", &c.out.tensor, nullptr, nullptr), ATTNSCOPE_OK);
  attnscope_range_pop();
  attnscope_range_pop();  // one too many is harmless
  char* summary = nullptr;
  const std::string path = ::testing::TempDir() + "capi_trace.json";
  ASSERT_EQ(attnscope_session_finish(session, path.c_str(), &summary), ATTNSCOPE_OK)
      << attnscope_error_message();
  EXPECT_NE(std::strstr(summary, "\"events\""), nullptr);
  attnscope_free(summary);
  FILE* file = fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  std::string text(1 << 20, '\0');
  text.resize(fread(text.data(), 1, text.size(), file));
  fclose(file);
  EXPECT_NE(text.find("attn_fwd"), std::string::npos);
  EXPECT_NE(text.find("attnscope::naive"), std::string::npos);
}

TEST(CApi, VersionIsThatOfTheHeader) {
  EXPECT_EQ(attnscope_abi_version(), static_cast<uint32_t>(ATTNSCOPE_ABI_VERSION));
}

}  // namespace
