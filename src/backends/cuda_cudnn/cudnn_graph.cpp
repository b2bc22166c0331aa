#include "backends/cuda_cudnn/cudnn_graph.h"

#include "attention/geometry.h"
#include "cuda/device.h"
#include "cuda/library.h"
#include "cuda/status.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
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

// The pointers of one call as cuDNN takes them. Finalised ones cannot be changed, but a call with the same
// pointers can use one again.
struct VariantPack {
  static constexpr size_t kMostPointers = 16;
  cudnnBackendDescriptor_t descriptor = nullptr;
  uint64_t graph = 0;  // its id; 0: the slot is free
  std::array<void*, kMostPointers> pointers{};
  void* workspace = nullptr;

  VariantPack() = default;
  VariantPack(const VariantPack&) = delete;
  VariantPack& operator=(const VariantPack&) = delete;
  ~VariantPack() { clear(); }
  void clear() {
    if (descriptor) (void)fe::detail::destroy_descriptor(descriptor);
    descriptor = nullptr;
    graph = 0;
  }
};

// What a thread keeps for one device. cuDNN's handles belong to one thread.
struct ThreadState {
  cudnnHandle_t handle = nullptr;
  bool has_stream = false;
  cudaStream_t stream = nullptr;
  unsigned long long stream_id = 0;
  std::array<VariantPack, 8> packs;
  size_t next_pack = 0;

  ThreadState() = default;
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;
  ~ThreadState() {
    for (VariantPack& pack : packs) pack.clear();
    if (handle) (void)fe::detail::destroy_handle(handle);
  }
};

Result<ThreadState*> state_of_thread(int device) {
  thread_local std::map<int, ThreadState> states;  // elements never move
  ThreadState& state = states[device];
  if (state.handle) return &state;
  if (fe::detail::create_handle(&state.handle) != CUDNN_STATUS_SUCCESS) {
    state.handle = nullptr;
    return fail(ErrorCode::kUnavailable, fmt::format("cuDNN gave no handle for CUDA device {}", device),
                "check that this cuDNN fits the driver (attnscope doctor)");
  }
  return &state;
}

bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  (void)cudaGetLastError();
  return true;
}

// While a stream is being captured the driver forbids this thread some calls; not in this mode, and none of
// those that cuDNN makes for a new stream touches the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// cudnnSetStream asks the driver several things also when nothing changes: only a change is passed on. The id
// tells a new stream from a destroyed one at the same address; it is not asked for inside a capture.
Status use_stream(ThreadState& state, cudaStream_t stream, bool captured) {
  unsigned long long id = 0;
  bool known = state.has_stream && state.stream == stream;
  if (!captured) {
    const bool identified = cudaStreamGetId(stream, &id) == cudaSuccess;
    if (!identified) (void)cudaGetLastError();
    known = known && identified && state.stream_id == id;
  }
  if (known) return {};
  state.has_stream = false;
  const RelaxedCapture relaxed;
  const cudnnStatus_t status = fe::detail::set_stream(state.handle, stream);
  if (status != CUDNN_STATUS_SUCCESS)
    return fail(ErrorCode::kInternal,
                fmt::format("cuDNN did not take the stream: {}", fe::detail::get_error_string(status)));
  state.has_stream = !captured;  // without its id, the next call passes it on again
  state.stream = stream;
  state.stream_id = id;
  return {};
}

Status check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return fail(ErrorCode::kInternal, fmt::format("cuDNN: {}: {}", what, fe::detail::get_error_string(status)));
}

// The thread's pack for these pointers: an old one, or a new one in the place of the oldest.
Result<cudnnBackendDescriptor_t> variant_pack(ThreadState& state, uint64_t graph,
                                              const std::vector<int64_t>& uids, void* const* pointers,
                                              void* workspace) {
  const size_t n = uids.size();
  for (const VariantPack& pack : state.packs)
    if (pack.graph == graph && pack.workspace == workspace &&
        std::equal(pointers, pointers + n, pack.pointers.begin()))
      return pack.descriptor;
  VariantPack& pack = state.packs[state.next_pack++ % state.packs.size()];
  pack.clear();
  ATTNSCOPE_TRY(check(fe::detail::create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack.descriptor),
                      "creating a variant pack"));
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                       const void* values) {
    return check(fe::detail::set_attribute(pack.descriptor, name, type, static_cast<int64_t>(count), values),
                 "filling a variant pack");
  };
  ATTNSCOPE_TRY(set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  ATTNSCOPE_TRY(set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers));
  ATTNSCOPE_TRY(set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids.data()));
  ATTNSCOPE_TRY(check(fe::detail::finalize(pack.descriptor), "finishing a variant pack"));
  std::copy(pointers, pointers + n, pack.pointers.begin());
  pack.workspace = workspace;
  pack.graph = graph;
  return pack.descriptor;
}

