// flash on Hopper: which requests it takes, which image and schedule a plan uses, one launch per call.

#include "attention/backend.h"

#include "attention/cost.h"
#include "attention/refusal.h"
#include "backends/cuda_flash_sm90/exact.h"
#include "backends/cuda_flash_sm90/featured/plan.h"
#include "backends/cuda_flash_sm90/images.h"
#include "backends/cuda_flash_sm90/loaded.h"
#include "backends/cuda_flash_sm90/params.h"
#include "backends/cuda_flash_sm90/schedule.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/image.h"
#include "cuda/status.h"
#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnscope {
namespace {

using flash_sm90::EmbeddedImage;
using flash_sm90::Params;
using flash_sm90::Problem;
using flash_sm90::Schedule;
using flash_sm90::TileShape;

constexpr std::string_view kName = "flash";
constexpr std::string_view kKernel = "flash_forward_sm90";
constexpr int kMaxHeadDim = 256;
constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max() / 2;  // rows, keys and tiles are ints there
constexpr double kLog2E = 1.4426950408889634;

bool is_hopper(const cuda::DeviceInfo& info) {
  return info.major == 9 && info.minor == 0;
}

Problem problem_of(const Request& r) {
  Problem p;
  p.heads = r.batch() * r.heads();
  p.rows = r.q_len();
  p.columns = r.kv_len();
  p.causal = r.causal != CausalMode::kNone;
  p.causal_offset = r.causal == CausalMode::kLowerRight ? r.kv_len() - r.q_len() : 0;
  const double k_bytes =
      static_cast<double>(r.kv_len() * r.head_dim() * 2 * r.k.size(1)) / static_cast<double>(r.heads());
  const double v_bytes =
      static_cast<double>(r.kv_len() * r.value_dim() * 2 * r.v.size(1)) / static_cast<double>(r.heads());
  p.kv_bytes_per_head = k_bytes + v_bytes;
  return p;
}

// Microseconds of a step on one multiprocessor with the others busy, from measurements on an H200
// (docs/kernels/flash_forward.md); used to compare images of one head size.
TileShape shape_of(const EmbeddedImage& image) {
  const double flops = 2.0 * image.rows() * image.keys * (image.e + image.ev);
  const double tflops = image.e > 64 ? 5.3 : image.warpgroups == 3 ? 4.1 : 3.4;  // per multiprocessor
  return {image.rows(), image.keys, flops / tflops / 1e6};
}

struct Choice {
  const EmbeddedImage* image = nullptr;
  Schedule schedule;
};

// Of the images for the smallest head size that holds the request's, the one expected to finish first.
Choice choose_image(const Request& r, int multiprocessors, bool any_output) {
  const bool causal = r.causal != CausalMode::kNone;
  const Problem problem = problem_of(r);
  Choice best;
  for (const EmbeddedImage& image : flash_sm90::images()) {
    if (image.dtype != r.q.dtype || image.causal != causal || image.any_output != any_output ||
        image.e < r.head_dim() || image.ev < r.value_dim())
      continue;
    const Schedule schedule = flash_sm90::choose_schedule(problem, shape_of(image), multiprocessors);
    const int size = image.e + image.ev, best_size = best.image ? best.image->e + best.image->ev : 0;
    if (best.image == nullptr || size < best_size ||
        (size == best_size && schedule.expected_us < best.schedule.expected_us))
      best = {&image, schedule};
  }
  return best;
}

// Everything but the addresses.
Params constant_params(const Request& r, const Choice& choice) {
  Params p{};
  p.heads = static_cast<int>(r.heads());
  p.k_group = static_cast<int>(r.heads() / std::max<int64_t>(1, r.k.size(1)));
  p.v_group = static_cast<int>(r.heads() / std::max<int64_t>(1, r.v.size(1)));
  p.rows = static_cast<int>(r.q_len());
  p.columns = static_cast<int>(r.kv_len());
  p.causal_offset = r.causal == CausalMode::kLowerRight ? p.columns - p.rows : 0;
  p.row_blocks = (p.rows + choice.image->rows() - 1) / choice.image->rows();
  p.tiles = static_cast<int>(p.row_blocks * r.batch() * r.heads());
  p.group_heads = static_cast<int>(choice.schedule.group_heads);
  p.out_columns = static_cast<int>(r.value_dim());
  const double scale = r.effective_scale();
  p.scale_scores = scale > 0 ? 0 : 1;
  p.score_scale = static_cast<float>(scale * kLog2E);
  p.log2_per_score = scale > 0 ? p.score_scale : 1.0f;
  return p;
}

// One image made ready for one request: everything a launch needs but the addresses.
struct Prepared {
  EmbeddedImage embedded;
  const cuda::Image* image = nullptr;
  Schedule schedule;
  Params params;
  int blocks = 0;
  std::string note;  // how an exact instance was had, or why not (exact.h); empty: none was wanted
};

Result<Prepared> ready(const Request& r, const Choice& choice, int multiprocessors) {
  Prepared p{*choice.image, nullptr, choice.schedule, constant_params(r, choice), 0, {}};
  p.blocks = std::min(multiprocessors, p.params.tiles);
  ATTNSCOPE_ASSIGN(p.image, flash_sm90::loaded(choice.image->name, choice.image->cubin(),
                                               choice.image->threads(), r.q.device.index));
  return p;
}

Result<Prepared> prepare(const Request& r, int multiprocessors, bool any_output) {
  const Choice choice = choose_image(r, multiprocessors, any_output);
  if (choice.image == nullptr)
    return fail(ErrorCode::kInternal,
                fmt::format("no image for head sizes {} and {}", r.head_dim(), r.value_dim()));
  flash_sm90::ExactImage exact;
  if (!any_output) exact = flash_sm90::exact_image(r, *choice.image);
  if (exact.image) {
    const Schedule schedule =
        flash_sm90::choose_schedule(problem_of(r), shape_of(*exact.image), multiprocessors);
    Result<Prepared> made = ready(r, {&*exact.image, schedule}, multiprocessors);
    if (made) {
      made->note = exact.note;
      return made;
    }
    exact.note += fmt::format(", but it does not load: {}", made.error().message);
  }
  ATTNSCOPE_ASSIGN(Prepared p, ready(r, choice, multiprocessors));
  p.note = exact.note;
  return p;
}

class FlashPlan final : public BackendPlan {
 public:
  FlashPlan(const Request& r, const Prepared& prepared, const cuda::DriverApi& api, int multiprocessors)
      : prepared_(prepared),
        api_(api),
        device_(r.q.device.index),
        multiprocessors_(multiprocessors),
        cost_(base_cost(r)) {
    cost_.kernels = prepared_.params.tiles > 0 ? 1 : 0;
    cost_.moved_bytes = cost_.min_bytes;
  }

  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (prepared_.params.tiles == 0) return {};
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    // Where O does not leave through TMA, vectors would cross the last column of other value sizes.
    if (r.value_dim() % 8 == 0 && cuda::tensor_map_obstacle(outputs.out).empty())
      return launch(prepared_, r, outputs, options);
    // The request says nothing about the output, so that its image is found here.
    ATTNSCOPE_ASSIGN(const Prepared any_output, prepare(r, multiprocessors_, true));
    return launch(any_output, r, outputs, options);
  }

