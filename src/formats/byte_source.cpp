#include "formats/byte_source.h"

#include "formats/unpack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace attnscope::formats {
namespace {

constexpr int kPipeBytes = 1 << 20;

class FileSource final : public ByteSource {
 public:
  FileSource(int fd, bool owned, int64_t size, std::string path)
      : fd_(fd), owned_(owned), size_(size), path_(std::move(path)) {}
  ~FileSource() override {
    if (owned_) close(fd_);
  }
  Result<size_t> read(char* dst, size_t n) override {
    while (true) {
      const ssize_t got = ::read(fd_, dst, n);
      if (got >= 0) {
        seen_ += got;
        if (got == 0 && size_ >= 0 && seen_ < size_) shrank_ = true;
        return static_cast<size_t>(got);
      }
      if (errno != EINTR)
        return fail(ErrorCode::kIo, fmt::format("cannot read {}: {}", path_, std::strerror(errno)),
                    "check the file and its permissions");
    }
  }
  bool shrank() const override { return shrank_; }

 private:
  int fd_;
  bool owned_;
  int64_t size_;  // −1: a pipe, not known
  int64_t seen_ = 0;
  bool shrank_ = false;
  std::string path_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : left_(bytes) {}
  Result<size_t> read(char* dst, size_t n) override {
    n = std::min(n, left_.size());
    if (n > 0) std::memcpy(dst, left_.data(), n);
    left_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view left_;
};

// Gives back the bytes that sniffing took.
class PrefixedSource final : public ByteSource {
 public:
  PrefixedSource(std::string prefix, std::unique_ptr<ByteSource> rest)
      : prefix_(std::move(prefix)), rest_(std::move(rest)) {}
  Result<size_t> read(char* dst, size_t n) override {
    if (used_ == prefix_.size()) return rest_->read(dst, n);
    n = std::min(n, prefix_.size() - used_);
    std::memcpy(dst, prefix_.data() + used_, n);
    used_ += n;
    return n;
  }
  bool damaged() const override { return rest_->damaged(); }
  bool shrank() const override { return rest_->shrank(); }
  bool trailing() const override { return rest_->trailing(); }

 private:
  std::string prefix_;
  std::unique_ptr<ByteSource> rest_;
  size_t used_ = 0;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
#ifdef F_SETPIPE_SZ
  if (path == "-") fcntl(STDIN_FILENO, F_SETPIPE_SZ, kPipeBytes);
#endif
  if (path == "-") return std::make_unique<FileSource>(STDIN_FILENO, false, -1, "standard input");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(ErrorCode::kIo, fmt::format("cannot open {}: {}", path, std::strerror(errno)),
                "check the path and its permissions");
  auto source = std::make_unique<FileSource>(fd, true, -1, path);
  struct stat info{};
  if (fstat(fd, &info) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot examine {}: {}", path, std::strerror(errno)));
  if (S_ISDIR(info.st_mode))
    return fail(ErrorCode::kBadInput, fmt::format("{} is a directory, not a trace", path),
                "name the trace file inside it");
#ifdef F_SETPIPE_SZ
  if (S_ISFIFO(info.st_mode))
    fcntl(fd, F_SETPIPE_SZ, kPipeBytes);  // fewer switches to the writer; may be refused
#endif
  if (S_ISREG(info.st_mode)) {
    const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (same >= 0)
      source = std::make_unique<FileSource>(same, true, static_cast<int64_t>(info.st_size), path);
  }
  return source;
}

std::unique_ptr<ByteSource> open_memory(std::string_view bytes) {
  return std::make_unique<MemorySource>(bytes);
}

std::unique_ptr<ByteSource> put_back(std::string head, std::unique_ptr<ByteSource> rest) {
  return std::make_unique<PrefixedSource>(std::move(head), std::move(rest));
}

Result<std::unique_ptr<ByteSource>> unpack(std::unique_ptr<ByteSource> packed, const InputLimits& limits) {
  std::string head(4, '\0');
  size_t got = 0;
  while (got < head.size()) {
    ATTNSCOPE_ASSIGN(const size_t n, packed->read(head.data() + got, head.size() - got));
    if (n == 0) break;
    got += n;
  }
  head.resize(got);
  const auto starts = [&](std::string_view magic) {
    return std::string_view(head).substr(0, magic.size()) == magic;
  };
  const bool gzip = starts("\x1f\x8b");
  const bool zstd = starts("\x28\xb5\x2f\xfd") || (got == 4 && starts_skippable_frame(head));
  auto whole = put_back(std::move(head), std::move(packed));
  if (gzip) return open_gzip(std::move(whole), limits);
  if (zstd) return open_zstd(std::move(whole), limits);
  return whole;
}

}  // namespace attnscope::formats
