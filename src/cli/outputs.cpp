#include "cli/outputs.h"

#include "base/output_path.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

namespace attnscope::cli {
namespace {

// One place under two names, whether or not something is there yet.
bool same_place(const std::string& a, const std::string& b) {
  if (a == b || same_file(a, b)) return true;
  if (a == "-" || b == "-") return false;
  std::error_code error_a, error_b;
  const std::filesystem::path first =
      std::filesystem::weakly_canonical(std::filesystem::absolute(a), error_a);
  const std::filesystem::path second =
      std::filesystem::weakly_canonical(std::filesystem::absolute(b), error_b);
  return !error_a && !error_b && first == second && !std::filesystem::exists(first, error_a);
}

// A file is tried under the name its temporary will have; what is no regular file is written in place.
Status check_writable(const OutputPlace& output) {
  const std::string& path = output.path;
  if (path == "-") return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return fail(ErrorCode::kIo, fmt::format("{}: {} is a directory", output.option, path),
                "name a file, or - for stdout");
  const OutputPath target = resolve_output(path);
  bool writable = access(target.path.c_str(), W_OK) == 0;
  const TemporaryFile trial(target.in_place ? "" : temporary_name(target));
  if (!target.in_place) {
    std::FILE* file = std::fopen(temporary_name(target).c_str(), "wx");
    writable = file != nullptr;
    if (file) std::fclose(file);
  }
  if (writable) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: cannot write {}: {}", output.option, path, std::strerror(errno)),
              "choose a writable place, or - for stdout");
}

}  // namespace

CLI::Option* as_output(CLI::Option* option) {
  return option->transform(CLI::Validator(
      [](std::string& path) {
        constexpr std::array<std::string_view, 3> kStdout{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
        if (std::find(kStdout.begin(), kStdout.end(), path) != kStdout.end()) path = "-";
        return not_empty(path);
      },
      ""));
}

void OutputFiles::add_to(CLI::App& app, unsigned kinds) {
  const auto add = [&](const char* name, std::string& path, const char* what) {
    as_output(app.add_option(name, path, what)->type_name("FILE"));
  };
  if (kinds & kJson) add("--json", json, "Write the result as JSON (- for stdout)");
  if (kinds & kMarkdown) add("--markdown", markdown, "Write the report as Markdown (- for stdout)");
  if (kinds & kHtml) add("--html", html, "Write the report as one offline HTML page (- for stdout)");
}

Status check_outputs(const std::vector<OutputPlace>& outputs, const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputPlace& output = outputs[i];
    if (output.path.empty()) continue;
    for (size_t j = 0; j < i; ++j)
      if (!outputs[j].path.empty() && same_place(outputs[j].path, output.path))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} and {} both go to {}", outputs[j].option, output.option, output.path),
                    "give each a place of its own");
    for (const std::string& input : inputs)
      if (same_file(input, output.path))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} would overwrite its own input {}", output.option, input),
                    "name another file");
    ATTNSCOPE_TRY(check_writable(output));
  }
  return {};
}

Status write_output(Context& context, const std::string& path, std::string_view content) {
  if (path == "-") {
    context.out << content;
    return {};
  }
  const OutputPath target = resolve_output(path);
  const std::string written = target.in_place ? target.path : temporary_name(target);
  const TemporaryFile temporary(target.in_place ? "" : written);
  const auto failed = [&](int code) {
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(code),
                "choose a writable place, or - for stdout");
  };
  errno = 0;
  std::ofstream file(written, std::ios::binary | (target.in_place ? std::ios::out : std::ios::trunc));
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return failed(errno);
  if (target.in_place) return {};
  if (chmod(written.c_str(), target.mode) != 0 || std::rename(written.c_str(), target.path.c_str()) != 0)
    return failed(errno);
  return {};
}

}  // namespace attnscope::cli
