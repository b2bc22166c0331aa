// Guess files are written by hand and by strangers: whatever the bytes, the parser answers with a guess or an
// error, and what it accepted can be held against a trace and against names.
#include "analysis/check.h"
#include "analysis/guess.h"
#include "analysis/kernel_name.h"
#include "trace/builder.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace {

using namespace attnscope;

// One operator "a" with a kernel under it.
const Metrics& small_metrics() {
  static const trace::Trace trace = [] {
    trace::TraceBuilder builder;
    trace::EventInput op;
    op.cls = trace::EventClass::kOperator;
    op.name = builder.intern("a");
    op.ts_ns = 0;
    op.dur_ns = 1000;
    op.thread = builder.thread(1, 1);
    builder.add(op);
    trace::EventInput launch;
    launch.cls = trace::EventClass::kRuntime;
    launch.name = builder.intern("cudaLaunchKernel");
    launch.ts_ns = 10;
    launch.dur_ns = 10;
    launch.thread = op.thread;
    launch.correlation = 1;
    builder.add(launch);
    trace::KernelConfig config;
    config.registers = 255;
    config.block = {128, 1, 1};
    config.grid = {8, 1, 1};
    config.shared_bytes = 0;
    trace::EventInput kernel;
    kernel.cls = trace::EventClass::kKernel;
    kernel.name = builder.intern("ampere_sgemm_128x64_tn");
    kernel.ts_ns = 30;
    kernel.dur_ns = 100;
    kernel.thread = builder.thread(0, 7);
    kernel.correlation = 1;
    kernel.queue = {0, 1, 7};
    kernel.config = &config;
    builder.add(kernel);
    return builder.finish();
  }();
  static const trace::Links links = trace::Links::build(trace);
  static const Metrics metrics = compute_metrics(trace, links);
  return metrics;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Guess> guess = parse_guess(text, "fuzz.toml");
  if (guess) (void)check_guess(small_metrics(), *guess);
  // Names come from the same hands.
  const KernelName name = decode_kernel_name(text);
  (void)short_kernel_name(name);
  (void)decode_operator_name(text);
  return 0;
}
