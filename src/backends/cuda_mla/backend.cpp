// mla: which requests it takes, how the keys are shared, the launches of a call.

#include "attention/backend.h"

#include "attention/cost.h"
#include "attention/refusal.h"
#include "backends/cuda_append/append.h"
#include "backends/cuda_append/arguments.h"
#include "backends/cuda_decode/request.h"
#include "backends/cuda_mla/images.h"
#include "backends/cuda_mla/params.h"
#include "backends/cuda_mla/schedule.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/image.h"
#include "cuda/memory.h"
#include "cuda/status.h"
#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

namespace attnscope {
namespace {

using mla::EmbeddedImage;
using mla::Kernel;
using mla::Params;

constexpr std::string_view kName = "mla";
constexpr const char* kForward = "mla_forward";
constexpr const char* kCombine = "mla_combine";
constexpr int kForwardThreads = 384, kCombineThreads = 128;
constexpr int kOtherBackends = 256;  // head sizes that flash and decode take

bool is_hopper(const cuda::DeviceInfo& info) {
  return info.major == 9 && info.minor == 0;
}

// An image, loaded once per device and process; the loading is a visible span.
Result<const cuda::Image*> loaded(DType dtype, Kernel kernel, bool alias, int device) {
  static std::mutex mutex;
  static std::map<std::pair<const EmbeddedImage*, int>, cuda::Image> cache;  // elements never move
  const auto all = mla::images();
  const auto found = std::find_if(all.begin(), all.end(), [&](const EmbeddedImage& i) {
    return i.dtype == dtype && i.kernel == kernel && i.alias == alias;
  });
  if (found == all.end())
    return fail(ErrorCode::kInternal, fmt::format("no image of mla for {}", dtype_name(dtype)));
  const std::scoped_lock lock(mutex);
  const auto key = std::pair(&*found, device);
  if (const auto it = cache.find(key); it != cache.end()) return &it->second;
  const EventScope scope("attnscope::load_image", EventKind::kRuntime);
  const bool forward = kernel == Kernel::kForward;
  ATTNSCOPE_ASSIGN(cuda::Image fresh,
                   cuda::Image::load(found->bytes(), forward ? kForward : kCombine, "mla_shared_bytes",
                                     forward ? kForwardThreads : kCombineThreads, device));
  return &cache.emplace(key, fresh).first->second;
}

// Everything of a plan but the addresses.
struct Prepared {
  const cuda::Image* aliased = nullptr;  // when strides allow that V is K's first columns
  const cuda::Image* separate = nullptr;
  const cuda::Image* combine = nullptr;  // when pieces go to memory
  append::Step append;                   // before it
  decode::Params params;
  int blocks = 0;
};

// Whole rows of the output may be written 16 bytes at a time.
bool has_vectors(const TensorView& v) {
  if (v.size(3) % 8 != 0 || v.stride(3) != 1 || reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (v.size(d) > 1 && v.stride(d) % 8 != 0) return false;
  return true;
}

class MlaPlan final : public BackendPlan {
 public:
  MlaPlan(const Request& r, const Prepared& prepared, const cuda::DriverApi& api)
      : prepared_(prepared), api_(api), device_(r.q.device.index), cost_(base_cost(r)) {
    if (r.paging.active()) cost_.min_bytes = decode::paged_bytes(r);
    cost_.intermediate_bytes = static_cast<double>(workspace_bytes());
    cost_.moved_bytes =
        cost_.min_bytes + 2 * cost_.intermediate_bytes + 2 * static_cast<double>(append::bytes_of(r));
    cost_.kernels = work() ? 1 + (prepared_.combine != nullptr) : 0;
    cost_.kernels += prepared_.append.needed() ? 1 : 0;
  }

  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (!work() && !prepared_.append.needed()) return {};
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    ATTNSCOPE_TRY(prepared_.append.run(r, options.stream));
    if (!work()) return {};
    ATTNSCOPE_ASSIGN(const cuda::Workspace workspace,
                     cuda::Workspace::acquire(options, workspace_bytes(), device_));
    Params p{};
    p.rest = prepared_.params;
    decode::set_addresses(r, outputs, workspace.data(), &p.rest);
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.k, mla::kTileKeys, &p.k));
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.v, mla::kTileKeys, &p.v));
    p.out_vectors = has_vectors(outputs.out);
    p.column_blocks = mla::column_blocks(p.rest.problem.parts);
    const auto stream = static_cast<CUstream>(options.stream);
    ATTNSCOPE_TRY(forward(r, p, stream));
    if (prepared_.combine == nullptr) return {};
    const EventScope scope(kCombine, EventKind::kKernel, static_cast<int64_t>(workspace_bytes()),
                           decode::output_bytes(r));
    const int64_t blocks = decode::combine_blocks(p.rest) * p.column_blocks;
    return prepared_.combine->launch(static_cast<int>(blocks), &p, stream, {1, true});
  }

  size_t workspace_bytes() const override { return decode::workspace_of(prepared_.params).total(); }
  CostModel cost() const override { return cost_; }

  std::vector<std::string> steps() const override {
    std::vector<std::string> steps;
    if (prepared_.append.needed()) steps.push_back(prepared_.append.describe());
    if (!work()) {
      steps.emplace_back("nothing to compute");
      return steps;
    }
    const decode::Problem& p = prepared_.params.problem;
    const cuda::Image& image = *(prepared_.aliased != nullptr ? prepared_.aliased : prepared_.separate);
    steps.push_back(fmt::format(
        "kernel {}  {} tiles of {} rows ({} heads × {} rows packed), {}, {} blocks of {} threads, {} "
        "registers, {} "
        "shared; {}",
        kForward, p.all_tiles(), mla::kTileRows, p.pack, p.length, sharing_text(), prepared_.blocks,
        kForwardThreads, image.resources().registers, format_bytes(image.resources().shared_bytes),
        prepared_.aliased != nullptr ? "K read once for both products when V has its address"
                                     : "V is read beside K"));
    if (prepared_.combine != nullptr)
      steps.push_back(fmt::format("kernel {}  joins the pieces: {} of workspace", kCombine,
                                  format_bytes(static_cast<double>(workspace_bytes()))));
    return steps;
  }

 private:
  bool work() const {
    return prepared_.params.problem.all_tiles() > 0 && prepared_.params.problem.rows() > 0;
  }

  Status forward(const Request& r, const Params& p, CUstream stream) const {
    const bool alias = prepared_.aliased != nullptr && r.v.data == r.k.data;
    const int64_t written =
        prepared_.combine != nullptr ? static_cast<int64_t>(workspace_bytes()) : decode::output_bytes(r);
    EventInfo info{kForward, EventKind::kKernel,
                   static_cast<int64_t>(cost_.min_bytes) - decode::output_bytes(r), written,
                   static_cast<int64_t>(cost_.flops)};
    const TensorView* const inputs[] = {&r.q, &r.k, &r.v};
    info.inputs = inputs;
    info.input_count = 3;
    const EventScope scope(info);
    cuda::LaunchOptions how;
    how.overlaps_previous = prepared_.append.needed();
    return (alias ? prepared_.aliased : prepared_.separate)->launch(prepared_.blocks, &p, stream, how);
  }

  std::string sharing_text() const {
    const int parts = prepared_.params.problem.parts;
    return parts == 1 ? "keys whole" : fmt::format("keys in {} parts", parts);
  }

  Prepared prepared_;
  const cuda::DriverApi& api_;
  int device_;
  CostModel cost_;
};

