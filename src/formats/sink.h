#pragma once
// Where bytes go: a file that appears only when it is complete, plain, gzip or zstd by its name.

#include "attnscope/result.h"

#include <memory>
#include <string>
#include <string_view>

namespace attnscope::formats {

class Sink {
 public:
  virtual ~Sink() = default;  // without finish(): nothing is left behind
  virtual Status write(std::string_view bytes) = 0;
  // Completes the output; a file gets its name only now.
  virtual Status finish() = 0;
};

// path "-": standard output, plain. Ending in .gz or .zst: compressed. Errors: kIo.
Result<std::unique_ptr<Sink>> create_file(const std::string& path);
// Appends to text, which must outlive the sink.
std::unique_ptr<Sink> append_to(std::string& text);
// The same, gzip-compressed.
std::unique_ptr<Sink> append_gzip_to(std::string& bytes);

}  // namespace attnscope::formats
