#include "base/output_path.h"

#include <sys/stat.h>

#include <climits>
#include <cstdlib>

namespace attnscope {

OutputPath resolve_output(const std::string& path) {
  OutputPath out{path};
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return out;
  out.in_place = !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (S_ISREG(info.st_mode)) out.mode = info.st_mode & 07777;
  char resolved[PATH_MAX];
  if (!out.in_place && realpath(path.c_str(), resolved)) out.path = resolved;
  return out;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first{}, second{};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && S_ISREG(first.st_mode);
}

}  // namespace attnscope