// The frontend's graph with what its execute() uses, for the direct way to cudnnBackendExecute.
struct OpenGraph : fe::graph::Graph {
  fe::ExecutionPlan* built_plan() const {
    const auto at = static_cast<size_t>(plans.candidate);
    return plans.candidate >= 0 && at < plans.execution_plans.size() ? plans.execution_plans[at].get()
                                                                     : nullptr;
  }
  // Nothing to do for a call beyond passing pointers: no workspace or kernels of the frontend's own.
  bool only_pointers(int64_t total_workspace) {
    const fe::ExecutionPlan* plan = built_plan();
    return plan != nullptr && prepare_variant_pack_template().is_good() &&
           plan->getWorkspaceSize() == total_workspace && varpack_template.workspace_slots.empty() &&
           varpack_template.replacement_slots.empty() && varpack_template.backend_slots.empty() &&
           varpack_template.all_uids.size() <= VariantPack::kMostPointers;
  }
};

uint64_t next_graph_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
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
  OpenGraph graph;
  const uint64_t id = next_graph_id();
  int device = 0;
  bool bias = false, stats = false;
  int64_t workspace = 0;
  bool direct = false;  // run() may go to cudnnBackendExecute itself

  Status run_directly(ThreadState& thread, void* const* given, int n, void* work) const {
    const auto& pack = graph.varpack_template;
    if (pack.user_slots.size() != static_cast<size_t>(n))
      return fail(ErrorCode::kInternal,
                  fmt::format("cuDNN: {} pointers for {} tensors", n, pack.user_slots.size()));
    std::array<void*, VariantPack::kMostPointers> pointers{};
    std::copy(pack.template_ptrs.begin(), pack.template_ptrs.end(), pointers.begin());
    for (size_t i = 0; i < pack.user_slots.size(); ++i)
      pointers[static_cast<size_t>(pack.user_slots[i])] = given[i];
    for (const auto& [slot, alignment] : pack.aligned_slots)
      if (reinterpret_cast<uintptr_t>(pointers[static_cast<size_t>(slot)]) %
              static_cast<uintptr_t>(alignment) !=
          0)
        return fail(
            ErrorCode::kInvalidArgument,
            fmt::format("cuDNN: a tensor starts at an address that is no multiple of {} bytes", alignment));
    ATTNSCOPE_ASSIGN(cudnnBackendDescriptor_t variant,
                     variant_pack(thread, id, pack.all_uids, pointers.data(), work));
    return cudnn::check(fe::detail::execute(thread.handle, graph.built_plan()->get_raw_desc(), variant),
                        "the run failed");
  }
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
    ATTNSCOPE_ASSIGN(const ThreadState* thread, state_of_thread(r.q.device.index));
    cudnnHandle_t handle = thread->handle;
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
    ATTNSCOPE_ASSIGN(const ThreadState* thread, state_of_thread(impl_->device));
    ATTNSCOPE_TRY(cudnn::check(impl_->graph.build_plans(thread->handle), "the plan was not built"));
    ATTNSCOPE_TRY(cudnn::check(impl_->graph.get_workspace_size(impl_->workspace), "workspace size"));
    impl_->direct = impl_->graph.only_pointers(impl_->workspace);
    return {};
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: {}", e.what()));
  }
}

Status Graph::run(const Request& r, void* out, void* stats, void* workspace, cudaStream_t stream) const {
  try {
    ATTNSCOPE_ASSIGN(ThreadState * thread, state_of_thread(impl_->device));
    const bool captured = capturing(stream);
    ATTNSCOPE_TRY(use_stream(*thread, stream, captured));
    void* pointers[6];
    int n = 0;
    pointers[n++] = r.q.data;
    pointers[n++] = r.k.data;
    pointers[n++] = r.v.data;
    if (impl_->bias) pointers[n++] = r.mask.data;
    pointers[n++] = out;
    if (impl_->stats) pointers[n++] = stats;
    // Under capture the frontend sees to it that the CUDA graph keeps the plan alive.
    if (impl_->direct && !captured) return impl_->run_directly(*thread, pointers, n, workspace);
    fe::error_t error = impl_->graph.execute(thread->handle, pointers, n, workspace);
    if (error.is_good()) return {};
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: the run failed: {}", error.get_message()));
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("cuDNN: {}", e.what()));
  }
}

}  // namespace attnscope::cudnn
