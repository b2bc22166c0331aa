#include "backends/cuda_flash_sm90/loaded.h"

#include "base/event_sink.h"

#include <map>
#include <mutex>

namespace attnscope::flash_sm90 {

Result<const cuda::Image*> loaded(const char* name, std::span<const std::byte> cubin, int threads, int device,
                                  const char* entry, const char* shared_symbol) {
  static std::mutex mutex;
  static std::map<std::pair<const char*, int>, cuda::Image> cache;  // elements never move
  const std::scoped_lock lock(mutex);
  const auto key = std::pair(name, device);
  if (const auto it = cache.find(key); it != cache.end()) return &it->second;
  const EventScope scope("attnscope::load_image", EventKind::kRuntime);
  ATTNSCOPE_ASSIGN(cuda::Image fresh, cuda::Image::load(cubin, entry, shared_symbol, threads, device));
  return &cache.emplace(key, fresh).first->second;
}

}  // namespace attnscope::flash_sm90
