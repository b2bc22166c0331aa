#include "backends/cpu_fused/fused_plan.h"

#include "attention/cost.h"
#include "attention/dropout_bits.h"
#include "attention/geometry.h"
#include "attention/memory.h"
#include "backends/cpu_common/threads.h"
#include "backends/cpu_common/workspace.h"
#include "backends/cpu_fused/isa.h"
#include "base/event_sink.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace attnscope::cpu_fused {
namespace {

Element element_of(DType t) {
  switch (t) {
    case DType::kF64: return Element::kF64;
    case DType::kF16: return Element::kF16;
    case DType::kBF16: return Element::kBF16;
    case DType::kBool: return Element::kBool;
    default: return Element::kF32;
  }
}

// A view of rank ≤ 4 seen as [·, ·, ·, ·] aligned at the right (or the left, for the LSE), strides in bytes,
// 0 where the size is 1.
Strided strided(const TensorView& v, bool align_left = false) {
  Strided s{static_cast<char*>(v.data), {0, 0, 0, 0}};
  for (int d = 0; d < v.rank; ++d)
    if (v.size(d) != 1)
      s.stride[align_left ? d : 4 - v.rank + d] = v.stride(d) * static_cast<int64_t>(dtype_size(v.dtype));
  return s;
}

// A dense last dimension of size 1 keeps the stride that the fast paths ask for.
Strided strided_rows(const TensorView& v) {
  Strided s = strided(v);
  if (v.size(3) <= 1) s.stride[3] = static_cast<int64_t>(dtype_size(v.dtype));
  return s;
}

void set_scale(double scale, Problem* p) {
  p->q_sign = scale < 0 ? -1.0f : 1.0f;
  p->q_exponent = 0;
  double size = std::fabs(scale);
  if (size == 0.0) {  // every score is 0, whatever the multiplier
    p->q_sign = 0.0f;
    size = 1.0;
  }
  if (size < 1.0) {
    p->q_exponent = static_cast<int>(std::floor(std::log2(size)));
    size = std::ldexp(size, -p->q_exponent);
  }
  p->lse_multiplier = size;
  p->multiplier = static_cast<float>(std::min(size, 1e38));
}

void set_dropout(const Dropout& d, Problem* p) {
  p->keep_scale = 1.0f;
  p->dropout = d.p > 0.0 && d.p < 1.0;
  p->drop_all = d.p >= 1.0;
  if (!p->dropout) return;
  p->seed = d.seed_on_device ? d.seed_on_device[0] : d.seed;
  p->offset = d.seed_on_device ? d.seed_on_device[1] : d.offset;
  p->drop_threshold = dropout_threshold(d.p);
  p->keep_scale = static_cast<float>(1.0 / (1.0 - d.p));
}

Problem make_problem(const Request& r, const Outputs& outputs, const Tiling& tiling) {
  Problem p{};
  p.q = strided_rows(r.q);
  p.k = strided_rows(r.k);
  p.v = strided_rows(r.v);
  p.out = strided_rows(outputs.out);
  if (r.wants.lse) p.lse = strided(outputs.lse, true);
  if (r.mask_kind != MaskKind::kNone) {
    p.mask = strided(r.mask);
    p.mask_element = element_of(r.mask.dtype);
  }
  if (r.paging.active()) {
    p.block_table = strided(r.paging.block_table, true);
    p.page_size = r.paging.page_size;
  }
  p.heads = r.heads();
  p.q_len = r.q_len();
  p.head_dim = r.head_dim();
  p.value_dim = r.value_dim();
  p.group = head_group(r);
  p.k_ratio = r.heads() > 0 ? r.heads() / r.k.size(1) : 1;
  p.v_ratio = r.heads() > 0 ? r.heads() / r.v.size(1) : 1;
  p.left = r.window.left >= 0 ? std::min(r.window.left, kUnbounded) : kUnbounded;
  p.right = r.window.right >= 0 ? std::min(r.window.right, kUnbounded) : kUnbounded;
  if (r.causal != CausalMode::kNone) p.right = 0;
  p.softcap = static_cast<float>(r.softcap);
  set_scale(r.effective_scale(), &p);
  set_dropout(r.dropout, &p);
  p.rows_per_task = tiling.rows_per_task;
  p.keys_per_block = tiling.keys_per_block;
  return p;
}

// New keys (or values) of every batch entry go to the cache behind those it holds.
void append_to_cache(const Request& r, const TensorView& fresh, const TensorView& cache, int threads) {
  const Paging& paging = r.paging;
  const auto size = dtype_size(cache.dtype);
  const int64_t heads = fresh.size(1), count = fresh.size(2), width = fresh.size(3);
  cpu::parallel_tasks(threads, fresh.size(0) * heads, [&](int64_t task, int) {
    const int64_t b = task / heads, h = task % heads;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t key = stored_keys(r, b) + n;
      const int32_t page =
          paging.block_table.as<int32_t>()[element_offset(paging.block_table, b, key / paging.page_size)];
      for (int64_t e = 0; e < width; ++e)
        std::memcpy(cache.as<char>() +
                        static_cast<size_t>(element_offset(cache, page, h, key % paging.page_size, e)) * size,
                    fresh.as<char>() + static_cast<size_t>(element_offset(fresh, b, h, n, e)) * size, size);
    }
  });
}

