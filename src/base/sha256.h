#pragma once
// SHA-256 (FIPS 180-4): names of cache entries and the checksum of what they hold.

#include <cstdint>
#include <string>
#include <string_view>

namespace attnscope {

class Sha256 {
 public:
  void add(std::string_view bytes);
  // The bytes with their length before them, so that two fields never run into one.
  void add_field(std::string_view bytes);
  // 64 lower-case hexadecimal digits of everything added; nothing may be added after.
  std::string hex();

 private:
  void block(const unsigned char* bytes);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t length_ = 0;  // bytes
  unsigned char pending_[64] = {};
};

std::string sha256_hex(std::string_view bytes);

}  // namespace attnscope
