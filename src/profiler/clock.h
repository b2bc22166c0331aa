#pragma once
// The profiler's clock: the time stamp counter where it is invariant (about 10 ns a reading), else the
// monotonic clock. Ticks become nanoseconds once, when a session ends, from two calibration points.

#include <time.h>

#include <cstdint>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace attnscope::profiler {

inline int64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The counter runs at one rate in every power state (CPUID 0x80000007, EDX bit 8).
inline bool has_invariant_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) == 1 && (d & (1u << 8)) != 0;
#else
  return false;
#endif
}

class TickClock {
 public:
  uint64_t now() const noexcept {
#if defined(__x86_64__)
    if (counter_) return __rdtsc();
#endif
    return static_cast<uint64_t>(clock_ns(CLOCK_MONOTONIC));
  }

 private:
  bool counter_ = has_invariant_counter();
};

// One instant on both clocks. The counter is read on both sides of the monotonic one; the closest of a few
// attempts is kept, so that being descheduled in between does not bend the line.
struct CalibrationPoint {
  uint64_t ticks = 0;
  int64_t monotonic_ns = 0;

  static CalibrationPoint take(const TickClock& clock) {
    CalibrationPoint best;
    uint64_t best_gap = UINT64_MAX;
    for (int attempt = 0; attempt < 8; ++attempt) {
      const uint64_t before = clock.now();
      const int64_t ns = clock_ns(CLOCK_MONOTONIC);
      const uint64_t after = clock.now();
      if (after - before >= best_gap) continue;
      best_gap = after - before;
      best = {before + (after - before) / 2, ns};
    }
    return best;
  }
};

// The line through two calibration points, as nanoseconds since the first. Within the session the error is
// that of the two readings (tens of ns), however short the session was.
class TickScale {
 public:
  TickScale(CalibrationPoint first, CalibrationPoint last)
      : origin_(first.ticks),
        ns_per_tick_(last.ticks > first.ticks ? static_cast<double>(last.monotonic_ns - first.monotonic_ns) /
                                                    static_cast<double>(last.ticks - first.ticks)
                                              : 1.0) {}
  int64_t ns(uint64_t ticks) const {
    const double since =
        ticks >= origin_ ? static_cast<double>(ticks - origin_) : -static_cast<double>(origin_ - ticks);
    return static_cast<int64_t>(since * ns_per_tick_);
  }

 private:
  uint64_t origin_;
  double ns_per_tick_;
};

}  // namespace attnscope::profiler