// Packed rows past the last sequence belong to none: output 0, LSE −inf.
void clear_rows(const Request& r, const Outputs& o, int64_t first) {
  for (int64_t h = 0; h < r.heads(); ++h)
    for (int64_t i = first; i < r.q_len(); ++i) {
      for (int64_t e = 0; e < r.value_dim(); ++e) write_element(o.out, 0.0, 0, h, i, e);
      if (r.wants.lse) write_element(o.lse, -std::numeric_limits<double>::infinity(), 0, h, i);
    }
}

class FusedPlan final : public BackendPlan {
 public:
  FusedPlan(const Variant& variant, const KernelSet& kernels, const Request& request, const Tiling& tiling)
      : variant_(variant), kernels_(kernels), tiling_(tiling) {
    const Problem p = make_problem(request, {}, tiling_);
    scratch_bytes_ = cpu::align_up(kernels_.scratch_bytes(p));
    partial_bytes_ = cpu::align_up(partial_bytes(request, tiling_, kernels_.value_align));
    set_cost(request, p);
    step_ = fmt::format("{}  {}  {} rows × {} keys a block, {} thread{}{}{}", variant_.kernel, kernels_.isa,
                        tiling_.rows_per_task, tiling_.keys_per_block, tiling_.threads,
                        tiling_.threads == 1 ? "" : "s",
                        should_stream(request, variant_.style) ? ", streamed" : "",
                        tiling_.splits > 1 ? fmt::format(", keys in {} parts", tiling_.splits) : "");
  }

  Status run(const Request& request, const Outputs& outputs, const RunOptions& options) const override {
    ATTNSCOPE_ASSIGN(const cpu::Workspace workspace, cpu::Workspace::acquire(options, workspace_bytes()));
    if (appends(request)) append(request);
    const Problem problem = make_problem(request, outputs, tiling_);
    char* base = reinterpret_cast<char*>(workspace.base());
    const Schedule schedule =
        make_schedule(request, problem, tiling_, kernels_.value_align,
                      reinterpret_cast<float*>(base + scratch_bytes_ * static_cast<size_t>(tiling_.threads)));
    EventInfo info{variant_.kernel, EventKind::kKernel};
    const TensorView* const inputs[] = {&request.q, &request.k, &request.v};
    if (g_event_sink.load(std::memory_order_acquire) != nullptr) {
      const Work work = work_of(request, problem, schedule, kernels_.row_tile);
      info.bytes_read = static_cast<int64_t>(work.bytes_read);
      info.bytes_written = static_cast<int64_t>(work.bytes_written);
      info.flops = static_cast<int64_t>(work.flops);
      info.inputs = inputs;
      info.input_count = 3;
    }
    const EventScope scope(info);
    if (request.lengths.packed())
      clear_rows(request, outputs, read_index(request.lengths.cu_q, request.lengths.cu_q.size(0) - 1));
    run_tasks(problem, schedule, base);
    return {};
  }

  size_t workspace_bytes() const override {
    return scratch_bytes_ * static_cast<size_t>(tiling_.threads) + partial_bytes_;
  }
  CostModel cost() const override { return cost_; }
  std::vector<std::string> steps() const override {
    std::vector<std::string> all;
    if (cost_.copies > 0) all.emplace_back("append the new keys and values to the cache");
    all.push_back(step_);
    return all;
  }

 private:
  static bool appends(const Request& r) {
    return r.paging.append_k.data != nullptr && r.paging.append_k.size(2) > 0;
  }

  static int64_t appended_bytes(const Request& r) {
    return static_cast<int64_t>(dtype_size(r.paging.append_k.dtype)) *
           (r.paging.append_k.numel() + r.paging.append_v.numel());
  }

  void append(const Request& r) const {
    const TensorView &k = r.paging.append_k, &v = r.paging.append_v;
    const int64_t bytes = appended_bytes(r);
    const EventScope scope("append_kv", EventKind::kCopy, bytes, bytes);
    append_to_cache(r, k, r.k, tiling_.threads);
    append_to_cache(r, v, r.v, tiling_.threads);
  }

  void run_tasks(const Problem& problem, const Schedule& schedule, char* scratch) const {
    const auto count = static_cast<int64_t>(schedule.tasks.size());
    const auto splits = static_cast<int64_t>(tiling_.splits);
    // Parts of each row block still to come; the thread that finishes the last one merges them.
    std::vector<std::atomic<int>> pending(splits > 1 ? static_cast<size_t>(count / splits) : 0);
    for (std::atomic<int>& p : pending) p.store(tiling_.splits, std::memory_order_relaxed);
    cpu::parallel_tasks(tiling_.threads, count, [&](int64_t i, int thread) {
      void* mine = scratch + scratch_bytes_ * static_cast<size_t>(thread);
      const Task& task = schedule.tasks[static_cast<size_t>(i)];
      kernels_.run_task(problem, task, mine);
      if (splits == 1) return;
      if (pending[static_cast<size_t>(i / splits)].fetch_sub(1, std::memory_order_acq_rel) == 1)
        kernels_.merge(problem, &schedule.tasks[static_cast<size_t>(i / splits * splits)], mine);
    });
  }

