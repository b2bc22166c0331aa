// Compiling at run time, without a GPU: keys, modes, what is seen when it fails, crashes or is not there.
// What needs NVRTC is skipped, visibly, where there is none.
#include "cuda/jit.h"

#include "base/event_sink.h"
#include "cuda/isolated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace attnscope::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr KernelSource kSources[] = {
    {"k/entry.cu",
     "#include \"k/a.cuh\"\nextern \"C\" __global__ void twice(float* x) { x[threadIdx.x] = "
     "scaled(x[threadIdx.x]); }\n"},
    {"k/a.cuh",
     "#pragma once\n  #include \"k/b.cuh\"\n__device__ float scaled(float x) { return FACTOR * shifted(x); "
     "}\n"},
    {"k/b.cuh", "#pragma once\n#include \"k/a.cuh\"\n__device__ float shifted(float x) { return x + 1; }\n"},
    {"k/other.cuh", "not C++\n"},
};

KernelInstance instance() {
  return {"twice", "k/entry.cu", {"FACTOR=2"}, "sm_90a", kSources};
}

std::vector<std::string> paths(const std::vector<KernelSource>& sources) {
  std::vector<std::string> found;
  for (const KernelSource& s : sources) found.emplace_back(s.path);
  return found;
}

TEST(JitSources, TheClosureIsWhatTheEntryIncludes) {
  EXPECT_THAT(paths(*closure_of("k/entry.cu", kSources)), ElementsAre("k/entry.cu", "k/a.cuh", "k/b.cuh"));
  const KernelSource missing[] = {{"e.cu", "#include \"gone.cuh\"\n"}};
  const auto closure = closure_of("e.cu", missing);
  ASSERT_FALSE(closure);
  EXPECT_THAT(closure.error().message, HasSubstr("gone.cuh is not embedded"));
}

TEST(JitSources, TheKeyFollowsAllThatTheResultDependsOn) {
  const std::string key = *source_hash(instance());
  EXPECT_EQ(key, *source_hash(instance()));
  KernelInstance other = instance();
  other.defines = {"FACTOR=3"};
  EXPECT_NE(*source_hash(other), key);
  other = instance();
  other.arch = "sm_80";
  EXPECT_NE(*source_hash(other), key);
  std::vector<KernelSource> sources(std::begin(kSources), std::end(kSources));
  sources[3].text = "still not C++\n";
  other = instance();
  other.sources = sources;
  EXPECT_EQ(*source_hash(other), key) << "a source that the kernel does not include";
  sources[2].text = "__device__ float shifted(float x) { return x + 2; }\n";
  EXPECT_NE(*source_hash(other), key);
}

TEST(JitMode, TheVariableIsOneOfThree) {
  const auto mode_of = [](const char* value) {
    setenv("ATTNSCOPE_JIT", value, 1);
    const auto mode = jit_mode();
    unsetenv("ATTNSCOPE_JIT");
    return mode;
  };
  EXPECT_EQ(*jit_mode(), JitMode::kOn);
  EXPECT_EQ(*mode_of("off"), JitMode::kOff);
  EXPECT_EQ(*mode_of("0"), JitMode::kOff);
  EXPECT_EQ(*mode_of("cache"), JitMode::kCacheOnly);
  const auto odd = mode_of("\x1b[31mmaybe");
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().message.find('\x1b'), std::string::npos);
  setenv("ATTNSCOPE_JIT", "off", 1);
  const auto off = jit_kernel(instance());
  unsetenv("ATTNSCOPE_JIT");
  ASSERT_FALSE(off);
  EXPECT_EQ(off.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(off.error().message, "ATTNSCOPE_JIT=off");
}

