#include "backends/cuda_unfused/program.h"

#include "attention/geometry.h"
#include "backends/cuda_unfused/common.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attnscope::cuda_unfused {
namespace {

std::string shape_text(const TensorView& v) {
  std::string text = fmt::format("{} [", dtype_name(v.dtype));
  for (int d = 0; d < v.rank; ++d) text += fmt::format("{}{}", d == 0 ? "" : ",", v.size(d));
  return text + "]";
}

class ProgramPlan final : public BackendPlan {
 public:
  explicit ProgramPlan(Program program) : program_(std::move(program)) {
    CostModel& cost = program_.cost;
    for (const Step& step : program_.steps)
      for (const Launch& launch : step.launches) {
        cost.moved_bytes += static_cast<double>(launch.bytes_read + launch.bytes_written);
        ++(launch.kind == EventKind::kCopy   ? cost.copies
           : launch.kind == EventKind::kFill ? cost.fills
                                             : cost.kernels);
      }
    cost.intermediate_bytes = static_cast<double>(program_.workspace.total());
  }

  Status run(const Request& request, const Outputs& outputs, const RunOptions& options) const override {
    const cuda::DeviceGuard guard(program_.device);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    ATTNSCOPE_ASSIGN(const cuda::Workspace workspace,
                     cuda::Workspace::acquire(options, workspace_bytes(), program_.device));
    const RunContext context{request, outputs, static_cast<std::byte*>(workspace.data()),
                             static_cast<cudaStream_t>(options.stream)};
    for (const Step& step : program_.steps) {
      const TensorView* inputs[4] = {};
      EventInfo info{step.name, EventKind::kOperator};
      for (const TensorView& view : step.inputs)
        if (info.input_count < 4) inputs[info.input_count++] = &view;
      info.inputs = inputs;
      const EventScope scope(info);
      for (const Launch& launch : step.launches) {
        const EventScope work(step.name, launch.kind, launch.bytes_read, launch.bytes_written, launch.flops);
        ATTNSCOPE_TRY(launch.execute(context));
      }
    }
    return {};
  }
  size_t workspace_bytes() const override { return program_.workspace.total(); }
  CostModel cost() const override { return program_.cost; }

  std::vector<std::string> steps() const override {
    std::vector<std::string> lines;
    for (const Step& step : program_.steps) {
      std::string shapes;
      for (const TensorView& view : step.inputs) shapes += "  " + shape_text(view);
      for (const Launch& launch : step.launches) {
        const char* what = launch.kind == EventKind::kCopy   ? "copy"
                           : launch.kind == EventKind::kFill ? "fill"
                                                             : "kernel";
        lines.push_back(fmt::format("{:<6} {:<24}{}  reads {}, writes {}{}{}", what, step.name, shapes,
                                    format_bytes(static_cast<double>(launch.bytes_read)),
                                    format_bytes(static_cast<double>(launch.bytes_written)),
                                    step.note.empty() ? "" : "  — ", step.note));
      }
    }
    return lines;
  }

 private:
  Program program_;
};

}  // namespace

std::shared_ptr<const BackendPlan> make_plan(Program program) {
  return std::make_shared<ProgramPlan>(std::move(program));
}

std::optional<Collapsed> collapse(const TensorView& v, int64_t groups) {
  const int64_t b = v.size(0), h = v.size(1), l = v.size(2), e = v.size(3);
  if (e > 1 && v.stride(3) != 1) return std::nullopt;
  const int64_t heads = h / std::max<int64_t>(groups, 1);
  int64_t ld = l > 1 ? v.stride(2) : e;
  const int64_t head = h > 1 ? v.stride(1) : 0;
  if (groups > 1) {
    if (l == 1)
      ld = head;  // one row per head: the heads are the rows
    else if (head != l * ld)
      return std::nullopt;
  }
  // cuBLASLt has no algorithm for leading dimensions that 32 bits do not hold.
  if (ld < std::max<int64_t>(e, 1) || ld > std::numeric_limits<int32_t>::max()) return std::nullopt;
  int64_t batch = 0;
  if (heads > 1) {
    batch = groups * head;
    if (b > 1 && v.stride(0) != heads * batch) return std::nullopt;
  } else if (b > 1) {
    batch = v.stride(0);
  }
  return Collapsed{ld, batch};
}

