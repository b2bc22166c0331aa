#include "backends/cuda_flash_sm90/featured/exact.h"

#include "attention/cost.h"
#include "backends/cuda_flash_sm90/exact.h"
#include "backends/cuda_flash_sm90/featured/plan.h"
#include "backends/cuda_jit/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace attnscope::flash_sm90 {
namespace {

// As for the plain kernel (exact.cpp): measured there.
constexpr double kLeastSaving = 0.08;  // of the products' work
constexpr double kLeastFlops = 2e9;

int rounded_up(int64_t n, int to) {
  return static_cast<int>((n + to - 1) / to * to);
}

// What distinguishes an instance: the macros of entry.cu.
struct Shape {
  int e, ev, keys, q_stages;
  const char* order;
};

// E in steps of wgmma's contraction, Ev in steps of 32: O leaves 32 columns at a time.
Shape shape_for(const Request& r, const FeaturedImage& embedded) {
  Shape s{std::max(16, rounded_up(r.head_dim(), 16)), std::max(32, rounded_up(r.value_dim(), 32)),
          embedded.keys, embedded.e <= 192 ? 2 : 1, embedded.warpgroups == 3 ? "kProducts" : "kFree"};
  if (embedded.e == 256 && std::max(s.e, s.ev) <= 192) s.keys = embedded.transform ? 80 : 96;
  return s;
}

}  // namespace

cuda::WantedInstance exact_featured_instance(const Request& r, const FeaturedImage& embedded) {
  if (r.mask_kind != MaskKind::kNone) return {std::nullopt, "images with a mask have no instances"};
  const Shape s = shape_for(r, embedded);
  const double saving = 1 - static_cast<double>(s.e + s.ev) / (embedded.e + embedded.ev);
  if (saving <= 0) return {std::nullopt, fmt::format("the embedded image {} fits", embedded.name)};
  if (saving < kLeastSaving)
    return {std::nullopt,
            fmt::format("only {:.0f} % of the products of {} are over zeros", 100 * saving, embedded.name)};
  if (embedded.transform && embedded.e < 256)
    return {std::nullopt, "softcap, ALiBi and dropout take too long to compile at this size"};
  if (base_cost(r).flops < kLeastFlops)
    return {std::nullopt, "the call is too short to gain from an exact instance"};
  cuda::KernelInstance instance;
  instance.name = fmt::format("flash_sm90_featured_e{}_v{}_k{}_w{}_t{:d}_{}_exact", s.e, s.ev, s.keys,
                              embedded.warpgroups, embedded.transform, dtype_name(embedded.dtype));
  instance.entry = "backends/cuda_flash_sm90/featured/exact.cu";
  instance.defines = {fmt::format("ATTNSCOPE_E={}", s.e),
                      fmt::format("ATTNSCOPE_EV={}", s.ev),
                      fmt::format("ATTNSCOPE_COLUMNS={}", s.keys),
                      fmt::format("ATTNSCOPE_CONSUMERS={}", embedded.warpgroups),
                      fmt::format("ATTNSCOPE_ORDER={}", s.order),
                      fmt::format("ATTNSCOPE_TRANSFORM={:d}", embedded.transform),
                      fmt::format("ATTNSCOPE_Q_STAGES={}", s.q_stages),
                      "ATTNSCOPE_STORE=kDirect",
                      fmt::format("ATTNSCOPE_TYPE={}", embedded.dtype == DType::kBF16 ? "kBf16" : "kF16")};
  instance.arch = "sm_90a";
  instance.sources = cuda::kernel_sources();
  return {std::move(instance), {}};
}

cuda::WantedInstance wanted_by_flash(const Request& r, const cuda::GpuTarget& gpu) {
  cuda::WantedInstance plain = wanted_on(r, gpu);
  if (!plain.serves || !needs_featured(r)) return plain;
  const FeaturedImage* image = featured_image_for(r, false);
  if (image == nullptr) return {std::nullopt, "takes bf16 and f16 with head sizes up to 256", false};
  return exact_featured_instance(r, *image);
}

ExactFeatured exact_featured(const Request& r, const FeaturedImage& embedded) {
  const cuda::WantedInstance wanted = exact_featured_instance(r, embedded);
  if (!wanted.instance) return {};
  const auto held = cuda::held_kernel(*wanted.instance);
  if (!held->there())
    return {nullptr,
            fmt::format("computes head sizes {} and {} over zeros: {}", embedded.e, embedded.ev, held->note)};
  static std::mutex mutex;
  static std::map<const void*, FeaturedImage> all;  // elements never move
  const std::scoped_lock lock(mutex);
  const auto [it, fresh] = all.try_emplace(held->cubin.data(), embedded);
  if (fresh) {
    const Shape s = shape_for(r, embedded);
    FeaturedImage& image = it->second;
    image.name = held->name.c_str();
    image.e = s.e;
    image.ev = s.ev;
    image.keys = s.keys;
    image.begin = held->bytes().data();
    image.end = image.begin + held->bytes().size();
  }
  return {&it->second, held->note};
}

}  // namespace attnscope::flash_sm90
