// cudnn: NVIDIA's own generator of fused attention kernels, through cudnn-frontend. What it accepts is its
// own to say; its reasons become refusals. The plan search happens in plan(), under a range of its own, and
// is cached by shape.

#include "attention/backend.h"

#include "attention/cost.h"
#include "attention/refusal.h"
#include "attention/request_key.h"
#include "backends/cuda_cudnn/cudnn_graph.h"
#include "backends/cuda_unfused/kernels.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <limits>
#include <list>
#include <mutex>

namespace attnscope {
namespace {

bool is_dense(const TensorView& v) {
  int64_t expected = 1;
  for (int d = v.rank - 1; d >= 0; --d) {
    if (v.size(d) != 1 && v.stride(d) != expected) return false;
    expected *= v.size(d);
  }
  return true;
}

TensorView as_4d(const TensorView& v) {
  TensorView out = v;
  if (v.rank == 3) {
    out.rank = 4;
    out.sizes[3] = 1;
    out.strides[3] = 1;
  }
  return out;
}

// The answer to "does cuDNN take this": a graph, or its reason. Asked by refusals() and used by plan():
// remembered for a bounded number of requests.
class SupportCache {
 public:
  struct Answer {
    std::shared_ptr<cudnn::Graph> graph;  // null: refused
    std::string reason;
    std::mutex building;
    bool built = false;
  };
  std::shared_ptr<Answer> ask(const Request& request) {
    const std::string key = request_key(request);
    std::lock_guard lock(mutex_);
    for (auto it = answers_.begin(); it != answers_.end(); ++it)
      if (it->first == key) {
        answers_.splice(answers_.begin(), answers_, it);
        return answers_.front().second;
      }
    auto answer = std::make_shared<Answer>();
    const EventScope scope("attnscope::cudnn_support", EventKind::kRuntime);
    auto graph = cudnn::Graph::check(request);
    if (graph)
      answer->graph = std::move(*graph);
    else
      answer->reason = graph.error().message;
    answers_.emplace_front(key, answer);
    if (answers_.size() > kMost) answers_.pop_back();
    return answer;
  }

 private:
  static constexpr size_t kMost = 256;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Answer>>> answers_;
};

SupportCache& support() {
  static auto* cache = new SupportCache();
  return *cache;
}

class CudnnPlan final : public BackendPlan {
 public:
  CudnnPlan(const Request& request, std::shared_ptr<cudnn::Graph> graph)
      : graph_(std::move(graph)), device_(request.q.device.index), cost_(base_cost(request)) {
    out_ = TensorView::contiguous(nullptr, request.q.dtype,
                                  {request.batch(), request.heads(), request.q_len(), request.value_dim()},
                                  request.q.device);
    stats_ = TensorView::contiguous(nullptr, DType::kF32,
                                    {request.batch(), request.heads(), request.q_len(), 1}, request.q.device);
    work_at_ = layout_.add(graph_->workspace_bytes());
    out_at_ = layout_.add(static_cast<size_t>(out_.numel()) * dtype_size(out_.dtype));
    if (request.wants.lse) stats_at_ = layout_.add(static_cast<size_t>(stats_.numel()) * 4);
    // The two staging parts serve outputs that are not dense; without them a call needs no workspace at all.
    cost_.moved_bytes = cost_.min_bytes;
    cost_.kernels = 1;
    cost_.intermediate_bytes = static_cast<double>(graph_->workspace_bytes());
  }
  size_t workspace_bytes() const override { return layout_.total(); }
  CostModel cost() const override { return cost_; }
  std::vector<std::string> steps() const override {
    const auto version = cudnn::version();
    return {fmt::format(
        "kernel attention  cuDNN {}, workspace {}; one more kernel for out or lse when they are not dense",
        version ? *version : "?", format_bytes(static_cast<double>(graph_->workspace_bytes())))};
  }

