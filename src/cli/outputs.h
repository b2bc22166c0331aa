#pragma once
// Where the outputs of a command go: the options that say it, the checks before anything runs, the writing.

#include "attnscope/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attnscope::cli {

struct Context;

// An option that names an output, and the place it names; an empty path: not given.
struct OutputPlace {
  const char* option;
  std::string path;
};

// --json, --markdown, --html of a command; a file, or - for stdout.
struct OutputFiles {
  std::string json;
  std::string markdown;
  std::string html;
  enum Kinds : unsigned { kJson = 1, kMarkdown = 2, kHtml = 4 };
  void add_to(CLI::App& app, unsigned kinds);
  // True when one of them takes stdout: the text report is then not printed.
  bool takes_stdout() const { return json == "-" || markdown == "-" || html == "-"; }
  std::vector<OutputPlace> places() const {
    return {{"--json", json}, {"--markdown", markdown}, {"--html", html}};
  }
};

// The option takes the place of an output: not empty; /dev/stdout and its other names become "-".
CLI::Option* as_output(CLI::Option* option);

// Before anything runs: kInvalidArgument when two outputs go to one place or one would overwrite an input,
// kIo when a place cannot be written. Inputs may be "-" or not exist.
Status check_outputs(const std::vector<OutputPlace>& outputs, const std::vector<std::string>& inputs = {});

// Writes to a file by a temporary beside it and a rename, so that a reader never sees half of it; "-" is
// the context's stdout.
Status write_output(Context& context, const std::string& path, std::string_view content);

}  // namespace attnscope::cli
