#include "backends/cuda_flash_sm90/featured/plan.h"

#include "attention/cost.h"
#include "attention/dropout_bits.h"
#include "backends/cuda_flash_sm90/featured/images.h"
#include "backends/cuda_flash_sm90/featured/mask_plan.h"
#include "backends/cuda_flash_sm90/featured/params.h"
#include "backends/cuda_flash_sm90/loaded.h"
#include "backends/cuda_flash_sm90/schedule.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/status.h"
#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::flash_sm90 {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 28;  // rows or keys: a row plus a window side fits an int
constexpr double kLog2E = 1.4426950408889634;
constexpr double kStepUs = 1.6;  // of a step on one multiprocessor: only ratios matter here

bool transforms(const Request& r) {
  return r.softcap > 0 || r.alibi_slopes.data != nullptr || r.dropout.p > 0;
}

// Sequences as the kernel counts them: batch entries, or packed ones and the rows past the last.
int64_t sequences_of(const Request& r) {
  return r.lengths.packed() ? r.lengths.cu_q.size(0) : r.batch();
}

// At most: how packed rows fall on tiles is not known here.
int64_t tiles_at_most(const Request& r, int rows) {
  const int64_t blocks =
      r.lengths.packed() ? r.q_len() / rows + sequences_of(r) : (r.q_len() + rows - 1) / rows * r.batch();
  return r.q_len() > 0 ? blocks * r.heads() : 0;
}

// The image for the smallest head size that holds the request's.
const FeaturedImage* choose_image(const Request& r, bool any_output) {
  const FeaturedImage* best = nullptr;
  for (const FeaturedImage& image : featured_images()) {
    if (image.dtype != r.q.dtype || image.any_output != any_output || image.e < r.head_dim() ||
        image.ev < r.value_dim() || image.transform < transforms(r) || image.mask != masking(r))
      continue;
    if (best == nullptr || image.e + image.ev < best->e + best->ev ||
        (image.e + image.ev == best->e + best->ev && image.transform < best->transform))
      best = &image;
  }
  return best;
}

// How many pairs of sequence and head to walk together, as if all sequences were equally long.
Schedule schedule_for(const Request& r, const FeaturedImage& image, int blocks) {
  const int64_t sequences = std::max<int64_t>(1, r.lengths.packed() ? sequences_of(r) - 1 : r.batch());
  Problem p;
  p.heads = r.heads() * sequences;
  p.rows = r.lengths.packed() ? (r.q_len() + sequences - 1) / sequences : r.q_len();
  p.columns = r.lengths.packed() ? (r.kv_len() + sequences - 1) / sequences : r.kv_len();
  p.causal = r.causal != CausalMode::kNone;
  p.causal_offset = r.causal == CausalMode::kLowerRight ? p.columns - p.rows : 0;
  if (r.window.left >= 0) p.window_left = std::min(r.window.left, p.columns);
  const auto bytes = [&](const TensorView& t) {
    return static_cast<double>(p.columns * t.size(1) * t.size(3) * 2) /
           static_cast<double>(std::max<int64_t>(1, r.heads()));
  };
  p.kv_bytes_per_head = bytes(r.k) + bytes(r.v);
  Schedule schedule = choose_schedule(p, {image.rows(), image.keys, kStepUs}, blocks);
  // Sequences of unequal lengths are balanced among all others of a group.
  if (!p.causal) schedule.group_heads = std::max<int64_t>(1, p.heads);
  return schedule;
}

IndexVector index_vector(const TensorView& v) {
  if (v.data == nullptr) return {};
  return {v.data, v.size(0) > 1 ? v.stride(0) : 1, v.dtype == DType::kI64 ? 1 : 0};
}

int sink_type(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 1;
    case DType::kBF16: return 2;
    case DType::kF64: return 3;
    default: return 0;
  }
}

// Everything but the addresses.
MaskedParams constant_params(const Request& r, const Schedule& schedule) {
  MaskedParams p{};
  p.heads = static_cast<int>(r.heads());
  p.k_group = static_cast<int>(r.heads() / std::max<int64_t>(1, r.k.size(1)));
  p.v_group = static_cast<int>(r.heads() / std::max<int64_t>(1, r.v.size(1)));
  p.rows = static_cast<int>(r.q_len());
  p.columns = static_cast<int>(r.kv_len());
  p.group_heads = static_cast<int>(schedule.group_heads);
  p.out_columns = static_cast<int>(r.value_dim());
  p.sequences = static_cast<int>(sequences_of(r));
  const int64_t far = r.q_len() + r.kv_len();
  p.left = r.window.left < 0 || r.window.left > far ? kUnbounded : static_cast<int>(r.window.left);
  p.right = r.causal != CausalMode::kNone                ? 0
            : r.window.right < 0 || r.window.right > far ? kUnbounded
                                                         : static_cast<int>(r.window.right);
  p.lower_right = r.causal == CausalMode::kLowerRight ? 1 : 0;
  const double scale = r.effective_scale();
  const bool biased = masking(r) == Masking::kBias;  // then scores are natural ones
  p.scores_in_log2 = r.softcap > 0 || r.alibi_slopes.data != nullptr ? 1 : 0;
  p.scale_scores = scale > 0 || p.scores_in_log2 != 0 || biased ? 0 : 1;
  p.score_scale = static_cast<float>(scale * kLog2E);
  p.log2_per_score = scale > 0 && p.scores_in_log2 == 0 ? p.score_scale : 1.0f;
  if (biased) p.log2_per_score = static_cast<float>(kLog2E);
  if (r.softcap > 0) {
    p.softcap_log2 = static_cast<float>(r.softcap * kLog2E);
    p.score_to_twice_tanh = static_cast<float>(2 * scale / r.softcap * kLog2E);
  }
  p.dropout = r.dropout.p <= 0 ? 0 : r.dropout.p >= 1 ? 2 : 1;
  p.dropout_threshold = dropout_threshold(r.dropout.p);
  p.keep_scale = r.dropout.p >= 1 ? 0.0f : static_cast<float>(1.0 / (1.0 - r.dropout.p));
  return p;
}

