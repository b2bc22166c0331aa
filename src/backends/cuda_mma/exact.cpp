#include "backends/cuda_mma/exact.h"

#include "attention/cost.h"
#include "backends/cuda_jit/held.h"
#include "backends/cuda_mma/plan.h"
#include "base/text.h"
#include "cuda/kernels_tile/maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace attnscope::mma {
namespace {

// Measured on an H200: docs/kernels/jit.md.
constexpr double kLeastSaving = 0.08;  // of the products' work
constexpr double kLeastFlops = 2e9;    // a call shorter than about 10 µs does not get faster

int rounded_up(int64_t n, int to) {
  return static_cast<int>((n + to - 1) / to * to);
}

// One configuration: the macros of image/entry.cu.
struct Shape {
  int e, ev, mtiles, warps, keys, blocks, stages;
  int rows() const { return 16 * mtiles * warps; }
};

int64_t shared_bytes_of(const Shape& s, bool featured) {
  const int64_t q = tile::tile_bytes(s.rows(), std::max(s.e, s.ev));
  const int64_t kv = tile::tile_bytes(s.keys, s.e) + tile::tile_bytes(s.keys, s.ev);
  return q + s.stages * kv + (featured ? int64_t{s.rows()} * s.keys * 4 : 0) + 4096;  // ranges and the like
}

// Machine code for 8.0 runs on 8.x, for 9.0 on 9.0.
bool has_machine_code(const cuda::GpuTarget& gpu) {
  return gpu.major() == 8 || gpu.major() == 9;
}

int define_of(const EmbeddedImage& image, std::string_view name) {
  for (const std::string_view define : split(image.defines, ';'))
    if (define.starts_with(name) && define.substr(name.size()).starts_with('='))
      return std::atoi(std::string(define.substr(name.size() + 1)).c_str());
  return 0;
}

// Between 128 and 192: one 16-row tile a warp and as many blocks as registers then allow. On an H200 160
// takes 0.88 (causal 0.92) of its time with the settings of 192, and featured 160 and 192 take 0.71 of theirs
// with the 32 keys a step of 256.
bool use_small_tiles(const EmbeddedImage& embedded, int columns) {
  return embedded.e > 128 && columns <= 192;
}

// The featured 112 spills with the settings of 128 and is slower than 128 over zeros with smaller tiles.
bool is_slower(const EmbeddedImage& embedded, const Shape& s) {
  return embedded.featured && !embedded.dropout && embedded.e == 128 && std::max(s.e, s.ev) > 96;
}

// The embedded image's settings with other sizes; two stages where as many blocks fit as with one.
Shape shape_for(const Request& r, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu) {
  Shape s{std::max(16, rounded_up(r.head_dim(), 16)),
          std::max(16, rounded_up(r.value_dim(), 16)),
          define_of(embedded, "ATTNSCOPE_MTILES"),
          define_of(embedded, "ATTNSCOPE_WARPS"),
          embedded.keys,
          define_of(embedded, "ATTNSCOPE_BLOCKS"),
          1};
  if (use_small_tiles(embedded, std::max(s.e, s.ev))) {
    s.mtiles = 1;
    s.warps = 4;
    s.keys = 64;
    s.blocks = embedded.featured ? 2 : 3;
  }
  if (embedded.featured || embedded.e > 128) return s;
  Shape two = s;
  two.stages = 2;
  const int64_t block = shared_bytes_of(two, false) + 1024;  // what a multiprocessor keeps for itself
  return block <= gpu.shared_per_block && s.blocks * block <= gpu.shared_per_sm ? two : s;
}

std::vector<std::string> defines_of(const EmbeddedImage& embedded, const Shape& s) {
  return {fmt::format("ATTNSCOPE_E={}", s.e),
          fmt::format("ATTNSCOPE_EV={}", s.ev),
          fmt::format("ATTNSCOPE_MTILES={}", s.mtiles),
          fmt::format("ATTNSCOPE_WARPS={}", s.warps),
          fmt::format("ATTNSCOPE_KEYS={}", s.keys),
          fmt::format("ATTNSCOPE_FEATURES={}", embedded.dropout    ? 2
                                               : embedded.featured ? 1
                                                                   : 0),
          fmt::format("ATTNSCOPE_BLOCKS={}", s.blocks),
          fmt::format("ATTNSCOPE_STAGES={}", s.stages),
          fmt::format("ATTNSCOPE_TYPE={}", embedded.dtype == DType::kBF16 ? "kBf16" : "kF16")};
}

cuda::WantedInstance wanted(const Request& r, const cuda::GpuTarget& gpu) {
  if (!dtype_is_half(r.q.dtype)) return {std::nullopt, "compiles bf16 and f16 only", false};
  const EmbeddedImage* embedded = smallest_image(r, images());
  if (embedded == nullptr) return {std::nullopt, "takes head sizes up to 256", false};
  return exact_instance(r, *embedded, gpu);
}

}  // namespace

