#include "formats/sink.h"

#include "base/output_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace attnscope::formats {
namespace {

class StringSink final : public Sink {
 public:
  explicit StringSink(std::string& text) : text_(text) {}
  Status write(std::string_view bytes) override {
    text_.append(bytes);
    return {};
  }
  Status finish() override { return {}; }

 private:
  std::string& text_;
};

// Writes beside the target and renames at the end, so that a reader never sees half a file.
class FileSink final : public Sink {
 public:
  FileSink(int fd, std::string path, std::string temporary, std::unique_ptr<TemporaryFile> held)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)), held_(std::move(held)) {}
  ~FileSink() override {
    if (fd_ >= 0 && !temporary_.empty()) close(fd_);
  }
  Status write(std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed();
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return {};
  }
  Status finish() override {
    if (temporary_.empty()) {  // standard output, or a device that is written in place
      if (fd_ > STDERR_FILENO && close(std::exchange(fd_, -1)) != 0) return failed();
      return {};
    }
    if (close(std::exchange(fd_, -1)) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return failed();
    return {};
  }

 private:
  Status failed() const {
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path_, std::strerror(errno)),
                "check the folder's permissions and free space");
  }
  int fd_;
  std::string path_, temporary_;
  std::unique_ptr<TemporaryFile> held_;
};

class GzipSink final : public Sink {
 public:
  explicit GzipSink(std::unique_ptr<Sink> out)
      : out_(std::move(out)),
        stream_(std::make_unique<isal_zstream>()),
        level_(ISAL_DEF_LVL2_DEFAULT),
        packed_(kPacked) {
    isal_deflate_init(stream_.get());
    stream_->gzip_flag = IGZIP_GZIP;
    stream_->level = 2;
    stream_->level_buf = level_.data();
    stream_->level_buf_size = static_cast<uint32_t>(level_.size());
  }
  Status write(std::string_view bytes) override { return deflate(bytes, false); }
  Status finish() override {
    ATTNSCOPE_TRY(deflate({}, true));
    return out_->finish();
  }

 private:
  static constexpr size_t kPacked = size_t{256} << 10;
  Status deflate(std::string_view bytes, bool last) {
    stream_->next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data()));
    stream_->avail_in = static_cast<uint32_t>(bytes.size());
    stream_->end_of_stream = last;
    do {
      stream_->next_out = packed_.data();
      stream_->avail_out = static_cast<uint32_t>(packed_.size());
      if (isal_deflate(stream_.get()) != COMP_OK)
        return fail(ErrorCode::kInternal, "gzip compression failed");
      const size_t made = packed_.size() - stream_->avail_out;
      ATTNSCOPE_TRY(out_->write({reinterpret_cast<const char*>(packed_.data()), made}));
    } while (stream_->avail_in > 0 || stream_->avail_out == 0 ||
             (last && stream_->internal_state.state != ZSTATE_END));
    return {};
  }
  std::unique_ptr<Sink> out_;
  std::unique_ptr<isal_zstream> stream_;
  std::vector<uint8_t> level_, packed_;
};

class ZstdSink final : public Sink {
 public:
  explicit ZstdSink(std::unique_ptr<Sink> out)
      : out_(std::move(out)),
        stream_(ZSTD_createCStream(), &ZSTD_freeCStream),
        packed_(ZSTD_CStreamOutSize()) {}
  Status write(std::string_view bytes) override { return compress(bytes, ZSTD_e_continue); }
  Status finish() override {
    ATTNSCOPE_TRY(compress({}, ZSTD_e_end));
    return out_->finish();
  }

 private:
  Status compress(std::string_view bytes, ZSTD_EndDirective how) {
    if (!stream_) return fail(ErrorCode::kOutOfMemory, "no memory for the zstd encoder");
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (true) {
      ZSTD_outBuffer out{packed_.data(), packed_.size(), 0};
      const size_t left = ZSTD_compressStream2(stream_.get(), &out, &in, how);
      if (ZSTD_isError(left)) return fail(ErrorCode::kInternal, "zstd compression failed");
      ATTNSCOPE_TRY(out_->write({packed_.data(), out.pos}));
      if (how == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
    }
  }
  std::unique_ptr<Sink> out_;
  std::unique_ptr<ZSTD_CStream, size_t (*)(ZSTD_CStream*)> stream_;
  std::vector<char> packed_;
};

}  // namespace

Result<std::unique_ptr<Sink>> create_file(const std::string& path) {
  if (path == "-") return std::make_unique<FileSink>(STDOUT_FILENO, "standard output", "", nullptr);
  const OutputPath target = resolve_output(path);
  const std::string temporary = target.in_place ? "" : temporary_name(target);
  auto held = std::make_unique<TemporaryFile>(temporary);  // before there is one that could be left behind
  const int fd = target.in_place
                     ? open(path.c_str(), O_WRONLY | O_CLOEXEC)
                     : open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, target.mode);
  if (fd < 0)
    return fail(ErrorCode::kIo, fmt::format("cannot create {}: {}", path, std::strerror(errno)),
                "check that the folder exists and may be written");
  std::unique_ptr<Sink> sink = std::make_unique<FileSink>(fd, target.path, temporary, std::move(held));
  const auto ends = [&](std::string_view suffix) {
    return path.size() > suffix.size() &&
           path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  if (ends(".gz")) return std::make_unique<GzipSink>(std::move(sink));
  if (ends(".zst")) return std::make_unique<ZstdSink>(std::move(sink));
  return sink;
}

std::unique_ptr<Sink> append_to(std::string& text) {
  return std::make_unique<StringSink>(text);
}

std::unique_ptr<Sink> append_gzip_to(std::string& bytes) {
  return std::make_unique<GzipSink>(append_to(bytes));
}

}  // namespace attnscope::formats