// ---- What it refuses -----------------------------------------------------------------------------
void refuse_features(const Request& r, Refusals& all) {
  decode::refuse_features(r, "use math", all);
  if (r.paging.active() && r.paging.page_size % mla::kTileKeys != 0)
    all.add("page-size",
            fmt::format("loads {} keys at a time from one page; pages of {} are no multiple", mla::kTileKeys,
                        r.paging.page_size),
            fmt::format("use pages of {} keys or a multiple", mla::kTileKeys));
}

void refuse_layout(const Request& r, Refusals& all) {
  const std::pair<const char*, const TensorView*> tensors[] = {{"k", &r.k}, {"v", &r.v}};
  for (const auto& [name, view] : tensors) {
    if (view->numel() == 0) continue;  // refused as empty
    std::string why = view->size(3) % 8 != 0
                          ? fmt::format("its rows of {} elements are no multiple of 16 bytes", view->size(3))
                          : cuda::tensor_map_obstacle(*view);
    if (!why.empty())
      all.add("layout", fmt::format("{}: {}; the copy engine cannot load it", name, why),
              "make it contiguous, with a head size that is a multiple of 8");
  }
}

void refuse_sizes(const Request& r, Refusals& all) {
  if (r.head_dim() > mla::kMaxHeadDim || r.value_dim() > mla::kMaxValueDim)
    all.add("head-dim-too-large",
            fmt::format("takes head sizes up to {} and values up to {}; these are {} and {}",
                        mla::kMaxHeadDim, mla::kMaxValueDim, r.head_dim(), r.value_dim()),
            "use math, or split the heads");
  if (r.head_dim() <= kOtherBackends && r.value_dim() <= kOtherBackends)
    all.add("head-dim-too-small",
            fmt::format("is for head sizes above {}; these are {} and {}", kOtherBackends, r.head_dim(),
                        r.value_dim()),
            "use decode or flash");
  decode::refuse_extent(r, all);
}

