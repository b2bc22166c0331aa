// main() of tests that need a GPU: without a usable one they are skipped (exit code 77), not passed.
#include "cuda/device.h"

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (const std::string reason = attnscope::cuda::unavailable_reason(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