  // Lengths are data: the model takes them as full. Packed sequences count as one of average length each.
  void set_cost(const Request& r, const Problem& p) {
    const double n =
        r.lengths.packed() ? static_cast<double>(std::max<int64_t>(1, r.lengths.cu_q.size(0) - 1)) : 1.0;
    const auto len = static_cast<double>(r.q_len()) / n, keys = static_cast<double>(r.kv_len()) / n;
    const double kept = kept_of(r, std::llround(len), std::llround(keys));
    const double rows = static_cast<double>(r.q.size(0)) * static_cast<double>(r.heads()) * n;
    const auto element = static_cast<double>(dtype_size(r.q.dtype));
    const auto heads = static_cast<double>(r.heads());
    cost_.flops = 2.0 * rows * kept * static_cast<double>(r.head_dim() + r.value_dim());
    const double out_bytes =
        rows * len * (static_cast<double>(r.value_dim()) * element + (r.wants.lse ? 4.0 : 0.0));
    const double q_bytes = rows * len * static_cast<double>(r.head_dim()) * element;
    const double batch = static_cast<double>(r.batch());
    const double kv_bytes =
        batch * static_cast<double>(r.kv_len()) * element *
        (static_cast<double>(r.k.size(1) * r.head_dim()) + static_cast<double>(r.v.size(1) * r.value_dim()));
    const double mask_bytes =
        r.mask_kind == MaskKind::kNone
            ? 0.0
            : static_cast<double>(r.mask.numel()) * static_cast<double>(dtype_size(r.mask.dtype));
    cost_.min_bytes = base_cost(r).min_bytes;
    // Every row block reads the keys it sees once more.
    const double blocks =
        std::max(1.0, std::ceil(len * static_cast<double>(p.group) / tiling_.rows_per_task));
    const double seen = len > 0 && keys > 0 ? kept / (len * keys) : 1.0;
    const double kv_reads = batch * static_cast<double>(r.kv_len()) * element * heads /
                            static_cast<double>(p.group) * static_cast<double>(r.head_dim() + r.value_dim()) *
                            blocks * seen;
    cost_.moved_bytes = q_bytes + std::max(kv_reads, kv_bytes * seen) + out_bytes + mask_bytes;
    if (appends(r)) cost_.moved_bytes += 2.0 * static_cast<double>(appended_bytes(r));
    cost_.intermediate_bytes = static_cast<double>(workspace_bytes());
    cost_.kernels = 1;
    cost_.copies = appends(r) ? 1 : 0;
  }

  Variant variant_;
  const KernelSet& kernels_;
  Tiling tiling_;
  size_t scratch_bytes_ = 0, partial_bytes_ = 0;
  CostModel cost_;
  std::string step_;
};

Result<std::shared_ptr<const FusedPlan>> build(const Variant& variant, const Request& r) {
  ATTNSCOPE_ASSIGN(const cpu::IsaInfo chosen, cpu::selected_isa());
  // f32 cut into pieces is up to 1.3 times as fast as AVX-512 while a core is alone, slower when two threads
  // share its tiles: only for those who ask.
  const bool native = variant.style == Style::kTuned && (r.q.dtype != DType::kF32 || chosen.asked);
  const KernelSet& kernels =
      kernel_set(chosen.isa, element_of(r.q.dtype), native ? Precision::kNative : Precision::kWiden,
                 should_stream(r, variant.style) ? Access::kStream : Access::kPanels);
  const Tiling tiling = choose_tiling(r, variant.style, kernels, cpu::plan_threads(r.limits));
  return std::make_shared<const FusedPlan>(variant, kernels, r, tiling);
}

}  // namespace

std::vector<Refusal> refusals(const Variant& variant, const Request& r) {
  Refusals all(variant.name);
  if (r.q.dtype == DType::kF64)
    all.add("dtype", "computes in f32: f64 is not taken", "use math, or convert to f32");
  if (r.sinks.data != nullptr)
    all.add("sinks", "attention sinks are not taken", "use a backend that takes sinks");
  if (r.alibi_slopes.data != nullptr) all.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
  if (!r.score_program.empty())
    all.add("score-program", "score programs are not taken", "express the change as a bias");
  if (all.empty())
    if (const auto plan = build(variant, r)) refuse_if_too_big(r, (*plan)->cost().intermediate_bytes, all);
  return all.take();
}

Result<std::shared_ptr<const BackendPlan>> make_plan(const Variant& variant, const Request& request) {
  ATTNSCOPE_ASSIGN(auto plan, build(variant, request));
  return std::shared_ptr<const BackendPlan>(std::move(plan));
}

}  // namespace attnscope::cpu_fused
