#include "backends/cuda_mma/plan.h"

#include "attention/cost.h"
#include "attention/dropout_bits.h"
#include "attention/geometry.h"
#include "backends/cuda_append/append.h"
#include "backends/cuda_append/arguments.h"
#include "backends/cuda_mma/exact.h"
#include "backends/cuda_mma/params.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/image.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <mutex>

namespace attnscope::mma {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int64_t kMaxIndex = int64_t{1} << 30;  // rows, keys and blocks are ints in the kernels
constexpr double kLog2E = 1.4426950408889634;
constexpr int kSmallestBlockRows = 32;  // of any image

// Loads an image once per device and process; the loading is a visible span.
Result<const cuda::Image*> loaded(const EmbeddedImage& image, int device) {
  static std::mutex mutex;
  static std::map<std::pair<const char*, int>, cuda::Image> cache;  // elements never move
  const std::scoped_lock lock(mutex);
  const auto key = std::pair(image.name, device);
  if (const auto it = cache.find(key); it != cache.end()) return &it->second;
  const EventScope scope("attnscope::load_image", EventKind::kRuntime);
  ATTNSCOPE_ASSIGN(cuda::Image fresh, cuda::Image::load(image.bytes(), "attention_forward",
                                                        "attention_shared_bytes", image.threads, device));
  return &cache.emplace(key, fresh).first->second;
}

int64_t stride_of(const TensorView& v, int d) {
  return v.size(d) > 1 ? v.stride(d) : 0;
}

Strided strided(const TensorView& v) {
  return {v.data, stride_of(v, 0), stride_of(v, 1), stride_of(v, 2), v.size(3) > 1 ? v.stride(3) : 1};
}

IndexVector index_vector(const TensorView& v) {
  if (v.data == nullptr) return {};
  return {v.data, stride_of(v, 0), v.dtype == DType::kI64 ? LengthType::kI64 : LengthType::kI32};
}

MaskType float_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return MaskType::kF32;
    case DType::kBF16: return MaskType::kBf16;
    case DType::kF16: return MaskType::kF16;
    case DType::kF64: return MaskType::kF64;
    default: return MaskType::kNone;
  }
}

// The widest piece in which every row of every tile can be copied. It divides a row of `keys`: a piece that
// crosses the last key of the last row reads past the tensor, though what it reads counts for nothing.
int mask_vector(const MaskAccess& m, int64_t keys) {
  if (m.dtype == DType::kF64 || m.stride_j != 1) return 0;
  const auto size = static_cast<int64_t>(dtype_size(m.dtype));
  const auto together = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(m.data)) |
                        static_cast<uint64_t>((m.stride_b | m.stride_h | m.stride_i | keys) * size);
  for (const uint64_t bytes : {16, 8, 4})
    if (together % bytes == 0) return static_cast<int>(bytes);
  return 0;
}

Mask mask_of(const Request& r) {
  if (r.mask_kind == MaskKind::kNone) return {};
  const MaskAccess m(r.mask);
  return {m.data,
          m.stride_b,
          m.stride_h,
          m.stride_i,
          m.stride_j,
          r.mask_kind == MaskKind::kBool ? MaskType::kBool : float_type(m.dtype),
          mask_vector(m, r.kv_len())};
}

// [heads] or [batch, heads].
Vector vector_of(const TensorView& v) {
  if (v.data == nullptr) return {};
  const int h = v.rank - 1;
  return {v.data, v.rank == 2 ? stride_of(v, 0) : 0, stride_of(v, h), float_type(v.dtype)};
}

Dropout dropout_of(const Request& r) {
  Dropout d{};
  d.keep_scale = 1.0f;
  d.drop_all = r.dropout.p >= 1 ? 1 : 0;
  if (r.dropout.p <= 0 || r.dropout.p >= 1) return d;
  d.threshold = dropout_threshold(r.dropout.p);
  d.keep_scale = static_cast<float>(1.0 / (1.0 - r.dropout.p));
  d.seed = r.dropout.seed;
  d.offset = r.dropout.offset;
  d.seed_offset = reinterpret_cast<const u64*>(r.dropout.seed_on_device);
  return d;
}

