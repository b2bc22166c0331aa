#include "analysis/attention.h"

#include "analysis/attention_shape.h"
#include "analysis/metrics.h"
#include "analysis/ranges.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::Trace;

namespace {

// The engine's wrappers around a backward operator; what they wrap is the call.
bool is_autograd_wrapper(std::string_view name) {
  return name.starts_with("autograd::engine::evaluate_function") || name.ends_with("Backward0") ||
         name.ends_with("Backward1");
}

// Operators of other libraries that attend as a whole; ATen's are known to decode_operator_name.
bool names_attention(std::string_view name) {
  for (std::string_view other : {"reshape_and_cache", "kv_cache", "Backward0", "Backward1"})
    if (name.find(other) != std::string_view::npos) return false;
  for (std::string_view part :
       {"flex_attention", "unified_attention", "paged_attention", "flash_attn", "FlashAttn",
        "native_multi_head_attention", "memory_efficient_attention", "cudnn_attention"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

class AttentionWalk {
 public:
  AttentionWalk(const Trace& trace, const Links& links, const Metrics& metrics)
      : trace_(trace), links_(links), metrics_(metrics), launched_(trace, links) {}

  std::vector<AttentionCall> run() {
    for (uint32_t thread = 0; thread < trace_.threads().size(); ++thread) {
      walk(thread);
      find_hand_written(thread);
    }
    find_bare_kernels();
    for (AttentionCall& call : calls_) finish(call);
    // An operator that started nothing and has no implementation did not attend (a zero-size call, a
    // wrapper).
    std::erase_if(calls_, [](const AttentionCall& call) {
      return call.work.empty() && call.implementation == AttentionImpl::kNone && !call.shape.known();
    });
    std::sort(calls_.begin(), calls_.end(), [&](const AttentionCall& a, const AttentionCall& b) {
      return std::tuple(trace_.ts_ns(a.event), a.event) < std::tuple(trace_.ts_ns(b.event), b.event);
    });
    return std::move(calls_);
  }

 private:
  struct Frame {
    EventIndex event;
    ptrdiff_t call;  // the attention call this span is inside of, −1: none
  };

  const KernelName& operator_name(EventIndex event) {
    const auto [at, fresh] = operators_.try_emplace(trace_.name_id(event));
    if (fresh) {
      at->second = decode_operator_name(trace_.name(event));
      if (names_attention(trace_.name(event))) at->second.kind = KernelKind::kAttention;
    }
    return at->second;
  }
  const KernelName& work_name(EventIndex work) const { return metrics_.decoded(trace_.name_id(work)); }

  void walk(uint32_t thread) {
    std::vector<Frame> stack;
    candidates_.clear();
    for (EventIndex event : links_.preorder(thread)) {
      const EventIndex parent = links_.parent(event);
      while (!stack.empty() && stack.back().event != parent) stack.pop_back();
      ptrdiff_t call = stack.empty() ? -1 : stack.back().call;
      if (trace_.cls(event) == EventClass::kOperator) {
        const KernelName& name = operator_name(event);
        if (call >= 0) {
          AttentionCall& open = calls_[static_cast<size_t>(call)];
          // The innermost operator that names an implementation is the one that ran.
          if (name.kind == KernelKind::kAttention && name.implementation != AttentionImpl::kNone)
            open.implementation = name.implementation;
          // Our own unfused variants name themselves.
          if (const std::string_view own = trace_.name(event);
              own == "attnscope::naive" || own == "attnscope::inplace") {
            open.implementation = AttentionImpl::kAtenMath;
            open.hand_written = true;
          }
        } else if (name.kind == KernelKind::kAttention && !is_autograd_wrapper(trace_.name(event))) {
          call = begin_call(event, name);
        } else {
          candidates_.push_back(event);
        }
      }
      if (call >= 0) {
        AttentionCall& open = calls_[static_cast<size_t>(call)];
        for (EventIndex work : launched_.of(event)) open.work.push_back(work);
      }
      stack.push_back({event, call});
    }
  }

  ptrdiff_t begin_call(EventIndex event, const KernelName& name) {
    AttentionCall call;
    call.event = event;
    call.op = std::string(trace_.name(event));
    call.pass = name.pass == AttentionPass::kNone ? AttentionPass::kForward : name.pass;
    call.implementation = name.implementation;
    call.host_ns = trace_.dur_ns(event);
    read_attention_inputs(trace_.name(event), parse_op_inputs(trace_.operator_args(event)), call);
    calls_.push_back(std::move(call));
    return static_cast<ptrdiff_t>(calls_.size()) - 1;
  }

  // matmul, softmax, matmul whose recorded shapes chain: attention written out by hand.
  void find_hand_written(uint32_t thread) {
    HandWrittenFinder finder;
    for (EventIndex event : candidates_) {
      const std::string_view name = trace_.name(event);
      const HandWrittenPart part = hand_written_part(name);
      if (part == HandWrittenPart::kOther) continue;
      std::optional<AttentionCall> call =
          finder.add(part, event, name, parse_op_inputs(trace_.operator_args(event)));
      if (!call) continue;
      const int64_t begin = trace_.ts_ns(call->event), end = trace_.end_ns(event);
      call->host_ns = end - begin;
      for (EventIndex launch : thread_launches(thread, begin, end))
        for (EventIndex work : launched_.of(launch)) call->work.push_back(work);
      calls_.push_back(std::move(*call));
    }
  }

  // Launches of one thread within a span of host time.
  std::vector<EventIndex> thread_launches(uint32_t thread, int64_t begin_ns, int64_t end_ns) {
    if (by_thread_.empty()) {
      by_thread_.resize(trace_.threads().size());
      for (EventIndex launch : launched_.launches()) by_thread_[trace_.thread(launch)].push_back(launch);
      for (std::vector<EventIndex>& launches : by_thread_)
        std::sort(launches.begin(), launches.end(),
                  [&](EventIndex a, EventIndex b) { return trace_.ts_ns(a) < trace_.ts_ns(b); });
    }
    const std::vector<EventIndex>& launches = by_thread_[thread];
    auto at = std::lower_bound(launches.begin(), launches.end(), begin_ns,
                               [&](EventIndex launch, int64_t t) { return trace_.ts_ns(launch) < t; });
    std::vector<EventIndex> found;
    for (; at != launches.end() && trace_.ts_ns(*at) <= end_ns; ++at) found.push_back(*at);
    return found;
  }

  // Attention kernels that no attention operator launched: graphs, libraries called directly, compiled code.
  void find_bare_kernels() {
    std::unordered_set<EventIndex> taken;
    for (const AttentionCall& call : calls_) taken.insert(call.work.begin(), call.work.end());
    std::map<std::pair<int32_t, int64_t>, size_t> last;  // by queue: its latest call
    for (EventIndex work : links_.device_work()) {
      if (trace_.cls(work) != EventClass::kKernel || taken.contains(work)) continue;
      const KernelName& name = work_name(work);
      if (name.kind != KernelKind::kAttention) continue;
      const trace::Queue queue = trace_.queue(work);
      const auto at = last.find({queue.device, queue.stream});
      // A combine or conversion kernel belongs to the call before it on its stream.
      if (at != last.end() &&
          (name.role == AttentionRole::kCombine || name.role == AttentionRole::kConvert)) {
        calls_[at->second].work.push_back(work);
        continue;
      }
      AttentionCall call;
      call.event = work;
      call.bare_kernel = true;
      call.op = short_kernel_name(name);
      call.pass = name.pass == AttentionPass::kNone ? AttentionPass::kForward : name.pass;
      call.work.push_back(work);
      last[{queue.device, queue.stream}] = calls_.size();
      calls_.push_back(std::move(call));
    }
  }

  void finish(AttentionCall& call) {
    if (metrics_.cpu_only && !call.bare_kernel) add_cpu_leaves(call);
    std::sort(call.work.begin(), call.work.end(), [&](EventIndex a, EventIndex b) {
      return std::tuple(trace_.ts_ns(a), a) < std::tuple(trace_.ts_ns(b), b);
    });
    trace::WorkSum sum;
    bool fused = false;
    for (EventIndex work : call.work) {
      const EventClass cls =
          trace_.cls(work) == EventClass::kOperator ? EventClass::kKernel : trace_.cls(work);
      add_work(sum, cls, trace_.dur_ns(work));
      if (cls != EventClass::kKernel) continue;
      const KernelName& name = work_name(work);
      if (name.kind != KernelKind::kAttention) continue;
      call.attention_kernel_ns += trace_.dur_ns(work);
      // What ran is what the kernel says, not what the operator promised.
      if (is_fused_attention(name.implementation) && !fused) {
        call.implementation = name.implementation;
        fused = true;
      }
      if (call.dtype == NumericType::kUnknown) call.dtype = name.input;
    }
    call.kernels = static_cast<uint32_t>(sum.kernels);
    call.copies = static_cast<uint32_t>(sum.copies);
    call.fills = static_cast<uint32_t>(sum.fills);
    call.device_ns = sum.device_ns;
    if (call.implementation == AttentionImpl::kNone && call.bare_kernel)
      call.implementation = AttentionImpl::kOther;
    estimate_attention_work(call);
    if (!call.flops) recorded_flops(call);
  }

  // A producer that says what its kernels computed (ours) is believed where the inputs do not tell.
  void recorded_flops(AttentionCall& call) const {
    double flops = 0;
    for (EventIndex work : call.work)
      flops += static_cast<double>(std::max<int64_t>(0, trace_.work(work).flops));
    if (flops > 0) call.flops = flops;
  }

  void add_cpu_leaves(AttentionCall& call) {
    const uint32_t thread = trace_.thread(call.event);
    const int64_t begin = trace_.ts_ns(call.event), end = begin + call.host_ns;
    auto at = std::lower_bound(metrics_.cpu_leaves.begin(), metrics_.cpu_leaves.end(), begin,
                               [&](EventIndex leaf, int64_t t) { return trace_.ts_ns(leaf) < t; });
    for (; at != metrics_.cpu_leaves.end() && trace_.ts_ns(*at) <= end; ++at)
      if (trace_.thread(*at) == thread) call.work.push_back(*at);
  }

  const Trace& trace_;
  const Links& links_;
  const Metrics& metrics_;
  LaunchedWork launched_;
  std::vector<AttentionCall> calls_;
  std::vector<EventIndex> candidates_;  // operators of the thread outside every attention call
  std::unordered_map<trace::StringId, KernelName> operators_;
  std::vector<std::vector<EventIndex>> by_thread_;
};

}  // namespace

std::string_view mask_name(MaskUse mask) {
  switch (mask) {
    case MaskUse::kUnknown: return "unknown";
    case MaskUse::kNone: return "none";
    case MaskUse::kCausal: return "causal";
    case MaskUse::kTensor: return "tensor";
    case MaskUse::kBlock: return "block";
  }
  return "unknown";
}

std::vector<AttentionCall> find_attention_calls(const Trace& trace, const Links& links,
                                                const Metrics& metrics) {
  return AttentionWalk(trace, links, metrics).run();
}

std::vector<AttentionGroup> group_attention_calls(const std::vector<AttentionCall>& calls) {
  const auto key = [](const AttentionCall& c) {
    const AttentionShape& s = c.shape;
    return std::tuple(c.op, c.implementation, c.pass, c.dtype, c.mask, s.batch, s.heads, s.kv_heads, s.length,
                      s.kv_length, s.head_dim, s.value_dim);
  };
  std::map<decltype(key(calls[0])), size_t> rows;
  std::vector<AttentionGroup> groups;
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const auto [at, fresh] = rows.try_emplace(key(calls[i]), groups.size());
    if (fresh) groups.emplace_back();
    AttentionGroup& group = groups[at->second];
    group.calls.push_back(i);
    group.device_ns += calls[i].device_ns;
    group.kernels += calls[i].kernels;
  }
  for (AttentionGroup& group : groups) {
    std::vector<int64_t> times;
    for (uint32_t i : group.calls) times.push_back(calls[i].device_ns);
    group.median_device_ns = median_of(times);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const AttentionGroup& a, const AttentionGroup& b) {
    return a.device_ns > b.device_ns;
  });
  return groups;
}

}  // namespace attnscope