  CostModel cost() const override { return cost_; }
  std::vector<std::string> steps() const override {
    const Prepared& p = prepared_;
    if (p.params.tiles == 0) return {"nothing to compute"};
    return {fmt::format(
        "kernel {}  {}: {} × {} tiles, {} blocks of {} threads, {} registers, {} shared; {} heads walked "
        "together, "
        "balance {:.1f} %{}{}",
        kKernel, p.embedded.name, p.embedded.rows(), p.embedded.keys, p.blocks, p.embedded.threads(),
        p.image->resources().registers, format_bytes(p.image->resources().shared_bytes),
        p.schedule.group_heads, 100 * p.schedule.balance, p.note.empty() ? "" : "; ", p.note)};
  }

 private:
  Status launch(const Prepared& prepared, const Request& r, const Outputs& outputs,
                const RunOptions& options) const {
    Params p = prepared.params;
    const int keys = prepared.embedded.keys;
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.q, 64, &p.q));
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.k, keys, &p.k));
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.v, keys, &p.v));
    if (!prepared.embedded.any_output) ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, outputs.out, 16, &p.o));
    p.out = outputs.out.as<uint16_t>();
    for (int d = 0; d < 4; ++d) p.out_strides[d] = outputs.out.stride(d);
    if (r.wants.lse) {
      p.lse = outputs.lse.as<float>();
      for (int d = 0; d < 3; ++d) p.lse_strides[d] = outputs.lse.stride(d);
    }
    const int64_t written = output_bytes(r);
    EventInfo info{kKernel, EventKind::kKernel, static_cast<int64_t>(cost_.min_bytes) - written, written,
                   static_cast<int64_t>(cost_.flops)};
    const TensorView* const inputs[] = {&r.q, &r.k, &r.v};
    info.inputs = inputs;
    info.input_count = 3;
    const EventScope scope(info);
    return prepared.image->launch(prepared.blocks, &p, static_cast<CUstream>(options.stream));
  }

  static int64_t output_bytes(const Request& r) {
    const int64_t rows = r.batch() * r.heads() * r.q_len();
    return rows * (r.value_dim() * 2 + (r.wants.lse ? 4 : 0));
  }

  Prepared prepared_;
  const cuda::DriverApi& api_;
  int device_, multiprocessors_;
  CostModel cost_;
};

