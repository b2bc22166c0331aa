// What the machine can do, measured in the process and seconds in which the calls are: reads from memory and
// f32 multiply-adds.

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__)
#define ATTNSCOPE_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define ATTNSCOPE_CLONES
#endif

namespace {

volatile uint64_t g_sink;
volatile float g_float;

constexpr int64_t kWords = 64;  // a step: eight lines of 64 bytes

// Sums every word, eight lines a step, each line asked for `ahead` bytes early (0: left to the hardware).
ATTNSCOPE_CLONES uint64_t sum_words(const uint64_t* at, int64_t words, int64_t ahead) {
  uint64_t sums[kWords] = {};
  for (int64_t i = 0; i + kWords <= words; i += kWords) {
    if (ahead > 0)
      for (int64_t line = 0; line < kWords; line += 8)
        __builtin_prefetch(reinterpret_cast<const char*>(at + i + line) + ahead, 0, 2);
    for (int64_t k = 0; k < kWords; ++k) sums[k] += at[i + k];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

// Independent chains of multiply-adds in registers: as many as hide their latency on two ports.
constexpr int64_t kSteps = 1 << 20;
constexpr int kChains = 16;

#if defined(__x86_64__)
[[gnu::target("avx512f")]] double flops_avx512() {
  __m512 x[kChains];
  for (__m512& v : x) v = _mm512_set1_ps(1.0f);
  const __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t n = 0; n < kSteps; ++n) {
#pragma GCC unroll 16
    for (__m512& v : x) v = _mm512_fmadd_ps(v, factor, factor);
  }
  for (const __m512& v : x) g_float = _mm512_cvtss_f32(v);
  return 2.0 * 16 * kChains * kSteps;
}
[[gnu::target("avx2,fma")]] double flops_avx2() {
  constexpr int kFew = 12;  // of 16 registers
  __m256 x[kFew];
  for (__m256& v : x) v = _mm256_set1_ps(1.0f);
  const __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t n = 0; n < kSteps; ++n) {
#pragma GCC unroll 12
    for (__m256& v : x) v = _mm256_fmadd_ps(v, factor, factor);
  }
  for (const __m256& v : x) g_float = _mm256_cvtss_f32(v);
  return 2.0 * 8 * kFew * kSteps;
}
#endif

// Runs them on one thread; how many operations that were. 0: not known for this processor.
double multiply_adds() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return flops_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return flops_avx2();
#endif
  return 0;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// GB/s of one pass of `threads` threads over `bytes` of memory at p, the better of reading with and without
// early requests.
extern "C" double attnscope_bench_read(const void* p, int64_t bytes, int threads) {
  double best = 0;
  for (const int64_t ahead : {0, 4096}) {
    uint64_t total = 0;
    const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
      const int64_t words = bytes / 8 / omp_get_num_threads() / kWords * kWords;
      total += sum_words(static_cast<const uint64_t*>(p) + words * omp_get_thread_num(), words, ahead);
    }
    best = std::max(best, static_cast<double>(bytes) / (now() - start) * 1e-9);
    g_sink = total;
  }
  return best;
}

// GFLOP/s of f32 multiply-adds in registers; 0 where there is no such loop.
extern "C" double attnscope_bench_multiply_adds(int threads) {
  double operations = 0;
  const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
  operations += multiply_adds();
  return operations / (now() - start) * 1e-9;
}
