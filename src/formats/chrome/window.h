#pragma once
// A sliding window over a byte source: the part of the stream that is being scanned.

#include "formats/byte_source.h"
#include "formats/chrome/scan.h"

#include <memory>

namespace attnscope::formats::chrome {

class Window {
 public:
  // limit: how far the window may grow to hold one event whole.
  Window(ByteSource& source, size_t limit) : source_(source), limit_(limit) { resize(kFirstBytes); }

  const char* p = nullptr;  // next byte to scan
  const char* end() const { return data_.get() + filled_; }
  bool at_end() const { return eof_; }
  // Whether [p, end) fills all that the window may hold.
  bool full() const { return p == data_.get() && filled_ == size_ && size_ >= limit_; }

  // Moves [p, end) to the front and fills the rest; grows when more than half is kept. Padding behind the
  // data is zero. Nothing changes at the end of the stream or when full.
  Status refill();
  uint64_t bytes_read() const { return total_; }

 private:
  static constexpr size_t kFirstBytes = size_t{256} << 10;
  void resize(size_t bytes);

  ByteSource& source_;
  size_t limit_;
  std::unique_ptr<char[]> data_;
  size_t size_ = 0, filled_ = 0;
  uint64_t total_ = 0;
  bool eof_ = false;
};

}  // namespace attnscope::formats::chrome
