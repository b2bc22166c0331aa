#include "backends/cuda_cudnn/cudnn_graph.h"

#include "attention/geometry.h"
#include "cuda/device.h"
#include "cuda/library.h"
#include "cuda/status.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend finds every function of cuDNN through it
}

namespace attnscope::cudnn {
namespace {

namespace fe = cudnn_frontend;

// Unique ids; execute() takes the pointers in their order.
enum Uid : int64_t { kQ = 1, kK, kV, kBias, kOut, kStats };

struct Library {
  cuda::DynamicLibrary cudnn, runtime;
};

Status load_once() {
  static std::mutex mutex;
  static Library* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (loaded) return {};
  auto library = std::make_unique<Library>();
  static constexpr const char* kCudnn[] = {"libcudnn.so.9"};
  ATTNSCOPE_ASSIGN(library->cudnn, cuda::DynamicLibrary::open(kCudnn, "ATTNSCOPE_CUDNN"));
  // The frontend asks for the CUDA runtime by this name; one that is loaded answers.
  static constexpr const char* kRuntime[] = {"libcudart.so.13"};
  ATTNSCOPE_ASSIGN(library->runtime, cuda::DynamicLibrary::open(kRuntime, "ATTNSCOPE_CUDART"));
  fe::cudnn_dlhandle = library->cudnn.handle();
  const size_t version = fe::detail::get_backend_version();
  if (version < 90100)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} is cuDNN {}; 9.1 or newer is needed", library->cudnn.path(), version),
                "install nvidia-cudnn-cu13, or set ATTNSCOPE_CUDNN to a newer one");
  loaded = library.release();
  return {};
}

Status check(fe::error_t error, const char* what) {
  if (error.is_good()) return {};
  std::string reason = error.get_message();
  return fail(ErrorCode::kUnavailable,
              fmt::format("cuDNN: {}: {}", what, reason.empty() ? "no reason given" : reason));
}

// cuDNN's handles belong to one thread; a thread keeps one per device for its life.
struct Handles {
  std::map<int, cudnnHandle_t> by_device;
  ~Handles() {
    for (auto& [device, handle] : by_device) (void)fe::detail::destroy_handle(handle);
  }
};

Result<cudnnHandle_t> handle_of_thread(int device) {
  thread_local Handles handles;
  auto found = handles.by_device.find(device);
  if (found != handles.by_device.end()) return found->second;
  cudnnHandle_t handle = nullptr;
  if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS)
    return fail(ErrorCode::kUnavailable, fmt::format("cuDNN gave no handle for CUDA device {}", device),
                "check that this cuDNN fits the driver (attnscope doctor)");
  handles.by_device.emplace(device, handle);
  return handle;
}

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return fe::DataType_t::BFLOAT16;
    case DType::kF16: return fe::DataType_t::HALF;
    default: return fe::DataType_t::FLOAT;
  }
}

fe::graph::Tensor_attributes tensor(const char* name, Uid uid, const TensorView& v) {
  std::vector<int64_t> dims, strides;
  for (int d = 0; d < 4; ++d) {
    dims.push_back(v.size(d));
    strides.push_back(v.stride(d));
  }
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_dim(dims)
      .set_stride(strides)
      .set_data_type(data_type(v.dtype));
}

// The bias with all four dimensions; those it broadcasts over are 1.
TensorView four_dimensions(const TensorView& mask) {
  TensorView v = mask;
  v.rank = 4;
  v.sizes = {1, 1, 1, 1};
  v.strides = {0, 0, 0, 1};
  for (int d = 0; d < mask.rank; ++d) {
    v.sizes[static_cast<size_t>(4 - mask.rank + d)] = mask.size(d);
    v.strides[static_cast<size_t>(4 - mask.rank + d)] = mask.stride(d);
  }
  // A dimension of size 1 needs a stride that looks dense.
  int64_t extent = 1;
  for (size_t d = 4; d-- > 0;) {
    if (v.sizes[d] == 1) v.strides[d] = extent;
    extent = std::max(extent, v.sizes[d] * v.strides[d]);
  }
  return v;
}

fe::graph::SDPA_attributes attributes_of(const Request& r) {
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(r.wants.lse)
                     .set_attn_scale(static_cast<float>(r.effective_scale()));
  if (r.causal != CausalMode::kNone) {
    options.set_diagonal_alignment(r.causal == CausalMode::kTopLeft ? fe::DiagonalAlignment_t::TOP_LEFT
                                                                    : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
    options.set_diagonal_band_right_bound(0);
    if (r.window.left >= 0) options.set_diagonal_band_left_bound(static_cast<int>(r.window.left) + 1);
  }
  return options;
}

}  // namespace

