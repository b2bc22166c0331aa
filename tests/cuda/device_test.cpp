// The device layer must load and answer on a machine without a driver; with a GPU the same calls succeed.
#include "cuda/device.h"

#include "cuda/library.h"
#include "cuda/memory.h"
#include "cuda/status.h"
#include "cuda/stream.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace attnscope::cuda {
namespace {

TEST(Device, CountAndReasonAgree) {
  const std::string reason = unavailable_reason();
  if (device_count() == 0) {
    EXPECT_FALSE(reason.empty());
  } else {
    EXPECT_EQ(reason.empty(), [] {
      for (int i = 0; i < device_count(); ++i)
        if (usable(i)) return true;
      return false;
    }());
  }
}

TEST(Device, IndexPastTheLastIsAClearError) {
  const Status status = usable(device_count());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(status.error().message.find("no CUDA device " + std::to_string(device_count())),
            std::string::npos);
  EXPECT_FALSE(usable(-1));
}

TEST(Device, WithoutADriverEveryCallReturnsAnError) {
  if (device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_FALSE(Stream::create(0));
  EXPECT_FALSE(Event::create(0));
  auto buffer = DeviceBuffer::allocate(1024, nullptr, 0, "test");
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(buffer.error().remedy.empty());
}

TEST(Status, OutOfMemoryKeepsItsCodeAndNamesTheCall) {
  const Status status = check(cudaErrorMemoryAllocation, "scores of 4.3 GB");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_TRUE(status.error().message.starts_with("scores of 4.3 GB: "));
  EXPECT_FALSE(status.error().remedy.empty());
  EXPECT_TRUE(check(cudaSuccess, "anything"));
}

TEST(Status, AnOldArchitectureIsUnavailableNotInternal) {
  const Status status = check(cudaErrorNoKernelImageForDevice, "launch of softmax");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
}

TEST(Workspace, ACallersBufferMustBeLargeEnoughAndAligned) {
  alignas(256) static char memory[1024];
  RunOptions options;
  options.workspace = memory;
  options.workspace_bytes = 512;
  auto small = Workspace::acquire(options, 1024, 0);
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("512 bytes, this plan needs 1024"), std::string::npos);
  auto fits = Workspace::acquire(options, 512, 0);
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->data(), memory);
  options.workspace = memory + 16;
  EXPECT_FALSE(Workspace::acquire(options, 256, 0));
}

TEST(WorkspaceLayout, PartsStartAtMultiplesOf256) {
  WorkspaceLayout layout;
  EXPECT_EQ(layout.add(1), 0u);
  EXPECT_EQ(layout.add(257), 256u);
  EXPECT_EQ(layout.add(0), 768u);
  EXPECT_EQ(layout.total(), 768u);
}

TEST(DynamicLibrary, AMissingLibrarySaysWhatWasLookedForAndHow) {
  const char* const names[] = {"libattnscope_does_not_exist.so.1"};
  auto library = DynamicLibrary::open(names, "ATTNSCOPE_TEST_LIBRARY");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(library.error().message.find(names[0]), std::string::npos);
  EXPECT_NE(library.error().remedy.find("ATTNSCOPE_TEST_LIBRARY"), std::string::npos);
}

TEST(DynamicLibrary, AWrongOverrideIsAnErrorNotASilentFallback) {
  const char* const names[] = {"libm.so.6"};
  ASSERT_TRUE(DynamicLibrary::open(names, "ATTNSCOPE_TEST_LIBRARY"));
  const char* const unloaded[] = {"libattnscope_does_not_exist.so.1"};
  setenv("ATTNSCOPE_TEST_LIBRARY", "/nonexistent/folder", 1);
  auto library = DynamicLibrary::open(unloaded, "ATTNSCOPE_TEST_LIBRARY");
  unsetenv("ATTNSCOPE_TEST_LIBRARY");
  ASSERT_FALSE(library);
  EXPECT_NE(library.error().message.find("/nonexistent/folder"), std::string::npos);
}

TEST(DynamicLibrary, FindsSymbols) {
  const char* const names[] = {"libm.so.6"};
  auto library = DynamicLibrary::open(names, nullptr);
  ASSERT_TRUE(library);
  EXPECT_NE(library->find("cos"), nullptr);
  EXPECT_EQ(library->find("no_such_symbol_here"), nullptr);
  EXPECT_FALSE(library->path().empty());
}

}  // namespace
}  // namespace attnscope::cuda
