// Where the host time of a planned cuDNN call goes: each part alone, ways to execute one plan, and our run(),
// on a small request, in bursts that the launch queue holds. Prints a table and, as its last line, JSON;
// microseconds.
#include "attnscope/attnscope.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attnscope {
cudaError_t launch_empty(cudaStream_t stream);  // flash_forward/host_cost_empty.cu
}
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace {

namespace fe = cudnn_frontend;

constexpr int kCalls = 100, kRounds = 41;
constexpr int64_t kHeads = 8, kLength = 128, kDim = 64;

double median_us(const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    rounds.push_back(took.count() / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

struct OpenGraph : fe::graph::Graph {
  cudnnBackendDescriptor_t plan() const {
    return plans.execution_plans[static_cast<size_t>(plans.candidate)]->get_raw_desc();
  }
};

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}
void must(fe::error_t e) {
  if (e.is_bad()) stop(e.get_message());
}
void must(int code) {
  if (code != 0) stop(attnscope_error_message());
}

fe::graph::Tensor_attributes tensor(const char* name, int64_t uid) {
  const std::vector<int64_t> dim{1, kHeads, kLength, kDim},
      stride{kHeads * kLength * kDim, kLength * kDim, kDim, 1};
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_dim(dim)
      .set_stride(stride)
      .set_data_type(fe::DataType_t::BFLOAT16);
}

void describe(OpenGraph& g, cudnnHandle_t handle) {
  g.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  auto options =
      fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(false).set_attn_scale(0.125f);
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  auto [out, stats] =
      g.sdpa(g.tensor(tensor("q", 1)), g.tensor(tensor("k", 2)), g.tensor(tensor("v", 3)), options);
  out->set_output(true)
      .set_uid(5)
      .set_dim({1, kHeads, kLength, kDim})
      .set_stride({kHeads * kLength * kDim, kLength * kDim, kDim, 1});
  must(g.validate());
  must(g.build_operation_graph(handle));
  must(g.create_execution_plans({fe::HeurMode_t::A}));
  must(g.check_support(handle));
  must(g.build_plans(handle));
}

cudnnBackendDescriptor_t make_pack(const OpenGraph& g, void** pointers, void* workspace) {
  cudnnBackendDescriptor_t pack = nullptr;
  const auto& uids = g.varpack_template.all_uids;
  const auto n = static_cast<int64_t>(uids.size());
  (void)fe::detail::create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  (void)fe::detail::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                  &workspace);
  (void)fe::detail::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
                                  pointers);
  (void)fe::detail::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids.data());
  if (fe::detail::finalize(pack) != CUDNN_STATUS_SUCCESS) stop("a variant pack was not taken");
  return pack;
}

class Table {
 public:
  void row(const char* name, const std::function<void()>& call) {
    call();
    const double us = median_us(call);
    std::printf("%-58s %7.2f\n", name, us);
    std::fflush(stdout);
    json_ += (json_.empty() ? "" : ",") + ("\"" + std::string(name) + "\":" + std::to_string(us));
  }
  ~Table() { std::printf("{\"schema\":\"attnscope.cudnn_host_cost/1\",\"us\":{%s}}\n", json_.c_str()); }

 private:
  std::string json_;
};

void graph_ways(Table& table, OpenGraph& g, cudnnHandle_t handle, cudaStream_t stream,
                cudnnBackendDescriptor_t pack, const std::array<cudnnBackendDescriptor_t, 2>& two_packs) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  (void)cudaGraphCreate(&graph, 0);
  cudnnStatus_t status = fe::detail::populate_cuda_graph(handle, g.plan(), pack, graph);
  if (status != CUDNN_STATUS_SUCCESS) {
    std::printf("no native CUDA graph: %s\n", fe::detail::get_error_string(status));
    return;
  }
  size_t nodes = 0;
  (void)cudaGraphGetNodes(graph, nullptr, &nodes);
  std::printf("native CUDA graph: %zu nodes\n", nodes);
  if (cudaGraphInstantiate(&ready, graph, 0) != cudaSuccess) return;
  table.row("native CUDA graph: cudaGraphLaunch, same pointers",
            [&] { (void)cudaGraphLaunch(ready, stream); });
  int turn = 0;
  bool good = true;
  table.row("native CUDA graph: update, exec update, launch", [&] {
    cudaGraphExecUpdateResultInfo info{};
    good = good && fe::detail::update_cuda_graph(handle, g.plan(), two_packs[static_cast<size_t>(++turn % 2)],
                                                 graph) == CUDNN_STATUS_SUCCESS;
    good = good && cudaGraphExecUpdate(ready, graph, &info) == cudaSuccess;
    (void)cudaGraphLaunch(ready, stream);
  });
  if (!good) std::printf("  (the update was refused)\n");
  cudaDeviceSynchronize();
  (void)cudaGraphExecDestroy(ready);
  (void)cudaGraphDestroy(graph);
}

