#pragma once
// Threads of a CPU backend. The count is read once per plan and passed on from there: reading it again
// between sizing scratch and using it is how buffers get overrun.

#include "attnscope/attention.h"

#include <omp.h>

#include <cstdint>

namespace attnscope::cpu {

// What the process may use: OMP_NUM_THREADS, else the processors in its affinity mask. Read at first use.
int process_threads();
// The request's limit, at most process_threads().
int plan_threads(const Limits& limits);

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
#pragma omp parallel num_threads(team)
  {
    const int64_t size = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = count * me / size, end = count * (me + 1) / size;
    if (begin < end) fn(begin, end, static_cast<int>(me));
  }
}

// fn(task, thread) for every task, handed out in order as threads become free: put the longest tasks first.
template <typename Fn>
void parallel_tasks(int threads, int64_t count, Fn&& fn) {
  const int team = static_cast<int>(count < threads ? count : threads);
  if (team <= 1) {
    for (int64_t task = 0; task < count; ++task) fn(task, 0);
    return;
  }
#pragma omp parallel num_threads(team)
  {
    const int me = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < count; ++task) fn(task, me);
  }
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
