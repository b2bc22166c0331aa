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
// Both name one existing file.
bool same_file(const std::string& a, const std::string& b);

}  // namespace attnscope
