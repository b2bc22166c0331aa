#pragma once
// The decompressors behind unpack(); each reads any number of concatenated members.

#include "formats/byte_source.h"

namespace attnscope::formats {

std::unique_ptr<ByteSource> open_gzip(std::unique_ptr<ByteSource> packed, const InputLimits& limits);
std::unique_ptr<ByteSource> open_zstd(std::unique_ptr<ByteSource> packed, const InputLimits& limits);
// 0x184D2A5? little-endian: a zstd frame that holds no data and may come first.
bool starts_skippable_frame(std::string_view head);

}  // namespace attnscope::formats
