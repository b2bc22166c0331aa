// decode: which requests it takes, which image and sharing a plan uses, the launches of a call.

#include "attention/backend.h"

#include "attention/cost.h"
#include "attention/refusal.h"
#include "backends/cuda_append/append.h"
#include "backends/cuda_append/arguments.h"
#include "backends/cuda_decode/arguments.h"
#include "backends/cuda_decode/exact.h"
#include "backends/cuda_decode/heuristics.h"
#include "backends/cuda_decode/images.h"
#include "backends/cuda_decode/request.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/image.h"
#include "cuda/memory.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

namespace attnscope {
namespace {

using decode::EmbeddedImage;
using decode::Join;
using decode::Params;
using decode::Sharing;

constexpr std::string_view kName = "decode";
constexpr std::string_view kForward = "decode_forward";
constexpr std::string_view kSimple = "decode_forward_simple";
constexpr std::string_view kCombine = "decode_combine";
constexpr int kToolThreads = 128;
constexpr int kMaxHeadDim = 256;

// An entry of an image, loaded once per device and process; the loading is a visible span.
Result<const cuda::Image*> loaded(std::span<const std::byte> bytes, std::string_view entry, int threads,
                                  int device) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, std::string_view, int>, cuda::Image> cache;  // elements never move
  const std::scoped_lock lock(mutex);
  const auto key = std::tuple(static_cast<const void*>(bytes.data()), entry, device);
  if (const auto it = cache.find(key); it != cache.end()) return &it->second;
  const EventScope scope("attnscope::load_image", EventKind::kRuntime);
  ATTNSCOPE_ASSIGN(cuda::Image fresh,
                   cuda::Image::load(bytes, entry.data(), "decode_shared_bytes", threads, device));
  return &cache.emplace(key, fresh).first->second;
}

// Everything of a plan but the addresses.
struct Prepared {
  EmbeddedImage embedded;
  std::string_view entry = kForward;
  const cuda::Image* forward = nullptr;
  const cuda::Image* combine = nullptr;  // when pieces go to memory
  append::Step append;                   // before it
  Params params;
  std::string note;      // how an exact instance was had, or why not (exact.h); empty: none was wanted
  bool overlap = false;  // sm_90: a kernel may start while the one before it ends
};

// An exact instance where it is wanted and can be had, else the embedded image.
Status load_forward(const Request& r, const EmbeddedImage& embedded, const cuda::DeviceInfo& info,
                    Prepared& p) {
  decode::ExactImage exact = decode::exact_image(r, embedded, cuda::gpu_target(info.sm()));
  if (exact.image) {
    const auto image = loaded(exact.image->bytes(), kForward, exact.image->threads(), info.index);
    if (image) {
      p.embedded = *exact.image;
      p.forward = *image;
      p.note = exact.note;
      return {};
    }
    exact.note += fmt::format(", but it does not load: {}", image.error().message);
  }
  p.embedded = embedded;
  p.note = exact.note;
  const Params even = decode::constant_params(r, embedded.rows(), embedded.keys(), Sharing{});
  p.entry = decode::is_simple(even, embedded.e, embedded.ev) ? kSimple : kForward;
  ATTNSCOPE_ASSIGN(p.forward, loaded(embedded.bytes(), p.entry, embedded.threads(), info.index));
  return {};
}

// Once it is known how the keys are shared: flat needs the kernel that takes everything.
Status settle_entry(const cuda::DeviceInfo& info, Prepared& p) {
  if (p.entry == kForward || decode::is_simple(p.params, p.embedded.e, p.embedded.ev)) return {};
  p.entry = kForward;
  ATTNSCOPE_ASSIGN(p.forward, loaded(p.embedded.bytes(), p.entry, p.embedded.threads(), info.index));
  return {};
}

class DecodePlan final : public BackendPlan {
 public:
  DecodePlan(const Request& r, const Prepared& prepared)
      : prepared_(prepared), device_(r.q.device.index), cost_(base_cost(r)) {
    const decode::WorkspaceSize pieces = decode::workspace_of(prepared_.params);
    // A cache holds more than this call reads: at most the keys that the block table can name.
    if (r.paging.active()) cost_.min_bytes = decode::paged_bytes(r);
    cost_.intermediate_bytes = static_cast<double>(pieces.total());
    cost_.moved_bytes = cost_.min_bytes + 2 * cost_.intermediate_bytes;
    cost_.kernels = work() ? 1 + (prepared_.combine != nullptr) : 0;
    cost_.kernels += prepared_.append.needed() ? 1 : 0;
    cost_.moved_bytes += 2 * static_cast<double>(append::bytes_of(r));
  }

  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (!work() && !prepared_.append.needed()) return {};
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    ATTNSCOPE_TRY(prepared_.append.run(r, options.stream));
    if (!work()) return {};
    ATTNSCOPE_ASSIGN(const cuda::Workspace workspace,
                     cuda::Workspace::acquire(options, workspace_bytes(), device_));
    Params p = prepared_.params;
    decode::set_addresses(r, outputs, workspace.data(), &p);
    const auto stream = static_cast<CUstream>(options.stream);
    ATTNSCOPE_TRY(forward(r, p, stream));
    if (prepared_.combine == nullptr) return {};
    const auto pieces = static_cast<int64_t>(decode::workspace_of(p).total());
    const EventScope scope(kCombine, EventKind::kKernel, pieces, decode::output_bytes(r));
    return prepared_.combine->launch(static_cast<int>(decode::combine_blocks(p)), &p, stream,
                                     {1, prepared_.overlap});
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
    const Params& p = prepared_.params;
    const EmbeddedImage& image = prepared_.embedded;
    steps.push_back(fmt::format(
        "kernel {}  {}: {} tiles of {} rows ({} heads × {} rows packed), {}, {} blocks of {} threads, {} "
        "registers, {} shared{}{}",
        prepared_.entry, image.name, p.problem.all_tiles(), image.rows(), p.problem.pack, p.problem.length,
        sharing_text(), decode::forward_blocks(p), image.threads(), prepared_.forward->resources().registers,
        format_bytes(prepared_.forward->resources().shared_bytes), prepared_.note.empty() ? "" : "; ",
        prepared_.note));
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
    const int64_t written = p.join == Join::kWorkspace ? static_cast<int64_t>(decode::workspace_of(p).total())
                                                       : decode::output_bytes(r);
    EventInfo info{prepared_.entry, EventKind::kKernel,
                   static_cast<int64_t>(cost_.min_bytes) - decode::output_bytes(r), written,
                   static_cast<int64_t>(cost_.flops)};
    const TensorView* const inputs[] = {&r.q, &r.k, &r.v};
    info.inputs = inputs;
    info.input_count = 3;
    const EventScope scope(info);
    cuda::LaunchOptions how;
    how.cluster = p.join == Join::kCluster ? p.problem.parts : 1;
    how.overlaps_previous = prepared_.overlap && prepared_.append.needed();
    return prepared_.forward->launch(static_cast<int>(decode::forward_blocks(p)), &p, stream, how);
  }

