#include "trace/column.h"

#include <algorithm>
#include <cstdlib>

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTNSCOPE_PLAIN_REALLOC 1
#endif
#endif
#else
#define ATTNSCOPE_PLAIN_REALLOC 1  // the sanitizer sees overruns only in the heap
#endif
#ifndef ATTNSCOPE_PLAIN_REALLOC
#include <sys/mman.h>
#endif

namespace attnscope::trace::detail {
namespace {

void* checked(void* block) {
  if (!block) throw std::bad_alloc();
  return block;
}

#ifndef ATTNSCOPE_PLAIN_REALLOC
constexpr size_t kMapFrom = size_t{256} << 10;  // smaller blocks stay on the heap

void* map_block(size_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  // Huge pages would make every column resident up to 2 MiB past its end.
  madvise(block, bytes, MADV_NOHUGEPAGE);
  return block;
}
#endif

}  // namespace

void* resize_block(void* block, size_t old_bytes, size_t new_bytes) {
#ifdef ATTNSCOPE_PLAIN_REALLOC
  (void)old_bytes;
  if (new_bytes == 0) {
    std::free(block);
    return nullptr;
  }
  return checked(std::realloc(block, new_bytes));
#else
  const bool was_mapped = old_bytes >= kMapFrom;
  const bool map = new_bytes >= kMapFrom;
  if (was_mapped && map) {
    void* moved = mremap(block, old_bytes, new_bytes, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) throw std::bad_alloc();
    return moved;
  }
  if (!was_mapped && !map) {
    if (new_bytes != 0) return checked(std::realloc(block, new_bytes));
    std::free(block);
    return nullptr;
  }
  void* fresh = nullptr;
  if (map) {
    fresh = map_block(new_bytes);
  } else if (new_bytes != 0) {
    fresh = checked(std::malloc(new_bytes));
  }
  if (fresh && block) std::memcpy(fresh, block, std::min(old_bytes, new_bytes));
  if (was_mapped) {
    munmap(block, old_bytes);
  } else {
    std::free(block);
  }
  return fresh;
#endif
}

}  // namespace attnscope::trace::detail