class MlaBackend final : public Backend {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "wide heads (up to 576/512: absorbed MLA) on Hopper: heads that share keys are packed, keys split "
           "among "
           "blocks, K read once for both products when it holds V";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override {
    if (std::string reason = cuda::unavailable_reason(); !reason.empty()) return reason;
    for (int i = 0; i < cuda::device_count(); ++i)
      if (const auto info = cuda::device_info(i); info && is_hopper(**info)) return {};
    return "no Hopper GPU (compute capability 9.0) is in this machine";
  }

  std::vector<Refusal> refusals(const Request& r) const override {
    Refusals all(kName);
    if (!dtype_is_half(r.q.dtype))
      all.add("dtype", fmt::format("takes bf16 and f16; this is {}", dtype_name(r.q.dtype)),
              "use math, or convert");
    refuse_sizes(r, all);
    refuse_features(r, all);
    refuse_layout(r, all);
    if (const auto info = cuda::device_info(r.q.device.index); !info)
      all.add("device", info.error().message, info.error().remedy);
    else if (!is_hopper(**info))
      all.add("device", fmt::format("{} is sm_{}; the kernel is for sm_90a", (*info)->name, (*info)->sm()),
              "use math on this GPU");
    return all.take();
  }

  Result<std::shared_ptr<const BackendPlan>> plan(const Request& r) const override {
    const int device = r.q.device.index;
    ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(device));
    ATTNSCOPE_ASSIGN(const cuda::DriverApi* api, cuda::driver_api());
    const int sms = r.limits.sm_count > 0 ? std::min(r.limits.sm_count, info->sm_count) : info->sm_count;
    Prepared p;
    const int parts = mla::share_keys(mla::work_of(r, sms));
    const auto join = parts > 1 ? decode::Join::kWorkspace : decode::Join::kNone;
    p.params = decode::constant_params(r, mla::kTileRows, mla::kTileKeys, {parts, 0, join});
    p.blocks = static_cast<int>(std::min<int64_t>(sms, decode::forward_blocks(p.params)));
    if (mla::may_alias(r)) {
      ATTNSCOPE_ASSIGN(p.aliased, loaded(r.q.dtype, Kernel::kForward, true, device));
    }
    ATTNSCOPE_ASSIGN(p.separate, loaded(r.q.dtype, Kernel::kForward, false, device));
    if (p.params.join == decode::Join::kWorkspace) {
      ATTNSCOPE_ASSIGN(p.combine, loaded(r.q.dtype, Kernel::kCombine, false, device));
    }
    ATTNSCOPE_ASSIGN(p.append, append::Step::prepare(r));
    return std::make_shared<MlaPlan>(r, p, *api);
  }
};

}  // namespace

const Backend& cuda_mla_backend() {
  static const MlaBackend backend;
  return backend;
}

}  // namespace attnscope