void refuse_features(const Request& r, Refusals& all) {
  constexpr const char* kElsewhere = "use efficient or math";
  if (r.mask_kind != MaskKind::kNone) all.add("mask", "takes no bool mask or bias, only causal", kElsewhere);
  if (r.paging.active()) all.add("paged-cache", "takes no paged cache", kElsewhere);
  if (!r.score_program.empty()) all.add("score-program", "score programs are not implemented");
  if (r.limits.splits > 1)
    all.add("splits", fmt::format("cannot split the keys into {} parts", r.limits.splits),
            "leave splits at 0 or 1");
}

void refuse_layout(const Request& r, Refusals& all) {
  const std::pair<const char*, const TensorView*> tensors[] = {{"q", &r.q}, {"k", &r.k}, {"v", &r.v}};
  for (const auto& [name, view] : tensors)
    if (std::string why = cuda::tensor_map_obstacle(*view); !why.empty())
      all.add("layout", fmt::format("{}: {}; the copy engine cannot load it", name, why),
              "make it contiguous, with a head size that is a multiple of 8");
}

class FlashBackend final : public Backend {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "one fused kernel for Hopper: TMA loads, wgmma products, softmax under them, causal tiles "
           "balanced";
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
    if (r.head_dim() > kMaxHeadDim || r.value_dim() > kMaxHeadDim)
      all.add("head-dim-too-large",
              fmt::format("takes head sizes up to {}; these are {} and {}", kMaxHeadDim, r.head_dim(),
                          r.value_dim()),
              "use math, or split the heads");
    if (r.kv_len() == 0 || r.head_dim() == 0 || r.value_dim() == 0)
      all.add("empty", "needs at least one key and one column", "use math");
    if (const auto info = cuda::device_info(r.q.device.index); !info)
      all.add("device", info.error().message, info.error().remedy);
    else if (!is_hopper(**info))
      all.add("device", fmt::format("{} is sm_{}; the kernel is for sm_90a", (*info)->name, (*info)->sm()),
              "use flash_sm80 on this GPU");
    const int64_t tiles = r.batch() * r.heads() * ((r.q_len() + 127) / 128);
    if (std::max({r.q_len(), r.kv_len(), tiles}) > kMaxIndex)
      all.add("too-long",
              fmt::format("{} rows, {} keys or {} tiles are more than {}", r.q_len(), r.kv_len(), tiles,
                          kMaxIndex),
              "split the batch");
    refuse_features(r, all);
    if (flash_sm90::needs_featured(r)) flash_sm90::refuse_featured(r, all);
    refuse_layout(r, all);
    return all.take();
  }

  Result<std::shared_ptr<const BackendPlan>> plan(const Request& r) const override {
    ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(r.q.device.index));
    const int blocks = r.limits.sm_count > 0 ? std::min(r.limits.sm_count, info->sm_count) : info->sm_count;
    if (flash_sm90::needs_featured(r)) return flash_sm90::plan_featured(r, blocks, kKernel);
    ATTNSCOPE_ASSIGN(const cuda::DriverApi* api, cuda::driver_api());
    ATTNSCOPE_ASSIGN(const Prepared prepared, prepare(r, blocks, false));
    return std::make_shared<FlashPlan>(r, prepared, *api, blocks);
  }
};

}  // namespace

const Backend& cuda_flash_sm90_backend() {
  static const FlashBackend backend;
  return backend;
}

}  // namespace attnscope
