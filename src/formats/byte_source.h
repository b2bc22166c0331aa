#pragma once
// Where bytes come from: a file, a pipe, memory; plain, gzip or zstd, told apart by content and not by name.

#include "attnscope/result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace attnscope::formats {

// Guards against decompression bombs. Real traces compress 10 to 40 times.
struct InputLimits {
  uint64_t max_plain_bytes = uint64_t{1} << 40;    // 1 TiB
  uint32_t max_ratio = 250;                        // plain ÷ compressed bytes …
  uint64_t ratio_from_bytes = uint64_t{64} << 20;  // … checked once this much has been unpacked
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to n bytes into dst; 0 at the end. Errors: kIo (unreadable), kBadInput (a limit was passed).
  virtual Result<size_t> read(char* dst, size_t n) = 0;
  // After the end: the stream was cut short or damaged; everything before that was delivered.
  virtual bool damaged() const { return false; }
  // After the end: the file had become shorter than it was when opened.
  virtual bool shrank() const { return false; }
  // After the end: bytes that belong to no compressed member followed the last one.
  virtual bool trailing() const { return false; }
};

// Opens path ("-": standard input); refuses directories. No decompression.
Result<std::unique_ptr<ByteSource>> open_file(const std::string& path);
// Bytes in memory, which must outlive the source.
std::unique_ptr<ByteSource> open_memory(std::string_view bytes);
// The bytes of `head`, then those of the rest: gives back what was read to look at it.
std::unique_ptr<ByteSource> put_back(std::string head, std::unique_ptr<ByteSource> rest);
// Unpacks gzip (any number of members) or zstd (any number of frames) when the content says so, else passes
// on.
Result<std::unique_ptr<ByteSource>> unpack(std::unique_ptr<ByteSource> packed,
                                           const InputLimits& limits = {});

}  // namespace attnscope::formats
