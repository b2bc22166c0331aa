#pragma once
// Where an output file really goes. A regular file is replaced by a rename, so that a reader never sees half
// of it; a device, pipe or socket must be written in place, or the rename would replace it.

#include <sys/types.h>

#include <string>

namespace attnscope {

struct OutputPath {
  std::string path;       // symbolic links followed
  bool in_place = false;  // not a regular file: write it, do not rename over it
  mode_t mode = 0644;     // of the file that is replaced, else the usual
};

OutputPath resolve_output(const std::string& path);
// The file beside the target that is written first; this process's own.
std::string temporary_name(const OutputPath& target);
// Both name one existing file.
bool same_file(const std::string& a, const std::string& b);

// The half-written file of this name is gone when this is: renamed, or removed here, or by
// remove_temporary_files(). An empty name holds nothing.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

 private:
  int slot_ = -1;
  std::string path_;
};

// Removes what every TemporaryFile still holds. Safe in a signal handler, which then ends the process.
void remove_temporary_files() noexcept;

}  // namespace attnscope