Geometry geometry_of(const Request& r) {
  Geometry g{};
  g.causal = r.causal == CausalMode::kTopLeft ? 1 : r.causal == CausalMode::kLowerRight ? 2 : 0;
  const auto side = [](int64_t n) { return static_cast<int>(std::min(n, kMaxIndex)); };
  g.left = side(r.window.left);
  g.right = side(r.window.right);
  g.kv_lengths = index_vector(r.lengths.kv_lengths);
  g.cu_q = index_vector(r.lengths.cu_q);
  g.cu_k = index_vector(r.lengths.cu_k);
  g.sequences = r.lengths.packed() ? static_cast<int>(r.lengths.cu_q.size(0) - 1) : 0;
  g.appended = static_cast<int>(appended_keys(r));
  return g;
}

bool needs_natural_scores(const Request& r) {
  return r.mask_kind == MaskKind::kBias || r.softcap > 0 || r.alibi_slopes.data != nullptr ||
         r.effective_scale() <= 0;
}

// Heads walked together. A causal mask wants many, so that the long row blocks of all come first and the
// short ones fill the end; their K and V should stay in L2.
int group_heads(const Request& r, int row_blocks, int64_t l2_bytes) {
  const int64_t all = r.batch() * r.heads();
  if (r.causal == CausalMode::kNone) return 1;
  const auto size = static_cast<double>(dtype_size(r.q.dtype)) * static_cast<double>(r.kv_len());
  const double per_head =
      size * (static_cast<double>(r.head_dim() * r.k.size(1) + r.value_dim() * r.v.size(1)) /
              static_cast<double>(std::max<int64_t>(r.heads(), 1)));
  const auto fit = static_cast<int64_t>(0.5 * static_cast<double>(l2_bytes) / std::max(per_head, 1.0));
  const int64_t enough =
      (264 + row_blocks - 1) / std::max(row_blocks, 1);  // blocks that run at once on a large GPU
  return static_cast<int>(std::clamp(std::max(fit, enough), int64_t{1}, std::max<int64_t>(all, 1)));
}

// Everything but the addresses, which run() brings.
Params params_of(const Request& r, const EmbeddedImage& image, int64_t l2_bytes) {
  Params p{};
  p.q = strided(r.q);
  p.k = strided(r.k);
  p.v = strided(r.v);
  p.heads = static_cast<int>(r.heads());
  p.k_group = r.k.size(1) > 0 ? static_cast<int>(r.heads() / r.k.size(1)) : 1;
  p.v_group = r.v.size(1) > 0 ? static_cast<int>(r.heads() / r.v.size(1)) : 1;
  p.rows = static_cast<int>(r.q_len());
  p.keys = static_cast<int>(r.kv_len());
  p.columns = static_cast<int>(r.head_dim());
  p.value_columns = static_cast<int>(r.value_dim());
  p.q_aligned = misalignment(r.q).empty();
  p.k_aligned = misalignment(r.k).empty();
  p.v_aligned = misalignment(r.v).empty();
  p.row_blocks = (p.rows + image.rows - 1) / image.rows;
  p.all_heads = static_cast<int>(r.batch() * r.heads());
  p.group_heads = group_heads(r, p.row_blocks, l2_bytes);
  p.mask = mask_of(r);
  if (p.mask.data != nullptr && p.mask.batch == 0 && p.mask.head != 0 && r.batch() > 1) {
    // Batch entries that share a mask's tiles run side by side, so that L2 brings them once.
    p.batches = static_cast<int>(r.batch());
    p.group_heads = std::max(p.group_heads / p.batches, 1) * p.batches;
  }
  p.scale = static_cast<float>(r.effective_scale());
  p.softcap = static_cast<float>(r.softcap);
  p.natural_scores = needs_natural_scores(r) ? 1 : 0;
  p.log2_per_score = static_cast<float>(p.natural_scores ? kLog2E : r.effective_scale() * kLog2E);
  p.natural_per_score = p.natural_scores ? 1.0f : p.scale;
  p.geometry = geometry_of(r);
  p.sinks = vector_of(r.sinks);
  p.slopes = vector_of(r.alibi_slopes);
  p.dropout = dropout_of(r);
  if (r.paging.active()) {
    const TensorView& table = r.paging.block_table;
    p.paging = {table.as<int>(), stride_of(table, 0), stride_of(table, 1),
                static_cast<int>(r.paging.page_size)};
  }
  return p;
}

