#include "report/text/layout.h"

#include "base/text.h"

#include <algorithm>
#include <array>

namespace attnscope::report {

namespace {

bool is_unit(std::string_view word) {
  while (!word.empty() && std::string_view(",.;:)").find(word.back()) != std::string_view::npos)
    word.remove_suffix(1);
  static constexpr std::array<std::string_view, 14> kUnits{
      "ns", "µs", "ms", "s", "%", "B", "kB", "MB", "GB", "TB", "PB", "KiB", "TFLOP/s", "GFLOP/s"};
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

// Words that stay on one line: a figure keeps its unit.
std::vector<std::string> unbreakable(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const bool figure =
        !words.empty() && !words.back().empty() && words.back().back() >= '0' && words.back().back() <= '9';
    if (figure && is_unit(word))
      words.back() += " " + std::string(word);
    else
      words.emplace_back(word);
  }
  return words;
}

}  // namespace

std::string wrap(std::string_view text, size_t width, size_t indent, size_t column) {
  std::string out;
  bool line_is_empty = true;
  for (const std::string& word : unbreakable(text)) {
    const size_t wide = display_width(word);
    if (!line_is_empty && column + 1 + wide > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      line_is_empty = true;
    }
    if (!line_is_empty) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
    line_is_empty = false;
  }
  return out;
}

std::string ink(std::string_view text, Ink how, bool colour) {
  if (!colour || how == Ink::kPlain) return std::string(text);
  const char* code = "";
  switch (how) {
    case Ink::kPlain: break;
    case Ink::kBold: code = "1"; break;
    case Ink::kDim: code = "2"; break;
    case Ink::kRed: code = "1;31"; break;
    case Ink::kYellow: code = "33"; break;
    case Ink::kCyan: code = "36"; break;
  }
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

std::string fit(std::string_view text, size_t columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::string out;
  size_t used = 0;
  while (!text.empty() && used + 1 < columns) {
    size_t length = 1;
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) ++length;
    const size_t wide = display_width(text.substr(0, length));
    if (used + wide + 1 > columns) break;
    out += text.substr(0, length);
    used += wide;
    text.remove_prefix(length);
  }
  return out + "…";
}

std::string TextTable::render(size_t width, size_t indent) const {
  std::vector<size_t> widths(header.size());
  for (size_t c = 0; c < header.size(); ++c) {
    widths[c] = display_width(header[c]);
    for (const auto& row : rows) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  size_t before_last = indent;
  for (size_t c = 0; c + 1 < widths.size(); ++c) before_last += widths[c] + 2;
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    out += std::string(indent, ' ');
    for (size_t c = 0; c < cells.size(); ++c) {
      const bool last = c + 1 == cells.size();
      const std::string cell =
          last && width > before_last + 8 ? fit(cells[c], width - before_last) : cells[c];
      const bool to_right = c < right.size() && right[c];
      out += last && !to_right ? cell : pad(cell, widths[c], to_right);
      if (!last) out += "  ";
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += '\n';
  };
  if (std::any_of(header.begin(), header.end(), [](const std::string& h) { return !h.empty(); }))
    line(header);
  for (const auto& row : rows) line(row);
  return out;
}

}  // namespace attnscope::report
