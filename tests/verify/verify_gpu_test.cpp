// The built-in cases on every CUDA backend: each is right, a known limit of that backend, or refused with a
// reason.
#include "verify/runner.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace attnscope::verify {
namespace {

TEST(BuiltinCasesOnCuda, AreRightOnEveryBackend) {
  Options options;
  options.device = DeviceType::kCuda;
  if (const Status status = check_options(options); !status) GTEST_SKIP() << status.error().message;
  auto cases = parse_cases(builtin_cases(), "the built-in set");
  ASSERT_TRUE(cases) << cases.error().message;
  std::map<std::string, int> right;
  for (const Case& c : *cases) {
    const CaseResult result = run_case(c, options);
    for (const BackendResult& b : result.backends) {
      EXPECT_NE(b.outcome, Outcome::kFailed) << c.id << " on " << b.backend << ": " << b.detail;
      if (b.outcome == Outcome::kRefused) {
        EXPECT_FALSE(b.code.empty()) << c.id << " on " << b.backend;
      }
      right[b.backend] += b.outcome == Outcome::kOk ? 1 : 0;
    }
  }
  EXPECT_GT(right["math"], 100);
  EXPECT_GT(right["efficient"], 100);
}

}  // namespace
}  // namespace attnscope::verify
