#include "cli/inputs.h"

#include "formats/chrome/reader.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace attnscope::cli {
namespace {

bool looks_like_trace(const std::string& name) {
  for (std::string_view ending : {".json", ".json.gz", ".json.zst", ".trace", ".trace.gz", ".json.tmp"})
    if (name.size() > ending.size() && std::string_view(name).ends_with(ending)) return true;
  return false;
}

// Digits compare as numbers: "rank-2" before "rank-10".
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t end_a = i, end_b = j;
      while (end_a < a.size() && digit(a[end_a])) ++end_a;
      while (end_b < b.size() && digit(b[end_b])) ++end_b;
      while (i < end_a && a[i] == '0') ++i;
      while (j < end_b && b[j] == '0') ++j;
      if (end_a - i != end_b - j) return end_a - i < end_b - j;
      const int order = a.compare(i, end_a - i, b, j, end_b - j);
      if (order != 0) return order < 0;
      i = end_a;
      j = end_b;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

Result<LoadedTrace> load_trace(const std::string& path) {
  ATTNSCOPE_ASSIGN(trace::Trace trace, formats::chrome::read_file(path));
  return LoadedTrace(std::move(trace));
}

Status one_stdin(const std::vector<std::string>& inputs) {
  if (std::count(inputs.begin(), inputs.end(), "-") < 2) return {};
  return fail(ErrorCode::kInvalidArgument, "stdin (-) is named twice, and can be read once",
              "name a file for one of them");
}

Result<std::vector<std::string>> expand_inputs(const std::vector<std::string>& inputs) {
  namespace fs = std::filesystem;
  ATTNSCOPE_TRY(one_stdin(inputs));
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    std::error_code error;
    if (input == "-" || !fs::is_directory(input, error)) {
      paths.push_back(input);
      continue;
    }
    std::vector<std::string> found;
    for (fs::directory_iterator at(input, error), end; !error && at != end; at.increment(error)) {
      std::error_code not_a_file;
      if (at->is_regular_file(not_a_file) && looks_like_trace(at->path().filename().string()))
        found.push_back(at->path().string());
    }
    if (error)
      return fail(ErrorCode::kIo, "cannot list " + input + ": " + error.message(),
                  "name the trace files themselves");
    if (found.empty())
      return fail(ErrorCode::kBadInput, "no trace in " + input,
                  "a folder is searched for .json, .json.gz and .json.zst; name other files themselves");
    std::sort(found.begin(), found.end(), natural_less);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

}  // namespace attnscope::cli