struct Choice {
  EmbeddedImage embedded;
  const cuda::Image* image = nullptr;
  std::string note;  // how an exact instance was had, or why not (exact.h); empty: none was wanted
};

// Of the images as good as `first` the one of which most threads fit a multiprocessor of this GPU; of equals
// the one with more stages.
Result<Choice> choose_embedded(const EmbeddedImage& first, std::span<const EmbeddedImage> images,
                               int device) {
  Choice best;
  std::pair<int, int> best_value;
  for (const EmbeddedImage& embedded : images) {
    if (!same_rank(embedded, first)) continue;
    ATTNSCOPE_ASSIGN(const cuda::Image* image, loaded(embedded, device));
    const std::pair value(image->resources().blocks_per_sm * embedded.threads, embedded.stages);
    if (best.image == nullptr || value > best_value) best = {embedded, image, {}}, best_value = value;
  }
  return best;
}

// An exact instance where it is wanted and can be had, else an embedded image.
Result<Choice> choose_image(const Request& r, std::span<const EmbeddedImage> images,
                            const cuda::DeviceInfo& info) {
  const EmbeddedImage* first = smallest_image(r, images);
  if (first == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("no image of {} for head sizes {} and {}",
                                                  dtype_name(r.q.dtype), r.head_dim(), r.value_dim()));
  ExactImage exact = exact_image(r, *first, cuda::gpu_target(info.sm()));
  if (exact.image) {
    if (const auto image = loaded(*exact.image, info.index))
      return Choice{*exact.image, *image, exact.note};
    else
      exact.note += fmt::format(", but it does not load: {}", image.error().message);
  }
  ATTNSCOPE_ASSIGN(Choice choice, choose_embedded(*first, images, info.index));
  choice.note = exact.note;
  return choice;
}

class FusedPlan final : public BackendPlan {
 public:
  FusedPlan(const Request& r, std::string_view kernel, const Choice& choice, append::Step append,
            int64_t l2_bytes)
      : kernel_(kernel),
        embedded_(choice.embedded),
        image_(*choice.image),
        note_(choice.note),
        append_(std::move(append)),
        device_(r.q.device.index),
        l2_bytes_(l2_bytes),
        cost_(base_cost(r)) {
    const Params p = params_of(r, embedded_, l2_bytes);
    blocks_ = p.row_blocks * p.all_heads;
    cost_.kernels = (blocks_ > 0 ? 1 : 0) + (append_.needed() ? 1 : 0);
    cost_.moved_bytes = cost_.min_bytes + 2 * static_cast<double>(append::bytes_of(r));
    const int64_t rows = r.batch() * r.heads() * r.q_len();
    written_ = rows * (r.value_dim() * static_cast<int64_t>(dtype_size(r.q.dtype)) + (r.wants.lse ? 4 : 0));
  }

  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (blocks_ == 0 && !append_.needed()) return {};
    const cuda::DeviceGuard guard(device_);
    ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
    ATTNSCOPE_TRY(append_.run(r, options.stream));
    if (blocks_ == 0) return {};
    Params p = params_of(r, embedded_, l2_bytes_);
    const Strided out = strided(outputs.out);
    p.out = outputs.out.data;
    p.out_batch = out.batch, p.out_head = out.head, p.out_row = out.row, p.out_column = out.column;
    p.out_aligned = misalignment(outputs.out).empty();
    if (r.wants.lse) {
      p.lse = outputs.lse.as<float>();
      p.lse_batch = stride_of(outputs.lse, 0);
      p.lse_head = stride_of(outputs.lse, 1);
      p.lse_row = stride_of(outputs.lse, 2);
    }
    EventInfo info{kernel_, EventKind::kKernel, static_cast<int64_t>(cost_.min_bytes) - written_, written_,
                   static_cast<int64_t>(cost_.flops)};
    const TensorView* const inputs[] = {&r.q, &r.k, &r.v, &r.mask};
    info.inputs = inputs;
    info.input_count = r.mask_kind == MaskKind::kNone ? 3 : 4;
    const EventScope scope(info);
    return image_.launch(blocks_, &p, static_cast<CUstream>(options.stream));
  }

  CostModel cost() const override { return cost_; }
  std::vector<std::string> steps() const override {
    std::vector<std::string> steps;
    if (append_.needed()) steps.push_back(append_.describe());
    if (blocks_ == 0)
      steps.emplace_back("nothing to compute");
    else
      steps.push_back(
          fmt::format("kernel {}  {}: {} × {} tiles, {} blocks of {} threads, {} registers, {} shared{}{}",
                      kernel_, embedded_.name, embedded_.rows, embedded_.keys, blocks_, embedded_.threads,
                      image_.resources().registers, format_bytes(image_.resources().shared_bytes),
                      note_.empty() ? "" : "; ", note_));
    return steps;
  }

 private:
  std::string_view kernel_;
  const EmbeddedImage embedded_;
  const cuda::Image& image_;
  const std::string note_;
  append::Step append_;
  int device_;
  int64_t l2_bytes_;
  CostModel cost_;
  int blocks_ = 0;
  int64_t written_ = 0;
};

}  // namespace

