#include "formats/chrome/utf16.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace attnscope::formats::chrome {
namespace {

class Prefixed final : public ByteSource {
 public:
  Prefixed(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}
  Result<size_t> read(char* dst, size_t n) override {
    if (used_ == head_.size()) return rest_->read(dst, n);
    n = std::min(n, head_.size() - used_);
    std::memcpy(dst, head_.data() + used_, n);
    used_ += n;
    return n;
  }
  bool damaged() const override { return rest_->damaged(); }
  bool shrank() const override { return rest_->shrank(); }
  bool trailing() const override { return rest_->trailing(); }

 private:
  std::string head_;
  std::unique_ptr<ByteSource> rest_;
  size_t used_ = 0;
};

class Utf16Source final : public ByteSource {
 public:
  Utf16Source(std::unique_ptr<ByteSource> rest, bool big_endian) : rest_(std::move(rest)), big_(big_endian) {}
  bool damaged() const override { return rest_->damaged(); }
  bool shrank() const override { return rest_->shrank(); }
  bool trailing() const override { return rest_->trailing(); }

  Result<size_t> read(char* dst, size_t n) override {
    while (used_ == out_.size()) {
      ATTNSCOPE_ASSIGN(const bool more, convert());
      if (!more) return size_t{0};
    }
    n = std::min(n, out_.size() - used_);
    std::memcpy(dst, out_.data() + used_, n);
    used_ += n;
    return n;
  }

 private:
  Result<bool> convert() {
    ATTNSCOPE_ASSIGN(const size_t n, rest_->read(in_.data() + kept_, in_.size() - kept_));
    out_.clear();
    used_ = 0;
    if (n == 0) {
      // Half a unit, or a high surrogate that waits for its partner, at the end.
      const bool loose = kept_ > 0 || high_ != 0;
      kept_ = 0;
      high_ = 0;
      if (loose) out_ += "\xEF\xBF\xBD";
      return loose;
    }
    const size_t total = kept_ + n;
    for (size_t i = 0; i + 1 < total; i += 2) {
      const auto a = static_cast<unsigned char>(in_[i]), b = static_cast<unsigned char>(in_[i + 1]);
      unit(big_ ? static_cast<uint32_t>(a << 8 | b) : static_cast<uint32_t>(b << 8 | a));
    }
    kept_ = total % 2;
    if (kept_) in_[0] = in_[total - 1];
    return true;
  }
  void unit(uint32_t u) {
    if (high_ != 0) {
      const uint32_t high = high_;
      high_ = 0;
      if (u >= 0xDC00 && u <= 0xDFFF) return append(0x10000 + ((high - 0xD800) << 10) + (u - 0xDC00));
      append(0xFFFD);
    }
    if (u >= 0xD800 && u <= 0xDBFF) {
      high_ = u;
    } else {
      append(u >= 0xDC00 && u <= 0xDFFF ? 0xFFFD : u);
    }
  }
  void append(uint32_t code) {
    const auto put = [&](uint32_t byte) { out_.push_back(static_cast<char>(byte)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
      put(0xC0 | code >> 6);
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12);
      put(0x80 | (code >> 6 & 0x3F));
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
      put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
  }

  std::unique_ptr<ByteSource> rest_;
  bool big_;
  std::array<char, 32768> in_{};
  size_t kept_ = 0;
  uint32_t high_ = 0;
  std::string out_;
  size_t used_ = 0;
};

}  // namespace

Result<bool> sniff_utf16(std::unique_ptr<ByteSource>& source) {
  std::string head(4, '\0');
  size_t got = 0;
  while (got < head.size()) {
    ATTNSCOPE_ASSIGN(const size_t n, source->read(head.data() + got, head.size() - got));
    if (n == 0) break;
    got += n;
  }
  head.resize(got);
  const auto is = [&](size_t i, char c) { return i < got && head[i] == c; };
  const auto bracket = [&](size_t i) { return is(i, '{') || is(i, '['); };
  const bool little = (is(0, '\xFF') && is(1, '\xFE')) || (bracket(0) && is(1, '\0'));
  const bool big = (is(0, '\xFE') && is(1, '\xFF')) || (is(0, '\0') && bracket(1));
  source = std::make_unique<Prefixed>(std::move(head), std::move(source));
  if (little || big) source = std::make_unique<Utf16Source>(std::move(source), big);
  return little || big;
}

}  // namespace attnscope::formats::chrome