Collapsed dense_layout(int64_t rows, int64_t columns) {
  return {columns, rows * columns};
}

ScoreShape score_shape(const Request& r) {
  return {r.batch(), r.heads(), r.q_len(), r.kv_len(), padded(r.kv_len())};
}

double score_elements(const Request& r) {
  return static_cast<double>(r.batch()) * static_cast<double>(r.heads()) * static_cast<double>(r.q_len()) *
         static_cast<double>(padded(r.kv_len()));
}

KeyGeometry key_geometry(const Request& r) {
  KeyGeometry g;
  g.causal = r.causal == CausalMode::kTopLeft ? 1 : r.causal == CausalMode::kLowerRight ? 2 : 0;
  g.left = r.window.left;
  g.right = r.window.right;
  g.q_len = r.q_len();
  g.kv_len = r.kv_len();
  if (r.lengths.has_kv_lengths()) {
    g.kv_lengths = r.lengths.kv_lengths.data;
    g.kv_stride = r.lengths.kv_lengths.stride(0);
    g.wide_lengths = r.lengths.kv_lengths.dtype == DType::kI64;
  }
  if (r.lengths.packed()) {
    g.cu_q = r.lengths.cu_q.data;
    g.cu_k = r.lengths.cu_k.data;
    g.cu_q_stride = r.lengths.cu_q.stride(0);
    g.cu_k_stride = r.lengths.cu_k.stride(0);
    g.wide_q = r.lengths.cu_q.dtype == DType::kI64;
    g.wide_k = r.lengths.cu_k.dtype == DType::kI64;
    g.sequences = r.lengths.cu_q.size(0) - 1;
  }
  return g;
}

BroadcastMask broadcast_mask(const TensorView& mask) {
  const MaskAccess access(mask);
  return {access.data, access.dtype, access.stride_b, access.stride_h, access.stride_i, access.stride_j};
}

bool restricts(const Request& r) {
  return r.causal != CausalMode::kNone || r.window.active() || r.lengths.has_kv_lengths() ||
         r.lengths.packed();
}

std::string unavailable_reason() {
  if (std::string reason = cuda::unavailable_reason(); !reason.empty()) return reason;
  if (auto version = cuda::cublaslt_version(); !version) return version.error().message;
  return {};
}

void refuse_common(const Request& r, double bytes, Refusals& refusals) {
  if (r.q.dtype == DType::kF64)
    refusals.add("dtype", "f64 has no CUDA kernels here", "use f32, or the CPU's math");
  if (const Status device = cuda::usable(r.q.device.index); !device)
    refusals.add("device", device.error().message, device.error().remedy);
  // Vectors are counted in 32 bits by the grids.
  if (score_elements(r) / 8 / 1024 >= 2147483647.0)
    refusals.add("too-many-scores",
                 fmt::format("{:.3g} scores are more than one launch can cover", score_elements(r)),
                 "split the batch");
  int64_t budget = r.limits.memory_bytes;
  if (budget == 0)
    if (auto info = cuda::device_info(r.q.device.index)) budget = (*info)->memory_bytes / 10 * 9;
  if (budget > 0 && bytes > static_cast<double>(budget))
    refusals.add(
        "too-big-for-memory",
        fmt::format("needs {} for intermediates, {} {}", format_bytes(bytes),
                    format_bytes(static_cast<double>(budget)),
                    r.limits.memory_bytes > 0 ? "is the limit set" : "is what the GPU has"),
        "use a fused variant (flash, cudnn), whose memory does not grow with L·S, or a smaller batch");
}

}  // namespace attnscope::cuda_unfused