bool needs_features(const Request& r) {
  return r.mask_kind != MaskKind::kNone || r.softcap > 0 || r.alibi_slopes.data != nullptr ||
         r.paging.active() || !misalignment(r.q).empty() || !misalignment(r.k).empty() ||
         !misalignment(r.v).empty();
}

bool needs_dropout(const Request& r) {
  return r.dropout.p > 0 && r.dropout.p < 1;
}

bool same_rank(const EmbeddedImage& a, const EmbeddedImage& b) {
  return a.dtype == b.dtype && a.e == b.e && a.dropout == b.dropout && a.featured == b.featured;
}

const EmbeddedImage* smallest_image(const Request& r, std::span<const EmbeddedImage> images) {
  const int64_t columns = std::max(r.head_dim(), r.value_dim());
  const bool featured = needs_features(r), dropout = needs_dropout(r);
  const auto rank = [](const EmbeddedImage& i) { return std::tuple(i.e, i.dropout, i.featured); };
  const EmbeddedImage* first = nullptr;
  for (const EmbeddedImage& i : images)
    if (i.dtype == r.q.dtype && i.e >= columns && (i.featured || !featured) && (i.dropout || !dropout) &&
        (first == nullptr || rank(i) < rank(*first)))
      first = &i;
  return first;
}

cuda::WantedInstance exact_instance(const Request& r, const EmbeddedImage& embedded,
                                    const cuda::GpuTarget& gpu) {
  if (embedded.defines == nullptr) return {std::nullopt, "its kernel is not compiled at run time"};
  const Shape s = shape_for(r, embedded, gpu);
  const double saving = 1 - static_cast<double>(s.e + s.ev) / (2 * embedded.e);
  if (has_machine_code(gpu)) {
    if (saving <= 0) return {std::nullopt, fmt::format("the embedded image {} fits", embedded.name)};
    if (saving < kLeastSaving)
      return {std::nullopt,
              fmt::format("only {:.0f} % of the products of {} are over zeros", 100 * saving, embedded.name)};
    if (is_slower(embedded, s)) return {std::nullopt, fmt::format("{} is faster over zeros", embedded.name)};
    if (base_cost(r).flops < kLeastFlops)
      return {std::nullopt, "the call is too short to gain from an exact instance"};
  }
  cuda::KernelInstance instance;
  instance.name = fmt::format("mma_e{}_v{}_r{}_k{}_s{}_{}{}_exact", s.e, s.ev, s.rows(), s.keys, s.stages,
                              dtype_name(embedded.dtype),
                              embedded.dropout    ? "_dropout"
                              : embedded.featured ? "_featured"
                                                  : "");
  instance.entry = "backends/cuda_mma/image/entry.cu";
  instance.defines = defines_of(embedded, s);
  instance.arch = gpu.code_arch();
  instance.sources = cuda::kernel_sources();
  return {std::move(instance), {}};
}

cuda::WantedInstance wanted_by_flash(const Request& r, const cuda::GpuTarget& gpu) {
  if (r.mask_kind != MaskKind::kNone) return {std::nullopt, "takes no bool mask or bias", false};
  return wanted(r, gpu);
}

cuda::WantedInstance wanted_by_efficient(const Request& r, const cuda::GpuTarget& gpu) {
  return wanted(r, gpu);
}

ExactImage exact_image(const Request& r, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu) {
  const cuda::WantedInstance wanted = exact_instance(r, embedded, gpu);
  if (!wanted.instance) return {};
  const auto held = cuda::held_kernel(*wanted.instance);
  if (!held->there()) {
    const std::string instead =
        has_machine_code(gpu)
            ? fmt::format("computes head sizes {} and {} over zeros", embedded.e, embedded.e)
            : fmt::format("the driver compiles {} for {}", embedded.name, gpu.arch());
    return {std::nullopt, instead + ": " + held->note};
  }
  const Shape s = shape_for(r, embedded, gpu);
  EmbeddedImage image = embedded;
  image.name = held->name.c_str();
  image.e = std::max(s.e, s.ev);
  image.rows = s.rows();
  image.keys = s.keys;
  image.threads = 32 * s.warps;
  image.stages = s.stages;
  image.begin = held->bytes().data();
  image.end = image.begin + held->bytes().size();
  return {image, held->note};
}

}  // namespace attnscope::mma
