#include "formats/unpack.h"

#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace attnscope::formats {
namespace {

constexpr size_t kInputBytes = size_t{128} << 10;

// What gzip and zstd share: the packed input and the limits on what comes out of it.
class Unpacker : public ByteSource {
 public:
  Unpacker(std::unique_ptr<ByteSource> packed, const InputLimits& limits)
      : packed_(std::move(packed)), limits_(limits), input_(kInputBytes) {}
  bool damaged() const override { return damaged_ || packed_->damaged(); }
  bool shrank() const override { return packed_->shrank(); }
  bool trailing() const override { return trailing_; }

 protected:
  size_t available() const { return input_end_ - input_begin_; }
  const char* input() const { return input_.data() + input_begin_; }
  void consume(size_t n) { input_begin_ += n; }
  // Reads more behind what is left; false at the end of the packed stream.
  Result<bool> refill() {
    std::memmove(input_.data(), input_.data() + input_begin_, available());
    input_end_ = available();
    input_begin_ = 0;
    ATTNSCOPE_ASSIGN(const size_t n, packed_->read(input_.data() + input_end_, input_.size() - input_end_));
    input_end_ += n;
    packed_bytes_ += n;
    return n > 0;
  }
  Status account(size_t plain) {
    plain_bytes_ += plain;
    if (plain_bytes_ > limits_.max_plain_bytes)
      return fail(ErrorCode::kBadInput, fmt::format("unpacks to more than {} bytes", limits_.max_plain_bytes),
                  "raise the limit on unpacked size if this trace is genuine");
    if (plain_bytes_ > limits_.ratio_from_bytes && plain_bytes_ / limits_.max_ratio > packed_bytes_)
      return fail(
          ErrorCode::kBadInput,
          fmt::format("unpacks to more than {} times its size ({} bytes from {}): a decompression bomb",
                      limits_.max_ratio, plain_bytes_, packed_bytes_),
          "if this trace is genuine, unpack it first (gzip -dk, zstd -d) and give the plain file");
    return {};
  }

  std::unique_ptr<ByteSource> packed_;
  InputLimits limits_;
  std::vector<char> input_;
  size_t input_begin_ = 0, input_end_ = 0;
  uint64_t packed_bytes_ = 0, plain_bytes_ = 0;
  bool damaged_ = false, trailing_ = false, finished_ = false;
};

class GzipSource final : public Unpacker {
 public:
  GzipSource(std::unique_ptr<ByteSource> packed, const InputLimits& limits)
      : Unpacker(std::move(packed), limits), state_(std::make_unique<inflate_state>()) {
    start_member();
  }

  Result<size_t> read(char* dst, size_t n) override {
    n = std::min(n, size_t{1} << 30);
    size_t made = 0;
    while (made == 0 && !finished_) {
      if (state_->block_state == ISAL_BLOCK_FINISH) {
        ATTNSCOPE_TRY(next_member());
        continue;
      }
      if (available() == 0) {
        ATTNSCOPE_ASSIGN(const bool more, refill());
        // The decoder keeps up to 64 KiB to itself; a call without input hands them over before the file
        // counts as cut.
        if (!more && !drained_) {
          drained_ = true;
        } else if (!more) {
          damaged_ = finished_ = true;
          break;
        }
      }
      ATTNSCOPE_ASSIGN(made, inflate_some(dst, n));
    }
    return made;
  }

 private:
  void start_member() {
    isal_inflate_init(state_.get());
    state_->crc_flag = ISAL_GZIP;
  }

  Result<size_t> inflate_some(char* dst, size_t n) {
    state_->next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(input()));
    state_->avail_in = static_cast<uint32_t>(available());
    state_->next_out = reinterpret_cast<uint8_t*>(dst);
    state_->avail_out = static_cast<uint32_t>(n);
    const int rc = isal_inflate(state_.get());
    const size_t used = available() - state_->avail_in;
    consume(used);
    const size_t made = n - state_->avail_out;
    ATTNSCOPE_TRY(account(made));
    const bool stuck = used == 0 && made == 0 && state_->block_state != ISAL_BLOCK_FINISH;
    if (rc < 0 || stuck) damaged_ = finished_ = true;
    return made;
  }

  // Behind a member: another one, padding, or the end.
  Status next_member() {
    while (available() < 2) {
      ATTNSCOPE_ASSIGN(const bool more, refill());
      if (!more) break;
    }
    const bool another = available() >= 2 && input()[0] == '\x1f' && input()[1] == '\x8b';
    if (another) {
      start_member();
    } else {
      finished_ = true;
      trailing_ =
          available() > 0 && input()[0] != '\0';  // NUL padding of tapes and object stores is harmless
    }
    return {};
  }

  std::unique_ptr<inflate_state> state_;
  bool drained_ = false;
};

class ZstdSource final : public Unpacker {
 public:
  ZstdSource(std::unique_ptr<ByteSource> packed, const InputLimits& limits)
      : Unpacker(std::move(packed), limits), stream_(ZSTD_createDStream(), &ZSTD_freeDStream) {}

  Result<size_t> read(char* dst, size_t n) override {
    if (!stream_) return fail(ErrorCode::kOutOfMemory, "no memory for the zstd decoder");
    ZSTD_outBuffer out{dst, n, 0};
    while (out.pos == 0 && !finished_) {
      // Even without new input the decoder may still hold output.
      ZSTD_inBuffer in{input(), available(), 0};
      const size_t rc = ZSTD_decompressStream(stream_.get(), &out, &in);
      consume(in.pos);
      if (ZSTD_isError(rc)) {
        damaged_ = finished_ = true;
        break;
      }
      if (in.pos > 0 || out.pos > 0) {
        at_frame_end_ = rc == 0;
        continue;
      }
      ATTNSCOPE_ASSIGN(const bool more, refill());
      if (!more) {
        finished_ = true;
        damaged_ = !at_frame_end_;
      }
    }
    ATTNSCOPE_TRY(account(out.pos));
    return out.pos;
  }

 private:
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  bool at_frame_end_ = true;
};

}  // namespace

std::unique_ptr<ByteSource> open_gzip(std::unique_ptr<ByteSource> packed, const InputLimits& limits) {
  return std::make_unique<GzipSource>(std::move(packed), limits);
}
std::unique_ptr<ByteSource> open_zstd(std::unique_ptr<ByteSource> packed, const InputLimits& limits) {
  return std::make_unique<ZstdSource>(std::move(packed), limits);
}
bool starts_skippable_frame(std::string_view head) {
  return head.size() >= 4 && (head[0] & 0xF0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18";
}

}  // namespace attnscope::formats