struct Prepared {
  const FeaturedImage* embedded = nullptr;
  const cuda::Image* image = nullptr;
  Schedule schedule;
  MaskedParams params;
  int blocks = 0;
  KeptTiles kept;
};

Result<Prepared> prepare(const Request& r, int multiprocessors, bool any_output) {
  const FeaturedImage* image = choose_image(r, any_output);
  if (image == nullptr)
    return fail(ErrorCode::kInternal,
                fmt::format("no featured image for head sizes {} and {}", r.head_dim(), r.value_dim()));
  const Schedule schedule = schedule_for(r, *image, multiprocessors);
  Prepared p{image, nullptr, schedule, constant_params(r, schedule), 0, {}};
  p.blocks = static_cast<int>(std::min<int64_t>(multiprocessors, tiles_at_most(r, image->rows())));
  ATTNSCOPE_ASSIGN(p.image, loaded(image->name, image->cubin(), image->threads(), r.q.device.index));
  ATTNSCOPE_ASSIGN(p.kept, KeptTiles::of(r, *image));
  return p;
}

void set_addresses(const Request& r, const Outputs& outputs, MaskedParams& p) {
  set_mask(r, p);
  p.out = outputs.out.as<uint16_t>();
  for (int d = 0; d < 4; ++d) p.out_strides[d] = outputs.out.stride(d);
  if (r.wants.lse) {
    p.lse = outputs.lse.as<float>();
    for (int d = 0; d < 3; ++d) p.lse_strides[d] = outputs.lse.stride(d);
  }
  p.kv_lengths = index_vector(r.lengths.kv_lengths);
  p.cu_q = index_vector(r.lengths.cu_q);
  p.cu_k = index_vector(r.lengths.cu_k);
  p.v_at = r.v.as<uint16_t>();
  for (int d = 0; d < 4; ++d) p.v_strides[d] = r.v.stride(d);
  if (r.sinks.data != nullptr) {
    p.sinks = r.sinks.data;
    p.sink_stride = r.sinks.stride(0);
    p.sink_type = sink_type(r.sinks.dtype);
  }
  if (const TensorView& slopes = r.alibi_slopes; slopes.data != nullptr) {
    p.slopes = slopes.as<float>();
    p.slope_strides[0] = slopes.rank == 2 ? slopes.stride(0) : 0;
    p.slope_strides[1] = slopes.stride(slopes.rank - 1);
  }
  p.seed = r.dropout.seed;
  p.offset = r.dropout.offset;
  p.seed_on_device = reinterpret_cast<const tile::u64*>(r.dropout.seed_on_device);
}

// "window 1024 left, packed sequences, softcap 30": what the image was chosen for.
std::string features_text(const Request& r) {
  std::vector<std::string> parts;
  if (masking(r) == Masking::kBool) parts.emplace_back("bool mask");
  if (masking(r) == Masking::kBias) parts.emplace_back("bias");
  if (r.window.active()) {
    const auto side = [](int64_t n) { return n < 0 ? std::string("all") : fmt::format("{}", n); };
    parts.push_back(fmt::format("window {} left, {} right", side(r.window.left), side(r.window.right)));
  }
  if (r.lengths.has_kv_lengths()) parts.emplace_back("lengths read on the device");
  if (r.lengths.packed())
    parts.push_back(fmt::format("{} packed sequences, offsets read on the device", sequences_of(r) - 1));
  if (r.sinks.data != nullptr) parts.emplace_back("sinks");
  if (r.softcap > 0) parts.push_back(fmt::format("softcap {:g}", r.softcap));
  if (r.alibi_slopes.data != nullptr) parts.emplace_back("ALiBi");
  if (r.dropout.p > 0) parts.push_back(fmt::format("dropout {:g}", r.dropout.p));
  return join(parts, ", ");
}

