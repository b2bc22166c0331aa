#include "cuda/jit.h"

#include "base/event_sink.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cuda/isolated.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace attnscope::cuda {
namespace {

constexpr int kTimeout_ms = 120'000;
constexpr std::string_view kFormat = "1";  // of the key: anything that changes the meaning of the rest
const std::vector<std::string> kOptions{"-std=c++20", "--ptxas-options=-v"};

std::vector<std::string> options_of(const KernelInstance& instance) {
  std::vector<std::string> options = kOptions;
  options.push_back("--gpu-architecture=" + instance.arch);
  for (const std::string& define : instance.defines) options.push_back("-D" + define);
  return options;
}

// The paths that the lines #include "…" of a source name.
std::vector<std::string_view> includes_of(std::string_view text) {
  std::vector<std::string_view> paths;
  for (std::string_view line : split(text, '\n')) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with("#include \"")) continue;
    line.remove_prefix(10);
    paths.push_back(line.substr(0, line.find('"')));
  }
  return paths;
}

// What the build refuses of nvcc's images is refused here too. ptxas speaks in the log only of what it
// noticed.
Status check_log(const std::string& log) {
  if (log.find("C75") != std::string::npos)
    return fail(ErrorCode::kInternal, "ptxas gave up a warp-group optimisation (C75xx)");
  // One line a function: those that are called rather than inlined have their own.
  const std::string_view text = log;
  constexpr std::string_view kSpill = " bytes spill stores";
  for (size_t at = text.find(kSpill); at != std::string_view::npos; at = text.find(kSpill, at + 1))
    if (!text.substr(0, at).ends_with(" 0"))
      return fail(ErrorCode::kInternal, "registers spill to local memory");
  return {};
}

Result<std::string> compile(const Nvrtc& nvrtc, const KernelInstance& instance,
                            const std::vector<KernelSource>& closure) {
  const std::vector<std::string> options = options_of(instance);
  return run_isolated(nvrtc.name(), kTimeout_ms, [&]() -> Result<std::string> {
    std::string log;
    ATTNSCOPE_ASSIGN(std::string cubin,
                     nvrtc.compile(closure.front(), std::span(closure).subspan(1), options, log));
    ATTNSCOPE_TRY(check_log(log));
    return cubin;
  });
}

void add_note(std::string& note, const std::string& more) {
  if (!more.empty()) note += (note.empty() ? "" : "; ") + more;
}

}  // namespace

Result<JitMode> jit_mode() {
  const char* set = std::getenv("ATTNSCOPE_JIT");
  const std::string_view word = set != nullptr ? set : "";
  if (word.empty() || word == "on" || word == "1") return JitMode::kOn;
  if (word == "off" || word == "0") return JitMode::kOff;
  if (word == "cache") return JitMode::kCacheOnly;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("ATTNSCOPE_JIT={} is not understood", terminal_safe(word, 40)),
              "known: on, off, cache");
}

Result<std::vector<KernelSource>> closure_of(std::string_view entry, std::span<const KernelSource> sources) {
  const auto named = [&](std::string_view path) {
    return std::find_if(sources.begin(), sources.end(),
                        [path](const KernelSource& s) { return s.path == path; });
  };
  std::vector<KernelSource> closure;
  std::vector<std::string_view> wanted{entry};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto source = named(wanted[i]);
    if (source == sources.end())
      return fail(ErrorCode::kInternal,
                  fmt::format("kernel source {} is not embedded", terminal_safe(wanted[i])));
    closure.push_back(*source);
    for (const std::string_view path : includes_of(source->text))
      if (std::find(wanted.begin(), wanted.end(), path) == wanted.end()) wanted.push_back(path);
  }
  return closure;
}

Result<std::string> source_hash(const KernelInstance& instance) {
  ATTNSCOPE_ASSIGN(std::vector<KernelSource> closure, closure_of(instance.entry, instance.sources));
  Sha256 hash;
  hash.add_field(kFormat);
  for (const std::string& option : options_of(instance)) hash.add_field(option);
  for (const KernelSource& source : closure) {
    hash.add_field(source.path);
    hash.add_field(source.text);
  }
  return hash.hex();
}

Result<JitKernel> jit_kernel(const KernelInstance& instance) {
  ATTNSCOPE_ASSIGN(const JitMode mode, jit_mode());
  if (mode == JitMode::kOff)
    return fail(ErrorCode::kUnavailable, "ATTNSCOPE_JIT=off", "unset ATTNSCOPE_JIT to have it compiled");
  return jit_kernel(instance, mode, Nvrtc::open(), KernelCache::of_user());
}

Result<JitKernel> jit_kernel(const KernelInstance& instance, JitMode mode, const Result<Nvrtc>& nvrtc,
                             const Result<KernelCache>& cache) {
  if (mode == JitMode::kOff)
    return fail(ErrorCode::kUnavailable, "ATTNSCOPE_JIT=off", "unset ATTNSCOPE_JIT to have it compiled");
  ATTNSCOPE_ASSIGN(const std::vector<KernelSource> closure, closure_of(instance.entry, instance.sources));
  ATTNSCOPE_ASSIGN(const std::string hash, source_hash(instance));
  JitKernel kernel;
  if (cache) {
    // Without a compiler any compiler's entry will do: a cache filled elsewhere.
    const EventScope scope("attnscope::load_image", EventKind::kRuntime);
    std::string problem;
    if (auto found = cache->find(hash, nvrtc ? nvrtc->name() : "", &problem)) {
      kernel.cubin = std::move(found->cubin);
      kernel.compiler = found->compiler;
      kernel.from_cache = true;
      kernel.cache_path = cache->path_of(hash, kernel.compiler);
      return kernel;
    }
    add_note(kernel.note, problem);
  }
  if (mode == JitMode::kCacheOnly)
    return fail(ErrorCode::kUnavailable,
                fmt::format("ATTNSCOPE_JIT=cache, and {} is not in the cache{}", instance.name,
                            cache ? "" : ": " + cache.error().message),
                "fill it with attnscope warm");
  if (!nvrtc) return fail(nvrtc.error().code, nvrtc.error().message, nvrtc.error().remedy);

  const EventScope scope("attnscope::jit_compile", EventKind::kRuntime);
  const auto began = std::chrono::steady_clock::now();
  ATTNSCOPE_ASSIGN(kernel.cubin, compile(*nvrtc, instance, closure));
  kernel.compile_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  kernel.compiler = nvrtc->name();
  const Status stored = cache ? cache->store(hash, {instance.name, kernel.compiler, kernel.cubin})
                              : Status(tl::unexpected(cache.error()));
  if (stored)
    kernel.cache_path = cache->path_of(hash, kernel.compiler);
  else
    add_note(kernel.note, "not kept: " + stored.error().message);
  return kernel;
}

}  // namespace attnscope::cuda