  std::string sharing_text() const {
    const decode::Problem& p = prepared_.params.problem;
    if (p.parts == 0) return "all keys in one line that the blocks share evenly";
    if (p.parts == 1) return "keys whole";
    return fmt::format("keys in {} parts{}", p.parts,
                       prepared_.params.join == Join::kCluster ? " that a cluster joins" : "");
  }

  Prepared prepared_;
  int device_;
  CostModel cost_;
};

// ---- What it refuses ----------------------------------------------------------------------------
void refuse_features(const Request& r, Refusals& all) {
  decode::refuse_features(r, "use efficient or math", all);
  const int64_t pack = r.k.size(1) > 0 && r.v.size(1) > 0 && r.heads() > 0 ? decode::packed_heads(r) : 1;
  if (decode::too_many_rows(r))
    all.add(
        "too-many-rows",
        fmt::format(
            "is for few query rows: up to {}, or {} with the {} heads that share keys packed; these are {}",
            decode::kMaxLength, decode::kMaxPackedRows, pack, r.q_len()),
        "use flash");
}

// Rows are copied 16 bytes at a time.
std::string row_obstacle(const TensorView& v) {
  if (v.size(3) % 8 != 0)
    return fmt::format("its rows of {} elements are no multiple of 16 bytes", v.size(3));
  if (v.size(3) > 1 && v.stride(3) != 1) return fmt::format("its last stride is {}, not 1", v.stride(3));
  if (reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return "it is not 16-byte aligned";
  for (int d = 0; d < 3; ++d)
    if (v.size(d) > 1 && v.stride(d) % 8 != 0)
      return fmt::format("its stride {} in dimension {} is no multiple of 16 bytes", v.stride(d), d);
  return {};
}

void refuse_layout(const Request& r, Refusals& all) {
  const std::pair<const char*, const TensorView*> tensors[] = {{"k", &r.k}, {"v", &r.v}};
  for (const auto& [name, view] : tensors)
    if (std::string why = row_obstacle(*view); !why.empty())
      all.add("layout", fmt::format("{}: {}", name, why),
              "make it contiguous, with a head size that is a multiple of 8");
}

void refuse_sizes(const Request& r, Refusals& all) {
  if (r.head_dim() > kMaxHeadDim || r.value_dim() > kMaxHeadDim)
    all.add("head-dim-too-large",
            fmt::format("takes head sizes up to {}; these are {} and {}", kMaxHeadDim, r.head_dim(),
                        r.value_dim()),
            "use math, or split the heads");
  decode::refuse_extent(r, all);
}

class DecodeBackend final : public Backend {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "flash for few query rows: heads that share keys are packed, keys split among blocks, cache read "
           "once";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override { return cuda::unavailable_reason(); }

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
    else if (const Status usable = cuda::usable(r.q.device.index); !usable)
      all.add("device", usable.error().message, usable.error().remedy);
    else if (all.empty() && decode::choose_image(r, gpu_of(**info)) == nullptr)
      all.add("device",
              fmt::format("no kernel for head sizes {} and {} fits the {} of shared memory of {}",
                          r.head_dim(), r.value_dim(),
                          format_bytes(static_cast<double>((*info)->shared_per_block_optin)), (*info)->name),
              "use math");
    return all.take();
  }

  Result<std::shared_ptr<const BackendPlan>> plan(const Request& r) const override {
    const int device = r.q.device.index;
    ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(device));
    const decode::Gpu gpu = gpu_of(*info);
    const EmbeddedImage* embedded = decode::choose_image(r, gpu);
    if (embedded == nullptr)
      return fail(ErrorCode::kInternal,
                  fmt::format("no image for head sizes {} and {}", r.head_dim(), r.value_dim()));
    Prepared p;
    ATTNSCOPE_TRY(load_forward(r, *embedded, *info, p));
    const int sms = r.limits.sm_count > 0 ? std::min(r.limits.sm_count, info->sm_count) : info->sm_count;
    decode::Work work;
    work.row_tiles = decode::row_tiles_of(r, p.embedded.rows());
    work.key_tiles = (r.kv_len() + p.embedded.keys() - 1) / p.embedded.keys();
    work.slots = int64_t{sms} * std::max(1, p.forward->resources().blocks_per_sm);
    work.ragged = r.lengths.has_kv_lengths() && r.batch() > 1;
    work.splits = r.limits.splits;
    work.clusters = gpu.clusters;
    p.params = decode::constant_params(r, p.embedded.rows(), p.embedded.keys(), decode::share_keys(work));
    ATTNSCOPE_TRY(settle_entry(*info, p));
    p.overlap = gpu.clusters;
    const std::span<const std::byte> tools = decode::tools(r.q.dtype);
    if (p.params.join == Join::kWorkspace) {
      ATTNSCOPE_ASSIGN(p.combine, loaded(tools, kCombine, kToolThreads, device));
    }
    ATTNSCOPE_ASSIGN(p.append, append::Step::prepare(r));
    return std::make_shared<DecodePlan>(r, p);
  }

 private:
  static decode::Gpu gpu_of(const cuda::DeviceInfo& info) {
    return {info.sm_count, info.shared_per_block_optin, info.major >= 9};
  }
};

}  // namespace

const Backend& cuda_decode_backend() {
  static const DecodeBackend backend;
  return backend;
}

}  // namespace attnscope