Result<std::string> version() {
  try {
    ATTNSCOPE_TRY(load_once());
    const size_t v = fe::detail::get_backend_version();
    return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
  } catch (const std::exception& e) {
    return fail(ErrorCode::kUnavailable, fmt::format("cuDNN cannot be used: {}", e.what()));
  }
}

struct Graph::Impl {
  fe::graph::Graph graph;
  int device = 0;
  bool bias = false, stats = false;
  int64_t workspace = 0;
};

Graph::Graph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Graph::~Graph() = default;
size_t Graph::workspace_bytes() const {
  return static_cast<size_t>(impl_->workspace);
}

Result<std::unique_ptr<Graph>> Graph::check(const Request& r) {
  try {
    ATTNSCOPE_TRY(load_once());
    const cuda::DeviceGuard guard(r.q.device.index);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    ATTNSCOPE_ASSIGN(cudnnHandle_t handle, handle_of_thread(r.q.device.index));
    auto impl = std::make_unique<Impl>();
    impl->device = r.q.device.index;
    impl->bias = r.mask_kind == MaskKind::kBias;
    impl->stats = r.wants.lse;
    fe::graph::Graph& g = impl->graph;
    g.set_io_data_type(data_type(r.q.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    auto q = g.tensor(tensor("q", kQ, r.q));
    auto k = g.tensor(tensor("k", kK, r.k));
    auto v = g.tensor(tensor("v", kV, r.v));
    auto options = attributes_of(r);
    if (impl->bias) options.set_bias(g.tensor(tensor("bias", kBias, four_dimensions(r.mask))));
    auto [out, stats] = g.sdpa(q, k, v, options);
    const int64_t b = r.batch(), h = r.heads(), l = r.q_len(), e = r.value_dim();
    out->set_output(true).set_uid(kOut).set_dim({b, h, l, e}).set_stride({h * l * e, l * e, e, 1});
    if (impl->stats)
      stats->set_output(true)
          .set_uid(kStats)
          .set_data_type(fe::DataType_t::FLOAT)
          .set_dim({b, h, l, 1})
          .set_stride({h * l, l, 1, 1});
    ATTNSCOPE_TRY(cudnn::check(g.validate(), "the graph is not valid"));
    ATTNSCOPE_TRY(cudnn::check(g.build_operation_graph(handle), "no operation graph"));
    ATTNSCOPE_TRY(cudnn::check(g.create_execution_plans({fe::HeurMode_t::A}), "no engine takes this"));
    ATTNSCOPE_TRY(cudnn::check(g.check_support(handle), "no engine takes this"));
    return std::unique_ptr<Graph>(new Graph(std::move(impl)));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kUnavailable, fmt::format("cuDNN: {}", e.what()));
  }
}

Status Graph::build() {
  try {
    const cuda::DeviceGuard guard(impl_->device);
    ATTNSCOPE_ASSIGN(cudnnHandle_t handle, handle_of_thread(impl_->device));
    ATTNSCOPE_TRY(cudnn::check(impl_->graph.build_plans(handle), "the plan was not built"));
    return cudnn::check(impl_->graph.get_workspace_size(impl_->workspace), "workspace size");
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: {}", e.what()));
  }
}

Status Graph::run(const Request& r, void* out, void* stats, void* workspace, cudaStream_t stream) const {
  try {
    ATTNSCOPE_ASSIGN(cudnnHandle_t handle, handle_of_thread(impl_->device));
    if (fe::detail::set_stream(handle, stream) != CUDNN_STATUS_SUCCESS)
      return fail(ErrorCode::kInternal, "cuDNN did not take the stream");
    void* pointers[6];
    int n = 0;
    pointers[n++] = r.q.data;
    pointers[n++] = r.k.data;
    pointers[n++] = r.v.data;
    if (impl_->bias) pointers[n++] = r.mask.data;
    pointers[n++] = out;
    if (impl_->stats) pointers[n++] = stats;
    fe::error_t error = impl_->graph.execute(handle, pointers, n, workspace);
    if (error.is_good()) return {};
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: the run failed: {}", error.get_message()));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: {}", e.what()));
  }
}

}  // namespace attnscope::cudnn
