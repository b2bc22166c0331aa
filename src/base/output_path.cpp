#include "base/output_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace attnscope {
namespace {

// Names as a signal handler can read them: in place, without a lock. More files at once than slots: the
// further ones stay when a signal ends the process.
struct Slot {
  enum State { kFree, kFilling, kHeld };
  std::atomic<int> state{kFree};
  char path[PATH_MAX];
};
std::array<Slot, 8> slots;

}  // namespace

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

std::string temporary_name(const OutputPath& target) {
  return target.path + "." + std::to_string(getpid()) + ".tmp";
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first{}, second{};
  return stat(a.c_str(), &first) == 0 && stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && S_ISREG(first.st_mode);
}

TemporaryFile::TemporaryFile(const std::string& path) : path_(path) {
  if (path.empty() || path.size() >= PATH_MAX) return;
  for (size_t i = 0; i < slots.size(); ++i) {
    int free = Slot::kFree;
    if (!slots[i].state.compare_exchange_strong(free, Slot::kFilling)) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state = Slot::kHeld;
    slot_ = static_cast<int>(i);
    return;
  }
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) unlink(path_.c_str());
  if (slot_ >= 0) slots[static_cast<size_t>(slot_)].state = Slot::kFree;
}

void remove_temporary_files() noexcept {
  for (Slot& slot : slots)
    if (slot.state == Slot::kHeld) unlink(slot.path);
}

}  // namespace attnscope
