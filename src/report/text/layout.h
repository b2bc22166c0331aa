#pragma once
// Wrapping, columns and colour of terminal reports.

#include <string>
#include <string_view>
#include <vector>

namespace attnscope::report {

// Words of text in lines of at most width columns; every line after the first begins with indent spaces.
// A word longer than a line stays whole. The first line begins at column `column`.
std::string wrap(std::string_view text, size_t width, size_t indent, size_t column = 0);

enum class Ink { kPlain, kBold, kDim, kRed, kYellow, kCyan };
std::string ink(std::string_view text, Ink ink, bool colour);

// Rows of cells under a header, columns two spaces apart. Right-aligned columns are marked in `right`; the
// last column may be cut with "…" so that a row fits the width (0: never).
struct TextTable {
  std::vector<std::string> header;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
  std::string render(size_t width, size_t indent = 0) const;
};

// text of at most `columns` terminal columns, cut at the end with "…".
std::string fit(std::string_view text, size_t columns);

}  // namespace attnscope::report
