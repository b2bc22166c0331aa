#include "trace/strings.h"

namespace attnscope::trace {
namespace {

uint64_t load64(const char* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}
uint64_t mix(uint64_t a, uint64_t b) {
  const auto m = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(m) ^ static_cast<uint64_t>(m >> 64);
}

// Not a defence against chosen collisions: those only slow a read down, and the table stays correct.
uint32_t hash_text(std::string_view s) {
  constexpr uint64_t k0 = 0x9E3779B97F4A7C15ull, k1 = 0xD6E8FEB86659FD93ull;
  const char* p = s.data();
  size_t n = s.size();
  uint64_t h = mix(n ^ k0, k1);
  for (; n >= 16; n -= 16, p += 16) h = mix(load64(p) ^ k1, load64(p + 8) ^ h);
  uint64_t a = 0, b = 0;
  if (n >= 8) {
    a = load64(p);
    b = load64(p + n - 8);
  } else if (n > 0) {
    for (size_t i = 0; i < n; ++i) a = a << 8 | static_cast<unsigned char>(p[i]);
  }
  h = mix(a ^ k1, b ^ h);
  return static_cast<uint32_t>(h ^ h >> 32);
}

constexpr size_t kMaxProbes = 4096;  // bounds the work per name under chosen collisions

}  // namespace

StringPool::StringPool() {
  entries_.push_back({0, 0, 0});
  rehash(256);
}

StringId StringPool::intern(std::string_view text) {
  if (text.empty()) return kEmptyString;
  const uint32_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (size_t probe = 0; probe < kMaxProbes && slots_[slot] != 0; ++probe, slot = (slot + 1) & mask) {
    const Entry& e = entries_[slots_[slot]];
    if (e.hash == hash && e.length == text.size() &&
        std::memcmp(bytes_.data() + e.offset, text.data(), text.size()) == 0) {
      return slots_[slot];
    }
  }
  const auto id = static_cast<StringId>(entries_.size());
  entries_.push_back({bytes_.size(), static_cast<uint32_t>(text.size()), hash});
  bytes_.append(text.data(), text.size());
  if (slots_[slot] == 0) slots_[slot] = id;  // else: collided past the bound, stored without deduplication
  if (entries_.size() * 4 > slots_.size() * 3) rehash(slots_.size() * 2);
  return id;
}

StringId StringPool::find(std::string_view text) const {
  if (text.empty()) return kEmptyString;
  const uint32_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (size_t probe = 0; probe < kMaxProbes && slots_[slot] != 0; ++probe, slot = (slot + 1) & mask) {
    if (entries_[slots_[slot]].hash == hash && view(slots_[slot]) == text) return slots_[slot];
  }
  return kEmptyString;
}

void StringPool::rehash(size_t slots) {
  slots_.assign(slots, 0);
  const size_t mask = slots - 1;
  for (StringId id = 1; id < entries_.size(); ++id) {
    size_t slot = entries_[id].hash & mask;
    size_t probe = 0;
    while (slots_[slot] != 0 && probe++ < kMaxProbes) slot = (slot + 1) & mask;
    if (slots_[slot] == 0) slots_[slot] = id;
  }
}

void StringPool::shrink_to_fit() {
  bytes_.shrink_to_fit();
  entries_.shrink_to_fit();
}

}  // namespace attnscope::trace