  Status run(const Request& request, const Outputs& outputs, const RunOptions& options) const override {
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    const auto stream = static_cast<cudaStream_t>(options.stream);
    const TensorView lse = as_4d(outputs.lse);
    const bool out_direct = is_dense(outputs.out) && reinterpret_cast<uintptr_t>(outputs.out.data) % 16 == 0;
    const bool lse_direct = !request.wants.lse || is_dense(outputs.lse);
    // A dense call takes no more memory than cuDNN's own workspace.
    const size_t bytes = out_direct && lse_direct ? graph_->workspace_bytes() : layout_.total();
    ATTNSCOPE_ASSIGN(const cuda::Workspace workspace, cuda::Workspace::acquire(options, bytes, device_));
    auto* base = static_cast<std::byte*>(workspace.data());
    TensorView out = out_, stats = stats_;
    out.data = out_direct ? outputs.out.data : base + out_at_;
    stats.data = !request.wants.lse ? nullptr : lse_direct ? outputs.lse.data : base + stats_at_;
    {
      const EventScope work(
          "attnscope::cudnn", EventKind::kKernel,
          static_cast<int64_t>(cost_.min_bytes) - out_.numel() * static_cast<int64_t>(dtype_size(out_.dtype)),
          out_.numel() * static_cast<int64_t>(dtype_size(out_.dtype)), static_cast<int64_t>(cost_.flops));
      ATTNSCOPE_TRY(graph_->run(request, out.data, stats.data, base + work_at_, stream));
    }
    if (!out_direct) ATTNSCOPE_TRY(copy(out, outputs.out, stream));
    if (!lse_direct) ATTNSCOPE_TRY(copy(stats, lse, stream));
    return {};
  }

 private:
  static Status copy(const TensorView& from, const TensorView& to, cudaStream_t stream) {
    const int64_t bytes = from.numel() * static_cast<int64_t>(dtype_size(from.dtype));
    const EventScope work("attnscope::contiguous", EventKind::kKernel, bytes, bytes);
    return cuda::check(cuda_unfused::convert(from, to, {}, stream), "copy kernel of an output");
  }

