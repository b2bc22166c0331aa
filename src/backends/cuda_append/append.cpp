#include "backends/cuda_append/append.h"

#include "attention/geometry.h"
#include "backends/cuda_append/arguments.h"
#include "base/event_sink.h"
#include "base/text.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace attnscope::append {
namespace {

constexpr int kThreads = 128;  // kernel.cuh

Result<const cuda::Image*> loaded(int device) {
  static std::mutex mutex;
  static std::map<int, cuda::Image> cache;  // elements never move
  const std::scoped_lock lock(mutex);
  if (const auto it = cache.find(device); it != cache.end()) return &it->second;
  const EventScope scope("attnscope::load_image", EventKind::kRuntime);
  ATTNSCOPE_ASSIGN(cuda::Image fresh,
                   cuda::Image::load(image(), kKernel.data(), "append_shared_bytes", kThreads, device));
  return &cache.emplace(device, fresh).first->second;
}

}  // namespace

Result<Step> Step::prepare(const Request& r) {
  Step step;
  if (appended_keys(r) * r.batch() == 0) return step;
  ATTNSCOPE_ASSIGN(step.image_, loaded(r.q.device.index));
  step.text_ =
      fmt::format("kernel {}  copies {} new keys and values of each of {} batch entries into the cache: {}",
                  kKernel, appended_keys(r), r.batch(), format_bytes(static_cast<double>(bytes_of(r))));
  return step;
}

Status Step::run(const Request& r, void* stream) const {
  if (!needed()) return {};
  const int64_t bytes = bytes_of(r);
  EventInfo info{kKernel, EventKind::kKernel, bytes, bytes};
  const TensorView* const inputs[] = {&r.paging.append_k, &r.paging.append_v};
  info.inputs = inputs;
  info.input_count = 2;
  const EventScope scope(info);
  const Params p = params_of(r);
  return image_->launch(static_cast<int>(r.batch()) * p.appended, &p, static_cast<CUstream>(stream));
}

}  // namespace attnscope::append
