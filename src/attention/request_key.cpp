#include "attention/request_key.h"

#include <algorithm>
#include <bit>

namespace attnscope {
namespace {

class KeyWriter {
 public:
  KeyWriter() { key_.reserve(512); }
  template <typename T>
  void put(T value) {
    char bytes[sizeof(T)];
    __builtin_memcpy(bytes, &value, sizeof(T));
    key_.append(bytes, sizeof(T));
  }
  void put(const TensorView& v, bool present) {
    put(static_cast<uint8_t>(present ? 1 : 0));
    if (!present) return;
    put(static_cast<uint8_t>(v.dtype));
    put(static_cast<uint8_t>(v.rank));
    put(static_cast<uint8_t>(v.device.type));
    put(static_cast<int32_t>(v.device.index));
    // Alignment from the real address, capped at a cache line.
    const auto address = reinterpret_cast<uintptr_t>(v.data);
    put(static_cast<uint8_t>(address == 0 ? 6 : std::min(std::countr_zero(address), 6)));
    for (int d = 0; d < v.rank; ++d) {
      put(v.size(d));
      put(v.size(d) == 1 ? int64_t{-1} : v.stride(d));  // the stride of a size-1 dimension never matters
    }
  }
  void put(const std::string& text) {
    put(text.size());
    key_ += text;
  }
  std::string take() { return std::move(key_); }

 private:
  std::string key_;
};

}  // namespace

std::string request_key(const Request& r) {
  KeyWriter key;
  key.put(r.q, true);
  key.put(r.k, true);
  key.put(r.v, true);
  key.put(static_cast<uint8_t>(r.causal));
  key.put(r.window.left);
  key.put(r.window.right);
  key.put(static_cast<uint8_t>(r.mask_kind));
  key.put(r.mask, r.mask_kind != MaskKind::kNone || r.mask.data != nullptr);
  key.put(r.effective_scale());
  key.put(r.softcap);
  key.put(r.dropout.p);
  key.put(static_cast<uint8_t>(r.dropout.seed_on_device != nullptr));
  key.put(r.lengths.kv_lengths, r.lengths.has_kv_lengths());
  // Each by its own presence: one without the other is no valid request and must not find a valid one's plan.
  key.put(r.lengths.cu_q, r.lengths.cu_q.data != nullptr);
  key.put(r.lengths.cu_k, r.lengths.cu_k.data != nullptr);
  key.put(r.paging.block_table, r.paging.active());
  key.put(r.paging.page_size);
  key.put(r.paging.append_k, r.paging.append_k.data != nullptr);
  key.put(r.paging.append_v, r.paging.append_v.data != nullptr);
  key.put(r.sinks, r.sinks.data != nullptr);
  key.put(r.alibi_slopes, r.alibi_slopes.data != nullptr);
  key.put(r.score_program);
  key.put(static_cast<uint8_t>((r.wants.lse ? 1 : 0) | (r.wants.gradients ? 2 : 0) |
                               (r.wants.deterministic ? 4 : 0)));
  key.put(static_cast<int32_t>(r.limits.sm_count));
  key.put(static_cast<int32_t>(r.limits.splits));
  key.put(static_cast<int32_t>(r.limits.threads));
  key.put(r.limits.memory_bytes);
  return key.take();
}

}  // namespace attnscope
