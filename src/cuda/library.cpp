#include "cuda/library.h"

#include "base/text.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace attnscope::cuda {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = name ? std::getenv(name) : nullptr;
  return value ? value : "";
}

void add_folder(std::vector<std::string>& folders, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return;
  std::string text = folder.string();
  if (std::find(folders.begin(), folders.end(), text) == folders.end()) folders.push_back(std::move(text));
}

// Sub-folders in name order, without throwing.
std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && it != end; it.increment(error))
    found.push_back(it->path());
  std::sort(found.begin(), found.end(), std::greater<>());  // newest version first
  return found;
}

// site-packages/nvidia/<component>/lib
void add_wheels(std::vector<std::string>& folders, const fs::path& site_packages) {
  for (const fs::path& component : children(site_packages / "nvidia")) add_folder(folders, component / "lib");
}

void add_environment_of_python(std::vector<std::string>& folders, const fs::path& prefix) {
  for (const fs::path& python : children(prefix / "lib")) {
    if (!python.filename().string().starts_with("python")) continue;
    add_wheels(folders, python / "site-packages");
    add_wheels(folders, python / "dist-packages");
  }
}

std::string real_path(void* handle, std::string_view fallback) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map && map->l_name && *map->l_name)
    return map->l_name;
  return std::string(fallback);
}

}  // namespace

std::vector<std::string> search_folders() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string home = environment(variable);
    if (home.empty()) continue;
    add_folder(folders, fs::path(home) / "lib64");
    add_folder(folders, fs::path(home) / "extras/CUPTI/lib64");
  }
  const std::string python_path = environment("PYTHONPATH");
  for (std::string_view entry : split(python_path, ':'))
    if (!entry.empty()) add_wheels(folders, fs::path(entry));
  const std::string virtual_env = environment("VIRTUAL_ENV");
  if (!virtual_env.empty()) add_environment_of_python(folders, virtual_env);
  // An interpreter on PATH that belongs to a virtual environment: bin/python3 beside pyvenv.cfg.
  const std::string path = environment("PATH");
  for (std::string_view entry : split(path, ':')) {
    if (entry.empty()) continue;
    std::error_code error;
    const fs::path bin(entry);
    if (fs::exists(bin / "python3", error)) add_environment_of_python(folders, bin.parent_path());
  }
  add_environment_of_python(folders, "/usr/local");
  add_environment_of_python(folders, "/usr");
  add_folder(folders, "/usr/local/cuda/lib64");
  add_folder(folders, "/usr/local/cuda/extras/CUPTI/lib64");
  for (const fs::path& entry : children("/usr/local"))
    if (entry.filename().string().starts_with("cuda-")) {
      add_folder(folders, entry / "lib64");
      add_folder(folders, entry / "extras/CUPTI/lib64");
    }
  return folders;
}

Result<DynamicLibrary> DynamicLibrary::open(std::span<const char* const> names,
                                            const char* override_variable) {
  DynamicLibrary library;
  std::string last_error;
  auto attempt = [&](const std::string& file, int flags) {
    library.handle_ = dlopen(file.c_str(), flags);
    if (!library.handle_) {
      if (const char* message = dlerror()) last_error = message;
      return false;
    }
    library.path_ = real_path(library.handle_, file);
    return true;
  };
  for (const char* name : names)
    if (attempt(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  const std::string forced = environment(override_variable);
  if (!forced.empty()) {
    std::error_code error;
    if (!fs::is_directory(forced, error)) {
      if (attempt(forced, RTLD_NOW | RTLD_LOCAL)) return library;
    } else {
      for (const char* name : names)
        if (attempt((fs::path(forced) / name).string(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}={} holds no {} that loads: {}", override_variable, forced,
                            names.empty() ? "" : names[0], last_error),
                fmt::format("correct or unset {}", override_variable));
  }
  for (const char* name : names)
    if (attempt(name, RTLD_NOW | RTLD_LOCAL)) return library;
  const std::string loader_error = last_error;
  for (const std::string& folder : search_folders())
    for (const char* name : names) {
      const fs::path file = fs::path(folder) / name;
      std::error_code error;
      if (fs::exists(file, error) && attempt(file.string(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("{} was not found: {}", names.empty() ? "library" : names[0],
                  last_error.empty() ? loader_error : last_error),
      override_variable
          ? fmt::format("install it, add its folder to LD_LIBRARY_PATH, or set {} to it", override_variable)
          : "install it, or add its folder to LD_LIBRARY_PATH");
}

void* DynamicLibrary::find(const char* symbol) const {
  return handle_ ? dlsym(handle_, symbol) : nullptr;
}

}  // namespace attnscope::cuda