void parts(Table& table, OpenGraph& g, cudnnHandle_t handle, cudaStream_t stream, void** pointers,
           void* workspace) {
  std::array<void*, 16> at{};
  const auto& pack_template = g.varpack_template;
  const auto fill = [&](void** given) {
    std::copy(pack_template.template_ptrs.begin(), pack_template.template_ptrs.end(), at.begin());
    for (size_t i = 0; i < pack_template.user_slots.size(); ++i)
      at[static_cast<size_t>(pack_template.user_slots[i])] = given[i];
    return at.data();
  };
  cudnnBackendDescriptor_t pack = make_pack(g, fill(pointers), workspace);
  void* other_pointers[4] = {pointers[0], pointers[1], pointers[2], pointers[1]};
  const std::array<cudnnBackendDescriptor_t, 2> two{pack, make_pack(g, fill(other_pointers), workspace)};
  const cudnnStatus_t again =
      fe::detail::set_attribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  std::printf("changing a finalised variant pack: %s; %zu pointers in it; workspace %p\n",
              fe::detail::get_error_string(again), pack_template.all_uids.size(), workspace);
  table.row("cudnnSetStream, unchanged", [&] { (void)fe::detail::set_stream(handle, stream); });
  table.row("cudnnGetStream", [&] {
    cudaStream_t s = nullptr;
    (void)fe::detail::get_stream(handle, &s);
  });
  table.row("cudaStreamGetId", [&] {
    unsigned long long id = 0;
    (void)cudaStreamGetId(stream, &id);
  });
  table.row("cudaStreamIsCapturing", [&] {
    cudaStreamCaptureStatus status{};
    (void)cudaStreamIsCapturing(stream, &status);
  });
  table.row("the frontend's cudaStreamGetCaptureInfo (dlsym a call)", [&] {
    cudaStreamCaptureStatus status{};
    cudaGraph_t capture = nullptr;
    (void)fe::detail::cuda_stream_get_capture_info(stream, &status, &capture);
  });
  table.row("variant pack: create, set, finalise, destroy", [&] {
    cudnnBackendDescriptor_t made = make_pack(g, fill(pointers), workspace);
    (void)fe::detail::destroy_descriptor(made);
  });
  table.row("cudnnBackendExecute alone", [&] { (void)fe::detail::execute(handle, g.plan(), pack); });
  table.row("cudnnBackendExecute, two packs in turn", [&, turn = 0]() mutable {
    (void)fe::detail::execute(handle, g.plan(), two[static_cast<size_t>(++turn % 2)]);
  });
  table.row("a new variant pack + cudnnBackendExecute", [&] {
    cudnnBackendDescriptor_t made = make_pack(g, fill(pointers), workspace);
    (void)fe::detail::execute(handle, g.plan(), made);
    (void)fe::detail::destroy_descriptor(made);
  });
  table.row("the frontend's execute", [&] { (void)g.execute(handle, pointers, 4, workspace); });
  table.row("cudnnSetStream + the frontend's execute", [&] {
    (void)fe::detail::set_stream(handle, stream);
    (void)g.execute(handle, pointers, 4, workspace);
  });
  graph_ways(table, g, handle, stream, pack, two);
}