std::string misalignment(const TensorView& v) {
  const auto per_piece = static_cast<int64_t>(16 / dtype_size(v.dtype));
  if (v.numel() == 0) return {};
  if (v.size(3) > 1 && v.stride(3) != 1)
    return fmt::format("columns are {} elements apart, not contiguous", v.stride(3));
  if (v.size(3) % per_piece != 0)
    return fmt::format("{} columns are no multiple of {}", v.size(3), per_piece);
  if (reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return "data is not 16-byte aligned";
  constexpr const char* kDimension[] = {"batch", "head", "row"};
  for (int d = 0; d < 3; ++d)
    if (v.size(d) > 1 && v.stride(d) % per_piece != 0)
      return fmt::format("{} stride is {} elements, not a multiple of {}", kDimension[d], v.stride(d),
                         per_piece);
  return {};
}

void refuse_common(const Request& r, Refusals& all) {
  if (r.head_dim() > kMaxHeadDim || r.value_dim() > kMaxHeadDim)
    all.add("head-dim-too-large",
            fmt::format("takes head sizes up to {}; these are {} and {}", kMaxHeadDim, r.head_dim(),
                        r.value_dim()),
            "use math, or split the heads");
  if (const Status device = cuda::usable(r.q.device.index); !device)
    all.add("device", device.error().message, device.error().remedy);
  const int64_t blocks = r.batch() * r.heads() * ((r.q_len() + kSmallestBlockRows - 1) / kSmallestBlockRows);
  if (std::max({r.q_len(), r.kv_len(), blocks}) > kMaxIndex)
    all.add("too-long",
            fmt::format("{} rows, {} keys or {} blocks are more than {}", r.q_len(), r.kv_len(), blocks,
                        kMaxIndex),
            "split the batch");
  if (!r.score_program.empty()) all.add("score-program", "score programs are not implemented");
  if (r.limits.splits > 1)
    all.add("splits", fmt::format("cannot split the keys into {} parts", r.limits.splits),
            "leave splits at 0 or 1");
  if (r.limits.sm_count > 0)
    all.add("sm-count", fmt::format("cannot be held to {} multiprocessors", r.limits.sm_count),
            "leave sm_count at 0");
}

Result<std::shared_ptr<const BackendPlan>> make_plan(const Request& r, std::string_view kernel,
                                                     std::span<const EmbeddedImage> images) {
  ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(r.q.device.index));
  ATTNSCOPE_ASSIGN(const Choice choice, choose_image(r, images, *info));
  ATTNSCOPE_ASSIGN(append::Step append, append::Step::prepare(r));
  return std::make_shared<FusedPlan>(r, kernel, choice, std::move(append), info->l2_bytes);
}

}  // namespace attnscope::mma
