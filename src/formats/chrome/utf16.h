#pragma once
// UTF-16 input, converted to UTF-8 on the way in.

#include "formats/byte_source.h"

#include <memory>

namespace attnscope::formats::chrome {

// When the bytes are UTF-16 (by byte-order mark, or by zeros beside an ASCII bracket), replaces source by one
// that delivers UTF-8 and returns true.
Result<bool> sniff_utf16(std::unique_ptr<ByteSource>& source);

}  // namespace attnscope::formats::chrome
