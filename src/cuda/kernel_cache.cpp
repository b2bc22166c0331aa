#include "cuda/kernel_cache.h"

#include "base/cache_folder.h"
#include "base/sha256.h"
#include "base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <system_error>

namespace attnscope::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirstLine = "attnscope kernel 1";
constexpr std::string_view kSuffix = ".kernel";
constexpr size_t kMostEntryBytes = size_t{64} << 20;
constexpr size_t kHashDigitsInName = 40;
constexpr auto kLeftOver = std::chrono::hours(1);  // a temporary this old has lost its writer

// What stands before the cubin. The checksum covers the name and the compiler too.
std::string header_of(const std::string& source_hash, const CachedKernel& k) {
  Sha256 sum;
  for (const std::string& field : {source_hash, k.name, k.compiler, k.cubin}) sum.add_field(field);
  return fmt::format("{}\nsource {}\nname {}\ncompiler {}\nbytes {}\nsha256 {}\n\n", kFirstLine, source_hash,
                     k.name, k.compiler, k.cubin.size(), sum.hex());
}

// The value of the header's next line, which must begin with `field`; the line is taken off.
std::optional<std::string> take_line(std::string_view& text, std::string_view field) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(field)) return std::nullopt;
  std::string value(text.substr(field.size(), end - field.size()));
  text.remove_prefix(end + 1);
  return value;
}

// Whatever the file says must be what storing it would have written.
std::optional<CachedKernel> parse(const std::string& content, const std::string& source_hash) {
  std::string_view rest = content;
  const auto first = take_line(rest, kFirstLine);
  const auto source = take_line(rest, "source ");
  const auto name = take_line(rest, "name ");
  const auto compiler = take_line(rest, "compiler ");
  const auto bytes = take_line(rest, "bytes ");
  const auto sum = take_line(rest, "sha256 ");
  if (!first || !source || !name || !compiler || !bytes || !sum || !take_line(rest, "") ||
      *source != source_hash)
    return std::nullopt;
  CachedKernel kernel{*name, *compiler, std::string(rest)};
  if (!content.starts_with(header_of(source_hash, kernel))) return std::nullopt;
  return kernel;
}

// "NVRTC 13.0" as part of a file name.
std::string tag_of(const std::string& compiler) {
  std::string tag;
  for (const char c : compiler)
    tag += std::isalnum(static_cast<unsigned char>(c)) || c == '.' ? static_cast<char>(std::tolower(c)) : '_';
  return tag;
}

struct Entry {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes = 0;
};

// Files of the folder whose names start and end so, most recently used first.
std::vector<Entry> entries(const std::string& folder, std::string_view prefix) {
  std::vector<Entry> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    std::error_code gone;
    Entry entry{it->path(), fs::last_write_time(it->path(), gone), 0};
    if (!gone) entry.bytes = static_cast<int64_t>(fs::file_size(it->path(), gone));
    if (!gone) found.push_back(std::move(entry));
  }
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) { return a.used > b.used; });
  return found;
}

void remove_left_overs(const std::string& folder) {
  std::error_code error;
  const auto before = fs::file_time_type::clock::now() - kLeftOver;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const bool temporary = it->path().filename().string().find(".kernel.tmp") != std::string::npos;
    if (temporary && fs::last_write_time(it->path(), gone) < before && !gone) fs::remove(it->path(), gone);
  }
}

}  // namespace

Result<KernelCache> KernelCache::of_user() {
  ATTNSCOPE_ASSIGN(std::string folder, cache_folder_path("kernels"));
  return KernelCache(std::move(folder));
}

std::string KernelCache::path_of(const std::string& source_hash, const std::string& compiler) const {
  return fmt::format("{}/{}-{}{}", folder_, source_hash.substr(0, kHashDigitsInName), tag_of(compiler),
                     kSuffix);
}

std::optional<CachedKernel> KernelCache::find(const std::string& source_hash, const std::string& compiler,
                                              std::string* problem) const {
  const auto say = [&](std::string why) {
    if (problem != nullptr) *problem = std::move(why);
    return std::nullopt;
  };
  std::error_code error;
  std::vector<std::string> paths;
  if (!compiler.empty()) {
    paths.push_back(path_of(source_hash, compiler));
  } else {
    for (const Entry& entry : entries(folder_, source_hash.substr(0, kHashDigitsInName)))
      paths.push_back(entry.path.string());
  }
  std::string damaged;
  for (const std::string& path : paths) {
    if (!fs::exists(path, error)) continue;
    if (const Status trusted = trusted_folder(folder_); !trusted) return say(trusted.error().message);
    const Result<std::string> content = read_file_bounded(path, kMostEntryBytes);
    std::optional<CachedKernel> kernel = content ? parse(*content, source_hash) : std::nullopt;
    if (kernel && (compiler.empty() || kernel->compiler == compiler)) {
      (void)utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
      return kernel;
    }
    damaged = content ? fmt::format("{} is damaged", path) : content.error().message;
  }
  return say(damaged);
}

Status KernelCache::store(const std::string& source_hash, const CachedKernel& kernel) const {
  ATTNSCOPE_TRY(make_cache_folder(folder_));
  ATTNSCOPE_TRY(
      replace_file(path_of(source_hash, kernel.compiler), header_of(source_hash, kernel) + kernel.cubin));
  drop_oldest();
  return {};
}

// The newest entry always stays.
void KernelCache::drop_oldest() const {
  remove_left_overs(folder_);
  int64_t kept = 0;
  bool first = true;
  for (const Entry& entry : entries(folder_, "")) {
    kept += entry.bytes;
    std::error_code gone;
    if (!first && kept > most_bytes_) {
      fs::remove(entry.path, gone);
      kept -= entry.bytes;
    }
    first = false;
  }
}

}  // namespace attnscope::cuda
