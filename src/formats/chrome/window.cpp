#include "formats/chrome/window.h"

#include <algorithm>
#include <cstring>

namespace attnscope::formats::chrome {

void Window::resize(size_t bytes) {
  std::unique_ptr<char[]> fresh(new char[bytes + kPadding]);  // not zeroed: pages are touched when filled
  if (filled_ > 0) std::memcpy(fresh.get(), data_.get(), filled_);
  std::memset(fresh.get() + filled_, 0, kPadding);
  p = fresh.get();
  data_ = std::move(fresh);
  size_ = bytes;
}

Status Window::refill() {
  if (eof_ || full()) return {};
  const auto keep = static_cast<size_t>(end() - p);
  std::memmove(data_.get(), p, keep);
  filled_ = keep;
  p = data_.get();
  if (keep > size_ / 2 && size_ < limit_) resize(std::min(size_ * 2, limit_));
  while (filled_ < size_ && !eof_) {
    ATTNSCOPE_ASSIGN(const size_t n, source_.read(data_.get() + filled_, size_ - filled_));
    filled_ += n;
    total_ += n;
    eof_ = n == 0;
  }
  std::memset(data_.get() + filled_, 0, kPadding);
  return {};
}

}  // namespace attnscope::formats::chrome