  std::shared_ptr<cudnn::Graph> graph_;
  int device_;
  CostModel cost_;
  TensorView out_, stats_;
  cuda::WorkspaceLayout layout_;
  size_t work_at_ = 0, out_at_ = 0, stats_at_ = 0;
};

void refuse_unsupported_fields(const Request& r, Refusals& refusals) {
  if (!dtype_is_half(r.q.dtype))
    refusals.add("dtype", fmt::format("cuDNN's attention takes f16 and bf16, not {}", dtype_name(r.q.dtype)),
                 "use math or efficient");
  if (r.mask_kind == MaskKind::kBool)
    refusals.add("bool-mask", "a bool mask would first have to be turned into a bias by another kernel",
                 "pass a bias of 0 and −inf, or use flash or math");
  if (r.mask_kind == MaskKind::kBias && r.mask.dtype == DType::kF64)
    refusals.add("bias-dtype", "cuDNN takes no f64 bias", "use f32");
  if (r.lengths.has_kv_lengths() || r.lengths.packed())
    refusals.add("lengths", "lengths and packed sequences are not passed on to cuDNN", "use flash or math");
  if (r.paging.active()) refusals.add("paged-cache", "a paged cache is not passed on to cuDNN", "use flash");
  if (r.sinks.data != nullptr)
    refusals.add("sinks", "attention sinks are not passed on to cuDNN", "use math");
  if (!(r.effective_scale() > 0))
    refusals.add("scale",
                 fmt::format("with scale {:g} cuDNN's kernel gives NaN: it takes the maximum before scaling",
                             r.effective_scale()),
                 "use flash or math");
  if (r.softcap > 0) refusals.add("softcap", "cuDNN's graph here has no soft cap", "use flash or math");
  if (r.dropout.p > 0)
    refusals.add("dropout", "cuDNN draws other bits than every other variant", "use flash or math");
  if (r.alibi_slopes.data != nullptr)
    refusals.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
  if (!r.score_program.empty()) refusals.add("score-program", "score programs are not implemented");
  if (r.window.active() &&
      (r.causal == CausalMode::kNone || r.window.right >= 0 || r.window.left >= (int64_t{1} << 30)))
    refusals.add("window", "cuDNN takes a window to the left under a causal mask only", "use flash or math");
  if (r.causal == CausalMode::kLowerRight && r.q_len() > r.kv_len())
    refusals.add("empty-rows",
                 fmt::format("lower-right causal with {} queries over {} keys has rows without keys",
                             r.q_len(), r.kv_len()),
                 "use flash or math");
  if (r.wants.deterministic)
    refusals.add("deterministic", "cuDNN does not promise equal bits from run to run", "use flash or math");
  if (r.limits.sm_count > 0 || r.limits.splits > 1)
    refusals.add("limits", "cuDNN cannot be held to a number of multiprocessors or splits");
  if (r.batch() * r.heads() * r.q_len() == 0 || r.kv_len() == 0 || r.head_dim() == 0 || r.value_dim() == 0)
    refusals.add("empty", "an empty tensor gives cuDNN nothing to do", "use math");
}

void refuse_layout(const Request& r, Refusals& refusals) {
  for (const auto& [name, v] : {std::pair{"q", &r.q}, std::pair{"k", &r.k}, std::pair{"v", &r.v}}) {
    if (v->size(3) > 1 && v->stride(3) != 1)
      refusals.add("last-stride", fmt::format("the last stride of {} is {}, not 1", name, v->stride(3)),
                   fmt::format("make {} contiguous", name));
    if (reinterpret_cast<uintptr_t>(v->data) % 16 != 0)
      refusals.add("misaligned", fmt::format("{} starts at an address that is no multiple of 16 bytes", name),
                   "start views at a multiple of 8 elements");
    for (int d = 0; d < 3; ++d)
      if (v->size(d) > 1 && v->stride(d) % 8 != 0) {
        refusals.add("stride-alignment",
                     fmt::format("stride {} of {} is {}, no multiple of 8", d, name, v->stride(d)),
                     "pad the rows");
        break;
      }
    // Strides of heads and batch entries are right beyond that (cuDNN 9.19 on an H200).
    if (v->size(2) > 1 && v->stride(2) > std::numeric_limits<int32_t>::max())
      refusals.add(
          "far-rows",
          fmt::format(
              "rows of {} are {} elements apart: cuDNN's kernels wrap that at 2^31 and read elsewhere", name,
              v->stride(2)),
          "use flash or math, or make it contiguous");
    for (int d = 0; d < 3; ++d)
      if (v->size(d) > 1 && v->stride(d) == 0) {
        refusals.add("broadcast", fmt::format("{} is broadcast over dimension {} by stride 0", name, d),
                     "use fewer key heads, or materialise it");
        break;
      }
  }
}

class CudaCudnn final : public Backend {
 public:
  std::string_view name() const override { return "cudnn"; }
  std::string_view description() const override {
    return "NVIDIA's generated fused kernel; the plan search happens in plan()";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override {
    if (std::string reason = cuda::unavailable_reason(); !reason.empty()) return reason;
    if (auto version = cudnn::version(); !version) return version.error().message;
    return {};
  }
  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    refuse_unsupported_fields(request, refusals);
    refuse_layout(request, refusals);
    if (!refusals.empty()) return refusals.take();
    const auto answer = support().ask(request);
    if (!answer->graph) refusals.add("cudnn-says-no", answer->reason, "use flash, efficient or math");
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    const auto answer = support().ask(request);
    if (!answer->graph) return fail(ErrorCode::kUnavailable, answer->reason);
    {
      std::lock_guard lock(answer->building);
      if (!answer->built) {
        const EventScope scope("attnscope::cudnn_plan_search", EventKind::kRuntime);
        ATTNSCOPE_TRY(answer->graph->build());
        answer->built = true;
      }
    }
    return std::make_shared<CudnnPlan>(request, answer->graph);
  }
};

}  // namespace

const Backend& cuda_cudnn_backend() {
  static const CudaCudnn backend;
  return backend;
}

}  // namespace attnscope
