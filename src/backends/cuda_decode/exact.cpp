#include "backends/cuda_decode/exact.h"

#include "backends/cuda_decode/arguments.h"
#include "backends/cuda_decode/heuristics.h"
#include "backends/cuda_jit/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace attnscope::decode {
namespace {

// Measured on an H200: docs/kernels/jit.md.
constexpr double kLeastBytes = 16e6;  // of K and V; a call that reads less lasts a few microseconds
constexpr int kMostStages = 6;
constexpr int64_t kSmallShared = 101376;  // that images for every GPU keep to

int rounded_up(int64_t n, int to) {
  return std::max(to, static_cast<int>((n + to - 1) / to * to));
}

// images.cmake: code for 9.0, or for 8.0, which every 8.x runs.
bool has_machine_code(const EmbeddedImage& image, const cuda::GpuTarget& gpu) {
  return gpu.major() == (image.large ? 9 : 8);
}

// The embedded image with other sizes; what shared memory that leaves becomes stages.
EmbeddedImage shape_for(const Request& r, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu) {
  EmbeddedImage s = embedded;
  s.e = rounded_up(r.head_dim(), 16);
  s.ev = rounded_up(r.value_dim(), 16);
  const int64_t room = embedded.large ? gpu.shared_per_block : kSmallShared;
  for (EmbeddedImage more = s; more.stages <= kMostStages && shared_bytes_of(more) <= room; ++more.stages)
    s.stages = more.stages;
  return s;
}

// Only the loop for plain requests knows its head sizes (Block::is_plain): why this request does not take it.
std::string why_general(const Request& r) {
  if (r.head_dim() % 16 != 0 || r.value_dim() % 16 != 0) return "a head size is no multiple of 16";
  if (r.softcap > 0) return "softcap";
  if (r.alibi_slopes.data != nullptr) return "ALiBi";
  const auto page = static_cast<unsigned>(r.paging.page_size);
  if (r.paging.active() && (page < 16 || !std::has_single_bit(page)))
    return fmt::format("pages of {} keys", page);
  return {};
}

std::string why_embedded(const Request& r, const EmbeddedImage& embedded, const EmbeddedImage& exact) {
  if (exact.e == embedded.e && exact.ev == embedded.ev)
    return fmt::format("the embedded image {} fits", embedded.name);
  if (const std::string why = why_general(r); !why.empty())
    return fmt::format("the general loop computes it, which gains nothing: {}", why);
  if (cache_bytes(r) < kLeastBytes) return "the call is too short to gain from an exact instance";
  return {};
}

std::vector<std::string> defines_of(const EmbeddedImage& s) {
  return {fmt::format("ATTNSCOPE_E={}", s.e),
          fmt::format("ATTNSCOPE_EV={}", s.ev),
          fmt::format("ATTNSCOPE_ROW_WARPS={}", s.row_warps),
          fmt::format("ATTNSCOPE_TEAMS={}", s.teams),
          fmt::format("ATTNSCOPE_UNITS={}", s.units),
          fmt::format("ATTNSCOPE_STAGES={}", s.stages),
          "ATTNSCOPE_BLOCKS_PER_SM=1",
          fmt::format("ATTNSCOPE_TYPE={}", s.dtype == DType::kBF16 ? "kBf16" : "kF16")};
}

}  // namespace

cuda::WantedInstance exact_instance(const Request& r, const EmbeddedImage& embedded,
                                    const cuda::GpuTarget& gpu) {
  const EmbeddedImage s = shape_for(r, embedded, gpu);
  if (has_machine_code(embedded, gpu))
    if (std::string why = why_embedded(r, embedded, s); !why.empty()) return {std::nullopt, std::move(why)};
  cuda::KernelInstance instance;
  instance.name = fmt::format("decode_e{}_v{}_r{}_t{}_u{}_s{}_{}_exact", s.e, s.ev, s.row_warps, s.teams,
                              s.units, s.stages, dtype_name(s.dtype));
  instance.entry = "backends/cuda_decode/image/forward.cu";
  instance.defines = defines_of(s);
  instance.arch = gpu.code_arch();
  instance.sources = cuda::kernel_sources();
  return {std::move(instance), {}};
}

cuda::WantedInstance wanted_instance(const Request& r, const cuda::GpuTarget& gpu) {
  if (too_many_rows(r)) return {std::nullopt, "is for few query rows", false};
  const EmbeddedImage* embedded =
      dtype_is_half(r.q.dtype) ? choose_image(r, {0, gpu.shared_per_block, gpu.sm >= 90}) : nullptr;
  if (embedded == nullptr) return {std::nullopt, "takes bf16 and f16 with head sizes up to 256", false};
  if (r.head_dim() % 8 != 0 || r.value_dim() % 8 != 0)
    return {std::nullopt, "takes head sizes that are multiples of 8", false};
  return exact_instance(r, *embedded, gpu);
}

ExactImage exact_image(const Request& r, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu) {
  const cuda::WantedInstance wanted = exact_instance(r, embedded, gpu);
  if (!wanted.instance) return {};
  const auto held = cuda::held_kernel(*wanted.instance);
  if (!held->there()) {
    const std::string instead =
        has_machine_code(embedded, gpu)
            ? fmt::format("computes head sizes {} and {} in the general loop", embedded.e, embedded.ev)
            : fmt::format("the driver compiles {} for {}", embedded.name, gpu.arch());
    return {std::nullopt, instead + ": " + held->note};
  }
  EmbeddedImage image = shape_for(r, embedded, gpu);
  image.name = held->name.c_str();
  image.begin = held->bytes().data();
  image.end = image.begin + held->bytes().size();
  return {image, held->note};
}

}  // namespace attnscope::decode
