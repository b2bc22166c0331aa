// Writes a trace of about the given size to standard output, as Kineto lays one out: first every operator,
// then every launch with its arrow and every kernel with its own; nothing is kept in memory.
//   generate_trace BYTES
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

namespace {

constexpr int64_t kBaseUs = 5104687564188;
constexpr int kLaunchesPerStep = 500;
constexpr int64_t kLaunchEveryNs = 20'000;

class Output {
 public:
  ~Output() { flush(); }
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    if (text_.size() > (size_t{1} << 20)) flush();
  }
  uint64_t written() const { return written_ + text_.size(); }

 private:
  void flush() {
    for (std::string_view left = text_; !left.empty();) {
      const ssize_t n = write(STDOUT_FILENO, left.data(), left.size());
      if (n <= 0) std::exit(1);
      left.remove_prefix(static_cast<size_t>(n));
    }
    written_ += text_.size();
    text_.clear();
  }
  std::string text_;
  uint64_t written_ = 0;
};

struct Time {
  int64_t us, ns;
};
Time at(int64_t ns) {
  return {kBaseUs + ns / 1000, ns % 1000};
}

constexpr std::string_view kOperators[] = {"aten::linear", "aten::matmul", "aten::mul", "aten::add",
                                           "aten::softmax"};
constexpr std::string_view kKernels[] = {
    "nvjet_sm90_tst_128x128_64x6_1x2_h_bz_coopA_NTT",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, "
    "3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, "
    "false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"};

// One operator around launch n, with an inner one; External ids as Kineto counts them.
void operators(Output& out, int64_t n) {
  const int64_t begin = n * kLaunchEveryNs;
  for (int inner = 0; inner < 2; ++inner) {
    const Time t = at(begin + inner * 2'345);
    out.put(
        R"(  {{
    "ph": "X", "cat": "cpu_op", "name": "{}", "pid": 447, "tid": 447,
    "ts": {}.{:03}, "dur": {}.{:03},
    "args": {{
      "External id": {},"Record function id": 0, "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[1048576, 65536, 64, 1], [1048576, 65536, 1, 64]], "Input Dims": [[8, 16, {}, 64], [8, 16, 64, 1024]], "Ev Idx": {}
    }}
  }},
)",
        kOperators[static_cast<size_t>((n + inner) % 5)], t.us, t.ns, inner ? 9 : 15, 123 + inner,
        2 * n + inner + 1, 64 * (n % 16 + 1), 2 * n + inner);
  }
}

void launch(Output& out, int64_t n) {
  const Time call = at(n * kLaunchEveryNs + 4'500);
  const Time run = at(n * kLaunchEveryNs + 11'000);
  const int64_t id = 100'000 + n * 3;
  out.put(
      R"(  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 447, "tid": 447,
    "ts": {0}.{1:03}, "dur": 5.021,
    "args": {{
      "External id": {4},"cbid": 211, "correlation": {5}
    }}
  }},
  {{
    "ph": "s", "id": {5}, "pid": 447, "tid": 447, "ts": {0}.{1:03},
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "{6}", "pid": 0, "tid": 7,
    "ts": {2}.{3:03}, "dur": 8.{3:03},
    "args": {{
      "External id": {4},
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {5},
      "registers per thread": {7},
      "shared memory": 0,
      "blocks per SM": 7.757576,
      "warps per SM": 31.030304,
      "grid": [{8}, 1, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %": 48
    }}
  }},
  {{
    "ph": "f", "id": {5}, "pid": 0, "tid": 7, "ts": {2}.{3:03},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
)",
      call.us, call.ns, run.us, run.ns, 2 * n + 2, id, kKernels[static_cast<size_t>(n % 3)], 32 + n % 5,
      1024 << n % 4);
}

}  // namespace

int main(int argc, char** argv) {
  const double bytes = argc > 1 ? std::strtod(argv[1], nullptr) : 0;
  if (bytes < 1e4) {
    fmt::print(stderr, "usage: generate_trace BYTES\n");
    return 2;
  }
  Output out;
  out.put(R"({{
  "schemaVersion": 1,
  "deviceProperties": [
    {{ "id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048, "sharedMemPerBlock": 49152, "numSms": 132 }}
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
)");
  // Both passes write the same number of launches; one launch's share of each was measured on the first.
  constexpr double kBytesPerLaunch = 1929;
  const auto launches = static_cast<int64_t>(bytes / kBytesPerLaunch) + 1;
  for (int64_t n = 0; n < launches; ++n) {
    if (n % kLaunchesPerStep == 0) {
      const Time t = at(n * kLaunchEveryNs);
      out.put(R"(  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}", "pid": 447, "tid": 447,
    "ts": {}.{:03}, "dur": {}.000,
    "args": {{
      "External id": {},"Record function id": 0, "Ev Idx": 0
    }}
  }},
)",
              n / kLaunchesPerStep, t.us, t.ns, kLaunchesPerStep * kLaunchEveryNs / 1000, 2'000'000'000 + n);
    }
    operators(out, n);
  }
  for (int64_t n = 0; n < launches; ++n) launch(out, n);
  out.put(R"(  {{
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": {}.000
  }}
  ],
  "traceName": "generated.json"
}}
)",
          kBaseUs + launches * kLaunchEveryNs / 1000);
  return 0;
}
