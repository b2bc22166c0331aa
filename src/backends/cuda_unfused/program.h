#pragma once
// An unfused CUDA variant's plan as data: the steps in order, each with what it reads, writes and launches.
// describe(), the cost model, the operators of a trace and the run itself all come from this one list.

#include "attention/backend.h"
#include "backends/cuda_unfused/kernels.h"
#include "base/event_sink.h"
#include "cuda/cublaslt.h"
#include "cuda/memory.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cuda_unfused {

// What a step sees of one call.
struct RunContext {
  const Request& request;
  const Outputs& outputs;
  std::byte* workspace;
  cudaStream_t stream;
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(workspace + offset);
  }
};

// One kernel, copy or fill.
struct Launch {
  EventKind kind = EventKind::kKernel;
  int64_t bytes_read = 0, bytes_written = 0, flops = 0;
  std::function<Status(const RunContext&)> execute;
};

// One operation of the algorithm: an operator in a trace.
struct Step {
  std::string_view name;           // "attnscope::softmax": a literal
  std::string note;                // for describe()
  std::vector<TensorView> inputs;  // shapes for the trace; no data
  std::vector<Launch> launches;
};

struct Program {
  int device = 0;
  std::vector<Step> steps;
  cuda::WorkspaceLayout workspace;
  CostModel cost;  // flops and min_bytes by the builder; the rest is summed from the steps
};

std::shared_ptr<const BackendPlan> make_plan(Program program);

// ---- what the builders share ----

// [B·Hk, G·L, E] seen through one leading dimension and one batch stride, if the view's strides and
// cuBLASLt's 32-bit leading dimension allow it.
struct Collapsed {
  int64_t ld = 0;
  int64_t batch_stride = 0;
};
// groups: heads that share one batch entry (query heads per key head; 1 for k and v).
std::optional<Collapsed> collapse(const TensorView& view, int64_t groups);
Collapsed dense_layout(int64_t rows, int64_t columns);

ScoreShape score_shape(const Request& request);
// Data pointers included: made per call.
KeyGeometry key_geometry(const Request& request);
BroadcastMask broadcast_mask(const TensorView& mask);
bool restricts(const Request& request);  // causal, window or lengths

[[nodiscard]] double score_elements(const Request& request);

}  // namespace attnscope::cuda_unfused
