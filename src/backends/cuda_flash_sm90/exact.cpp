#include "backends/cuda_flash_sm90/exact.h"

#include "attention/cost.h"
#include "backends/cuda_jit/held.h"
#include "base/text.h"

#include <fmt/format.h>

#include <optional>

namespace attnscope::flash_sm90 {
namespace {

// Measured on an H200: docs/kernels/jit.md.
constexpr double kLeastSaving = 0.08;  // of the products' work
constexpr double kLeastFlops = 2e9;    // a call shorter than about 5 µs does not get faster
constexpr int64_t kManyRows = 2048;    // tiles of 192 rows waste too much of a causal problem with fewer

int rounded_up(int64_t n, int to) {
  return static_cast<int>((n + to - 1) / to * to);
}

// What distinguishes the exact instance from the embedded image.
struct Shape {
  int e, ev, keys, warpgroups;
  const char* order;  // null: as embedded
};

// E in steps of wgmma's contraction; Ev in steps of 16, of 32 where O leaves by direct stores. Without these
// settings the sizes alone gain less: 3 % instead of 8 to 18 % at 80 and at 72.
Shape shape_for(const Request& r, const EmbeddedImage& embedded) {
  Shape s{rounded_up(r.head_dim(), 16), rounded_up(r.value_dim(), 16), embedded.keys, embedded.warpgroups,
          nullptr};
  if (embedded.ev > 128) s.ev = rounded_up(r.value_dim(), 32);
  if (embedded.e == 64 || (embedded.e == 96 && s.ev <= 80)) {  // registers for a third warpgroup
    s.keys = embedded.e == 64 ? 128 : 112;
    s.warpgroups = 3;
    s.order = "kProducts";
  } else if (embedded.e == 128 && embedded.ev == 128 && s.ev <= 112 && !embedded.causal) {
    s.keys = 144;  // registers for longer steps
  } else if (embedded.e == 192 && embedded.ev == 192 && s.ev <= 160) {
    s.keys = 112;  // shared memory for longer steps
  } else if (embedded.e == 256) {
    s.order = "kFree";  // kProducts spills at these sizes
  }
  return s;
}

std::vector<std::string> defines_of(const EmbeddedImage& embedded, const Shape& s) {
  std::vector<std::string> defines;
  for (const std::string_view define : split(embedded.defines, ';')) {
    const std::string_view name = define.substr(0, define.find('='));
    if (name == "ATTNSCOPE_E")
      defines.push_back(fmt::format("ATTNSCOPE_E={}", s.e));
    else if (name == "ATTNSCOPE_EV")
      defines.push_back(fmt::format("ATTNSCOPE_EV={}", s.ev));
    else if (name == "ATTNSCOPE_COLUMNS")
      defines.push_back(fmt::format("ATTNSCOPE_COLUMNS={}", s.keys));
    else if (name == "ATTNSCOPE_CONSUMERS")
      defines.push_back(fmt::format("ATTNSCOPE_CONSUMERS={}", s.warpgroups));
    else if (name == "ATTNSCOPE_ORDER" && s.order != nullptr)
      defines.push_back(fmt::format("ATTNSCOPE_ORDER={}", s.order));
    else
      defines.emplace_back(define);
  }
  return defines;
}

}  // namespace

cuda::WantedInstance exact_instance(const Request& r, const EmbeddedImage& embedded) {
  const Shape s = shape_for(r, embedded);
  const double saving = 1 - static_cast<double>(s.e + s.ev) / (embedded.e + embedded.ev);
  if (saving <= 0) return {std::nullopt, fmt::format("the embedded image {} fits", embedded.name)};
  if (saving < kLeastSaving)
    return {std::nullopt,
            fmt::format("only {:.0f} % of the products of {} are over zeros", 100 * saving, embedded.name)};
  if (base_cost(r).flops < kLeastFlops)
    return {std::nullopt, "the call is too short to gain from an exact instance"};
  if (embedded.causal && s.warpgroups == 3 && r.q_len() < kManyRows)
    return {std::nullopt, fmt::format("gains nothing with a causal mask and fewer than {} rows", kManyRows)};
  cuda::KernelInstance instance;
  instance.name = fmt::format("flash_sm90_e{}_v{}_k{}_w{}_c{:d}_{}_exact", s.e, s.ev, s.keys, s.warpgroups,
                              embedded.causal, dtype_name(embedded.dtype));
  instance.entry = "backends/cuda_flash_sm90/image/exact.cu";
  instance.defines = defines_of(embedded, s);
  instance.arch = "sm_90a";
  instance.sources = cuda::kernel_sources();
  return {std::move(instance), {}};
}

cuda::WantedInstance wanted_instance(const Request& r) {
  const bool causal = r.causal != CausalMode::kNone;
  const EmbeddedImage* best = nullptr;
  for (const EmbeddedImage& image : images()) {
    if (image.dtype != r.q.dtype || image.causal != causal || image.any_output || image.e < r.head_dim() ||
        image.ev < r.value_dim())
      continue;
    if (best == nullptr || image.e + image.ev < best->e + best->ev) best = &image;
  }
  if (best == nullptr) return {std::nullopt, "takes bf16 and f16 with head sizes up to 256", false};
  return exact_instance(r, *best);
}

cuda::WantedInstance wanted_on(const Request& r, const cuda::GpuTarget& gpu) {
  if (gpu.sm != 90) return {std::nullopt, "is for sm_90a", false};
  if (r.mask_kind != MaskKind::kNone || r.paging.active())
    return {std::nullopt, "takes no mask, bias or paged cache", false};
  if (r.head_dim() % 8 != 0 || r.value_dim() % 8 != 0)
    return {std::nullopt, "takes head sizes that are multiples of 8", false};
  return wanted_instance(r);
}

ExactImage exact_image(const Request& r, const EmbeddedImage& embedded) {
  const cuda::WantedInstance wanted = exact_instance(r, embedded);
  if (!wanted.instance) return {};
  const auto held = cuda::held_kernel(*wanted.instance);
  if (!held->there())
    return {std::nullopt,
            fmt::format("computes head sizes {} and {} over zeros: {}", embedded.e, embedded.ev, held->note)};
  const Shape s = shape_for(r, embedded);
  EmbeddedImage image = embedded;
  image.name = held->name.c_str();
  image.e = s.e;
  image.ev = s.ev;
  image.keys = s.keys;
  image.warpgroups = s.warpgroups;
  image.begin = held->bytes().data();
  image.end = image.begin + held->bytes().size();
  return {image, held->note};
}

}  // namespace attnscope::flash_sm90