// A planned call of ours through the C ABI.
class OurCall {
 public:
  OurCall(const std::array<void*, 4>& memory) {
    for (size_t i = 0; i < 4; ++i) {
      tensors_[i] = {};
      tensors_[i].data = memory[i];
      tensors_[i].device = {2, 0};
      tensors_[i].ndim = 4;
      tensors_[i].dtype = {4, 16, 1};
      tensors_[i].shape = shape_;
    }
    attnscope_request_init(&request_);
    request_.causal = 1;
    request_.q = &tensors_[0], request_.k = &tensors_[1], request_.v = &tensors_[2];
    must(attnscope_plan_create(&request_, "cudnn", &plan_));
  }
  ~OurCall() { attnscope_plan_destroy(plan_); }
  OurCall(const OurCall&) = delete;
  OurCall& operator=(const OurCall&) = delete;
  size_t workspace_bytes() const { return attnscope_plan_workspace_bytes(plan_); }
  void run(cudaStream_t stream, void* workspace, size_t bytes) {
    must(attnscope_plan_run(plan_, &request_, &tensors_[3], nullptr, stream, workspace, bytes));
  }
  void sdpa(cudaStream_t stream) { must(attnscope_sdpa(&request_, "cudnn", &tensors_[3], nullptr, stream)); }

 private:
  int64_t shape_[4] = {1, kHeads, kLength, kDim};
  std::array<attnscope_tensor, 4> tensors_;
  attnscope_request request_;
  attnscope_plan* plan_ = nullptr;
};

}  // namespace

int main() {
  std::array<void*, 5> memory{};
  for (void*& m : memory) {
    (void)cudaMalloc(&m, kHeads * kLength * kDim * 2);
    (void)cudaMemset(m, 0, kHeads * kLength * kDim * 2);
  }
  OurCall ours({memory[0], memory[1], memory[2], memory[3]}),
      other({memory[0], memory[1], memory[2], memory[4]});
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);  // the one that our library has opened
  if (fe::cudnn_dlhandle == nullptr) stop("cuDNN is not found");
  std::printf("cuDNN %zu\n", fe::detail::get_backend_version());
  cudaStream_t own = nullptr;
  (void)cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  void* word = nullptr;
  (void)cudaMalloc(&word, 256);
  cudnnHandle_t handle = nullptr;
  if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS) stop("no cuDNN handle");
  (void)fe::detail::set_stream(handle, own);
  OpenGraph graph;
  describe(graph, handle);
  int64_t bytes = 0;
  must(graph.get_workspace_size(bytes));
  const size_t room = std::max(static_cast<size_t>(bytes), ours.workspace_bytes());
  void* workspace = nullptr;
  if (room > 0) (void)cudaMalloc(&workspace, room);
  std::printf("cuDNN's workspace: %lld bytes, ours: %zu\n", static_cast<long long>(bytes),
              ours.workspace_bytes());

  Table table;
  table.row("empty kernel", [&] { attnscope::launch_empty(own); });
  table.row("4-byte cudaMemsetAsync", [&] { (void)cudaMemsetAsync(word, 0, 4, own); });
  table.row("4-byte cudaMemsetAsync + empty kernel", [&] {
    (void)cudaMemsetAsync(word, 0, 4, own);
    attnscope::launch_empty(own);
  });
  void* pointers[4] = {memory[0], memory[1], memory[2], memory[3]};
  parts(table, graph, handle, own, pointers, bytes > 0 ? workspace : nullptr);
  table.row("our planned call", [&] { ours.run(own, workspace, room); });
  table.row("our planned call, default stream", [&] { ours.run(nullptr, workspace, room); });
  table.row("our planned call, two outputs in turn",
            [&, turn = 0]() mutable { (++turn % 2 ? ours : other).run(own, workspace, room); });
  table.row("our planned call, two streams in turn",
            [&, turn = 0]() mutable { ours.run(++turn % 2 ? own : nullptr, workspace, room); });
  table.row("our planned call, no workspace given", [&] { ours.run(own, nullptr, 0); });
  table.row("our sdpa(), plan cached", [&] { ours.sdpa(own); });
  table.row("empty kernel again", [&] { attnscope::launch_empty(own); });
  return 0;
}