TEST(Isolated, BytesAndErrorsComeBack) {
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(*run_isolated("it", 20'000, [&]() -> Result<std::string> { return large; }), large);
  const auto failed = run_isolated(
      "it", 20'000, []() -> Result<std::string> { return fail(ErrorCode::kUnavailable, "no", "do this"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.error().message, "no");
  EXPECT_EQ(failed.error().remedy, "do this");
  const auto thrown =
      run_isolated("it", 20'000, []() -> Result<std::string> { throw std::runtime_error("odd"); });
  ASSERT_FALSE(thrown);
  EXPECT_EQ(thrown.error().message, "odd");
}

TEST(Isolated, ACrashIsAnErrorAndNothingMore) {
  const auto crashed = run_isolated("the compiler", 20'000, []() -> Result<std::string> {
    std::raise(SIGSEGV);
    return std::string();
  });
  ASSERT_FALSE(crashed);
  EXPECT_EQ(crashed.error().message, "the compiler crashed with signal 11");
  const auto left = run_isolated("the compiler", 20'000, []() -> Result<std::string> { _exit(0); });
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().message, "the compiler ended without a result");
}

TEST(Isolated, WhatTakesTooLongIsEnded) {
  const auto slow = run_isolated("the compiler", 50, []() -> Result<std::string> {
    std::this_thread::sleep_for(std::chrono::minutes(10));
    return std::string();
  });
  ASSERT_FALSE(slow);
  EXPECT_THAT(slow.error().message, HasSubstr("was ended"));
}

class Spans final : public EventSink {
 public:
  Spans() { g_event_sink.store(this); }
  ~Spans() override { g_event_sink.store(nullptr); }
  void begin(const EventInfo& info) noexcept override { names.emplace_back(info.name); }
  void end() noexcept override {}
  void instant(const EventInfo&) noexcept override {}
  std::vector<std::string> names;
};

class Jit : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-jit-" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  Result<KernelCache> cache() const { return KernelCache((root_ / "kernels").string()); }
  static Result<Nvrtc> no_nvrtc() {
    return fail(ErrorCode::kUnavailable, "libnvrtc.so.13 was not found", "install it");
  }

  fs::path root_;
};

TEST_F(Jit, WithoutNvrtcTheReasonIsItsOwn) {
  const auto kernel = jit_kernel(instance(), JitMode::kOn, no_nvrtc(), cache());
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(kernel.error().message, "libnvrtc.so.13 was not found");
  EXPECT_EQ(kernel.error().remedy, "install it");
}

TEST_F(Jit, WithoutNvrtcAFilledCacheServes) {
  ASSERT_TRUE(cache()->store(*source_hash(instance()), {"twice", "NVRTC 12.9", "a cubin"}));
  for (const JitMode mode : {JitMode::kOn, JitMode::kCacheOnly}) {
    const auto kernel = jit_kernel(instance(), mode, no_nvrtc(), cache());
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_TRUE(kernel->from_cache);
    EXPECT_EQ(kernel->cubin, "a cubin");
    EXPECT_EQ(kernel->compiler, "NVRTC 12.9");
  }
}

TEST_F(Jit, CacheModeCompilesNothing) {
  const auto kernel = jit_kernel(instance(), JitMode::kCacheOnly, no_nvrtc(), cache());
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, HasSubstr("twice is not in the cache"));
  EXPECT_THAT(kernel.error().remedy, HasSubstr("attnscope warm"));
}

// The rest compiles.
class Compiling : public Jit {
 protected:
  void SetUp() override {
    Jit::SetUp();
    if (!nvrtc_) GTEST_SKIP() << nvrtc_.error().message;
  }
  Result<JitKernel> compile(const KernelInstance& what) const {
    return jit_kernel(what, JitMode::kOn, nvrtc_, cache());
  }
  Result<Nvrtc> nvrtc_ = Nvrtc::open();
};

TEST_F(Compiling, OnceThenFromTheCache) {
  Spans spans;
  const auto first = compile(instance());
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_FALSE(first->from_cache);
  EXPECT_EQ(first->cubin.substr(1, 3), "ELF");
  EXPECT_GT(first->compile_s, 0);
  EXPECT_TRUE(fs::exists(first->cache_path));
  EXPECT_EQ(first->note, "");
  EXPECT_THAT(spans.names, ElementsAre("attnscope::load_image", "attnscope::jit_compile"));
  spans.names.clear();
  const auto second = compile(instance());
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(second->cubin, first->cubin);
  EXPECT_EQ(second->cache_path, first->cache_path);
  EXPECT_THAT(spans.names, ElementsAre("attnscope::load_image"));
}

TEST_F(Compiling, ADamagedEntryIsCompiledAgainAndSaid) {
  const auto first = compile(instance());
  ASSERT_TRUE(first);
  fs::resize_file(first->cache_path, 100);
  const auto again = compile(instance());
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->from_cache);
  EXPECT_THAT(again->note, HasSubstr("is damaged"));
  EXPECT_TRUE(compile(instance())->from_cache) << "and the damage is gone";
}

TEST_F(Compiling, ACacheThatCannotBeWrittenCostsNothingElse) {
  fs::create_directories(root_);
  std::ofstream(root_ / "kernels") << "a file where the folder should be";
  const auto kernel = compile(instance());
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_THAT(kernel->note, HasSubstr("not kept: "));
  EXPECT_EQ(kernel->cache_path, "");
}

TEST_F(Compiling, TheCompilersErrorIsShown) {
  KernelInstance wrong = instance();
  wrong.defines = {"FACTOR=nonsense"};
  const auto kernel = compile(wrong);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::kInternal);
  EXPECT_THAT(kernel.error().message, HasSubstr("nonsense"));
  wrong = instance();
  wrong.arch = "sm_1";
  EXPECT_FALSE(compile(wrong));
}

TEST_F(Compiling, SpillsAreRefused) {
  constexpr KernelSource kSpills[] = {{"s.cu", R"(
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* x) {
  float a[96];
  for (int i = 0; i < 96; ++i) a[i] = x[i * 1024 + threadIdx.x];
  for (int n = 0; n < 100; ++n)
#pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i + 1) % 96] + a[(i + 7) % 96];
#pragma unroll
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = a[i];
}
)"}};
  const auto kernel = compile({"spills", "s.cu", {}, "sm_90a", kSpills});
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, HasSubstr("spill"));
}

}  // namespace
}  // namespace attnscope::cuda
