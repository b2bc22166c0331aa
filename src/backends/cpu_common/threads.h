#pragma once
// Threads of a CPU backend. The count is read once per plan and passed on from there: reading it again
// between sizing scratch and using it is how buffers get overrun.

#include "attnscope/attention.h"

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace attnscope::cpu {

// What the process may use: OMP_NUM_THREADS, else the processors in its affinity mask. Read at first use.
int process_threads();
// The request's limit, at most process_threads().
int plan_threads(const Limits& limits);

// fn(me, size) on each thread of a team of at most `team`.
template <typename Fn>
void run_team(int team, Fn&& fn) {
#if defined(__SANITIZE_THREAD__)
  // GCC's OpenMP runtime synchronises out of the sanitizer's sight: plain threads make the work checkable.
  std::vector<std::thread> others;
  for (int i = 1; i < team; ++i) others.emplace_back([&fn, i, team] { fn(i, team); });
  fn(0, team);
  for (std::thread& t : others) t.join();
#else
#pragma omp parallel num_threads(team)
  fn(omp_get_thread_num(), omp_get_num_threads());
#endif
}

// fn(begin, end, thread) over [0, count) in contiguous parts of at least `grain`; thread < threads. Runs
// inline when one part is enough. fn must not throw.
template <typename Fn>
void parallel_for(int threads, int64_t count, int64_t grain, Fn&& fn) {
  if (count <= 0) return;
  const int64_t most = grain > 0 ? (count + grain - 1) / grain : count;
  const int team = static_cast<int>(most < threads ? most : threads);
  if (team <= 1) {
    fn(int64_t{0}, count, 0);
    return;
  }
  run_team(team, [&](int64_t me, int64_t size) {
    const int64_t begin = count * me / size, end = count * (me + 1) / size;
    if (begin < end) fn(begin, end, static_cast<int>(me));
  });
}

// fn(task, thread) for every task, handed out in order as threads become free: put the longest tasks first.
template <typename Fn>
void parallel_tasks(int threads, int64_t count, Fn&& fn) {
  const int team = static_cast<int>(count < threads ? count : threads);
  if (team <= 1) {
    for (int64_t task = 0; task < count; ++task) fn(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  run_team(team, [&](int me, int) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < count;) fn(task, me);
  });
}

// While it lives, libraries on this thread that ask OpenMP for its default team get `threads`.
class OmpThreadScope {
 public:
  explicit OmpThreadScope(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~OmpThreadScope() { omp_set_num_threads(before_); }
  OmpThreadScope(const OmpThreadScope&) = delete;
  OmpThreadScope& operator=(const OmpThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace attnscope::cpu
