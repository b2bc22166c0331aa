#include "cuda/nvrtc.h"

#include "base/text.h"

#include <fmt/format.h>

namespace attnscope::cuda {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr int kOldest = 12;  // knows sm_90a and C++20

// What a person needs of a failed compilation: the first errors, on a line.
std::string first_errors(const std::string& log) {
  std::vector<std::string> kept;
  for (const std::string_view line : split(log, '\n'))
    if (line.find("error") != std::string_view::npos && kept.size() < 3)
      kept.push_back(terminal_safe(line, 160));
  if (kept.empty()) kept.push_back(terminal_safe(log, 200));
  return join(kept, " · ");
}

}  // namespace

Status Nvrtc::find_functions() {
  const auto find = [&](const char* symbol, auto& function) -> Status {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.find(symbol));
    if (function != nullptr) return {};
    return fail(ErrorCode::kUnavailable, fmt::format("{} has no {}", library_.path(), symbol));
  };
  ATTNSCOPE_TRY(find("nvrtcVersion", api_.version));
  ATTNSCOPE_TRY(find("nvrtcCreateProgram", api_.create_program));
  ATTNSCOPE_TRY(find("nvrtcDestroyProgram", api_.destroy_program));
  ATTNSCOPE_TRY(find("nvrtcCompileProgram", api_.compile_program));
  ATTNSCOPE_TRY(find("nvrtcGetCUBINSize", api_.get_cubin_size));
  ATTNSCOPE_TRY(find("nvrtcGetCUBIN", api_.get_cubin));
  ATTNSCOPE_TRY(find("nvrtcGetProgramLogSize", api_.get_log_size));
  ATTNSCOPE_TRY(find("nvrtcGetProgramLog", api_.get_log));
  return find("nvrtcGetErrorString", api_.error_string);
}

Result<Nvrtc> Nvrtc::open() {
  Nvrtc nvrtc;
  ATTNSCOPE_ASSIGN(nvrtc.library_, DynamicLibrary::open(kNames, "ATTNSCOPE_NVRTC"));
  ATTNSCOPE_TRY(nvrtc.find_functions());
  if (nvrtc.api_.version(&nvrtc.major_, &nvrtc.minor_) != 0 || nvrtc.major_ < kOldest)
    return fail(ErrorCode::kUnavailable, fmt::format("{} is NVRTC {}.{}; {}.0 or newer is needed",
                                                     nvrtc.path(), nvrtc.major_, nvrtc.minor_, kOldest));
  return nvrtc;
}

std::string Nvrtc::name() const {
  return fmt::format("NVRTC {}.{}", major_, minor_);
}

std::string Nvrtc::log_of(void* program) const {
  size_t size = 0;
  if (api_.get_log_size(program, &size) != 0 || size < 2) return {};
  std::string log(size, '\0');
  if (api_.get_log(program, log.data()) != 0) return {};
  log.resize(size - 1);
  return log;
}

Result<std::string> Nvrtc::compile(const KernelSource& entry, std::span<const KernelSource> headers,
                                   std::span<const std::string> options, std::string& log) const {
  std::vector<std::string> strings;  // with the zeros that the interface wants
  strings.reserve(2 * headers.size() + 2);
  std::vector<const char*> texts, paths, flags;
  const auto keep = [&](std::string_view text) { return strings.emplace_back(text).c_str(); };
  for (const KernelSource& header : headers) {
    texts.push_back(keep(header.text));
    paths.push_back(keep(header.path));
  }
  for (const std::string& option : options) flags.push_back(option.c_str());
  void* program = nullptr;
  int status = api_.create_program(&program, keep(entry.text), keep(entry.path),
                                   static_cast<int>(headers.size()), texts.data(), paths.data());
  if (status == 0) status = api_.compile_program(program, static_cast<int>(flags.size()), flags.data());
  if (program != nullptr) log = log_of(program);
  size_t size = 0;
  if (status == 0) status = api_.get_cubin_size(program, &size);
  std::string cubin(size, '\0');
  if (status == 0) status = api_.get_cubin(program, cubin.data());
  if (program != nullptr) api_.destroy_program(&program);
  if (status != 0)
    return fail(ErrorCode::kInternal,
                fmt::format("{}: {}: {}", name(), api_.error_string(status), first_errors(log)));
  if (cubin.empty()) return fail(ErrorCode::kInternal, fmt::format("{} gave no cubin", name()));
  return cubin;
}

}  // namespace attnscope::cuda