class FeaturedPlan final : public BackendPlan {
 public:
  FeaturedPlan(const Request& r, const Prepared& prepared, const cuda::DriverApi& api, int multiprocessors,
               std::string_view kernel)
      : prepared_(prepared),
        kernel_(kernel),
        api_(api),
        device_(r.q.device.index),
        multiprocessors_(multiprocessors),
        cost_(base_cost(r)),
        features_(features_text(r)) {
    cost_.kernels = prepared_.blocks > 0 ? 1 : 0;
    cost_.kernels += prepared_.kept.needed() ? 1 : 0;
    cost_.intermediate_bytes = static_cast<double>(prepared_.kept.workspace_bytes());
    cost_.moved_bytes = cost_.min_bytes;
  }

  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (prepared_.blocks == 0) return {};
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    if (writes_directly(r, outputs.out)) return launch(prepared_, r, outputs, options);
    // The request says nothing about the output, so that its image is found here.
    ATTNSCOPE_ASSIGN(const Prepared any_output, prepare(r, multiprocessors_, true));
    return launch(any_output, r, outputs, options);
  }

  size_t workspace_bytes() const override { return prepared_.kept.workspace_bytes(); }
  CostModel cost() const override { return cost_; }
  std::vector<std::string> steps() const override {
    const Prepared& p = prepared_;
    if (p.blocks == 0) return {"nothing to compute"};
    std::vector<std::string> steps;
    if (p.kept.needed()) steps.push_back(p.kept.describe());
    steps.push_back(fmt::format(
        "kernel {}  {}: {}; {} × {} tiles found on the device, {} blocks of {} threads, {} registers, {} "
        "shared; {} pairs of sequence and head walked together",
        kernel_, p.embedded->name, features_, p.embedded->rows(), p.embedded->keys, p.blocks,
        p.embedded->threads(), p.image->resources().registers,
        format_bytes(p.image->resources().shared_bytes), p.schedule.group_heads));
    return steps;
  }

 private:
  Status launch(const Prepared& prepared, const Request& r, const Outputs& outputs,
                const RunOptions& options) const {
    MaskedParams p = prepared.params;  // images without a mask take their part of it
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.q, 64, &p.q));
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.k, prepared.embedded->keys, &p.k));
    ATTNSCOPE_TRY(cuda::encode_tensor_map(api_, r.v, prepared.embedded->keys, &p.v));
    set_addresses(r, outputs, p);
    if (masking(r) != Masking::kNone) ATTNSCOPE_TRY(encode_mask(api_, r, *prepared.embedded, &p.mask));
    ATTNSCOPE_ASSIGN(const cuda::Workspace kept,
                     cuda::Workspace::acquire(options, prepared.kept.workspace_bytes(), device_));
    ATTNSCOPE_TRY(prepared.kept.run(r, kept.data(), options, p));
    const int64_t rows = r.batch() * r.heads() * r.q_len();
    const int64_t written = rows * (r.value_dim() * 2 + (r.wants.lse ? 4 : 0));
    EventInfo info{kernel_, EventKind::kKernel, static_cast<int64_t>(cost_.min_bytes) - written, written,
                   static_cast<int64_t>(cost_.flops)};
    const TensorView* const inputs[] = {&r.q, &r.k, &r.v, &r.mask};
    info.inputs = inputs;
    info.input_count = masking(r) == Masking::kNone ? 3 : 4;
    const EventScope scope(info);
    return prepared.image->launch(prepared.blocks, &p, static_cast<CUstream>(options.stream));
  }

  Prepared prepared_;
  std::string_view kernel_;
  const cuda::DriverApi& api_;
  int device_, multiprocessors_;
  CostModel cost_;
  std::string features_;
};

}  // namespace

bool needs_featured(const Request& r) {
  return r.window.active() || r.lengths.has_kv_lengths() || r.lengths.packed() || r.sinks.data != nullptr ||
         transforms(r);
}

bool writes_directly(const Request& r, const TensorView& out) {
  return r.value_dim() % 8 == 0 && cuda::tensor_map_obstacle(out).empty();
}

void refuse_featured(const Request& r, Refusals& all) {
  if (std::max({r.q_len(), r.kv_len(), sequences_of(r), tiles_at_most(r, 128)}) > kMaxLength)
    all.add("too-long",
            fmt::format("{} rows, {} keys, {} sequences or {} tiles are more than {}", r.q_len(), r.kv_len(),
                        sequences_of(r), tiles_at_most(r, 128), kMaxLength),
            "split the batch");
}

Result<std::shared_ptr<const BackendPlan>> plan_featured(const Request& r, int multiprocessors,
                                                         std::string_view kernel) {
  ATTNSCOPE_ASSIGN(const cuda::DriverApi* api, cuda::driver_api());
  ATTNSCOPE_ASSIGN(const Prepared prepared, prepare(r, multiprocessors, false));
  return std::make_shared<FeaturedPlan>(r, prepared, *api, multiprocessors, kernel);
}

}  // namespace attnscope::flash_sm90
