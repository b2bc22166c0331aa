#include "base/cache_folder.h"

#include "base/output_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace attnscope {
namespace {

std::string absolute(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

tl::unexpected<Error> failed(std::string_view what, const std::string& path, int code) {
  return fail(ErrorCode::kIo, fmt::format("{} {}: {}", what, path, std::strerror(code)),
              "set ATTNSCOPE_CACHE to a folder of your own");
}

// Writes all of it, through interruptions.
bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

Result<std::string> cache_folder_path(std::string_view part) {
  std::string root = absolute("ATTNSCOPE_CACHE");
  if (root.empty() && !absolute("XDG_CACHE_HOME").empty()) root = absolute("XDG_CACHE_HOME") + "/attnscope";
  if (root.empty() && !absolute("HOME").empty()) root = absolute("HOME") + "/.cache/attnscope";
  if (root.empty())
    return fail(ErrorCode::kUnavailable, "there is no cache folder: HOME is not set",
                "set ATTNSCOPE_CACHE to a folder of your own");
  return root + "/" + std::string(part);
}

Status trusted_folder(const std::string& folder) {
  struct stat info{};
  if (stat(folder.c_str(), &info) != 0) return failed("cannot look at", folder, errno);
  if (!S_ISDIR(info.st_mode)) return failed("cannot use", folder, ENOTDIR);
  if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(ErrorCode::kIo,
                fmt::format("{} can be written by others (mode {:o})", folder, info.st_mode & 07777),
                fmt::format("chmod go-w {}, or set ATTNSCOPE_CACHE to a folder of your own", folder));
  return {};
}

Status make_cache_folder(const std::string& folder) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int code = errno;
      struct stat info{};
      if (stat(part.c_str(), &info) != 0) return failed("cannot make", part, code);
    }
    if (end == std::string::npos) break;
  }
  return trusted_folder(folder);
}

Status replace_file(const std::string& path, std::string_view content) {
  static std::atomic<unsigned> count{0};
  const std::string temporary = fmt::format("{}.tmp{}.{}", path, getpid(), ++count);
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed("cannot write", temporary, errno);
  const TemporaryFile held(temporary);
  const bool written = write_all(file, content) && fsync(file) == 0;
  const int code = errno;
  const bool closed = close(file) == 0;
  if (written && closed && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  const int why = written ? errno : code;
  return failed("cannot write", path, why);
}

Result<std::string> read_file_bounded(const std::string& path, size_t max_bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return failed("cannot read", path, errno);
  struct stat info{};
  std::string content;
  const auto done = [&](Result<std::string> result) {
    close(file);
    return result;
  };
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
    return done(fail(ErrorCode::kIo, fmt::format("{} is no regular file", path)));
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(file, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return done(failed("cannot read", path, errno));
    if (n == 0) return done(std::move(content));
    if (content.size() + static_cast<size_t>(n) > max_bytes)
      return done(fail(ErrorCode::kBadInput, fmt::format("{} is larger than {} bytes", path, max_bytes)));
    content.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace attnscope
