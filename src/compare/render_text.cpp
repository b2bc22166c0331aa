#include "compare/render.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::compare {
namespace {

constexpr double kRestless = 1.5;  // p90 ÷ p10 from which a time is no longer one figure

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  std::string bold(std::string_view s) const { return wrap("1", s); }
  std::string dim(std::string_view s) const { return wrap("2", s); }
  std::string red(std::string_view s) const { return wrap("31", s); }
  std::string green(std::string_view s) const { return wrap("32", s); }
  std::string yellow(std::string_view s) const { return wrap("33", s); }

 private:
  std::string wrap(std::string_view code, std::string_view s) const {
    return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : std::string(s);
  }
  bool on_;
};

struct Cell {
  std::string text;
  bool loud = false;  // not as guessed
  bool good = false;
};
struct Column {
  std::string title;
  bool right = true;
  int drop = 0;  // columns with the highest number go first when the width does not do
  std::vector<Cell> cells;
};

std::string three(double value) {
  return value >= 99.95   ? fmt::format("{:.0f}", value)
         : value >= 9.995 ? fmt::format("{:.1f}", value)
                          : fmt::format("{:.2f}", value);
}

// "45.1 µs (44.8–45.6)": the spread in the unit of the median.
std::string spread_text(const Distribution& d) {
  const std::string median = format_time_us(d.p50);
  const size_t space = median.rfind(' ');
  const std::string unit = space == std::string::npos ? "" : median.substr(space + 1);
  const double factor = unit == "ns" ? 1e-3 : unit == "ms" ? 1e3 : unit == "s" ? 1e6 : 1;
  return fmt::format("{} ({}–{})", median, three(d.p10 / factor), three(d.p90 / factor));
}

Cell count_cell(int seen, const std::optional<int>& guess) {
  const bool loud = guess && *guess != seen;
  return {fmt::format("{}{}", seen, loud ? " ◄" : "  "), loud, false};
}

std::vector<Column> make_columns(const CompareResult& r) {
  const bool gpu = r.device == DeviceType::kCuda;
  const double unit = gpu ? 1e12 : 1e9;
  std::vector<Column> columns{{"variant", false, 0, {}},
                              {"kernels", true, 0, {}},
                              {"guess", true, 0, {}},
                              {"copies", true, 0, {}},
                              {gpu ? "device time p50 (p10–p90)" : "time p50 (p10–p90)", true, 0, {}},
                              {"host", true, 2, {}},
                              {gpu ? "TFLOP/s" : "GFLOP/s", true, 0, {}},
                              {"of peak", true, 3, {}},
                              {"error", true, 0, {}},
                              {"memory", true, 1, {}}};
  for (const VariantResult& v : r.variants) {
    if (!v.ok()) continue;
    const double rate = v.flops_per_s();
    size_t i = 0;
    const auto put = [&](Cell cell) { columns[i++].cells.push_back(std::move(cell)); };
    put({v.name, false, &v == r.fastest()});
    put(count_cell(v.counts.kernels, v.guess.kernels));
    put({v.guess.kernels ? fmt::format("{}", *v.guess.kernels) : "–"});
    put(count_cell(v.counts.copies, v.guess.copies));
    put({spread_text(v.device_us)});
    put({v.host_us.samples > 0 ? format_time_us(v.host_us.p50) : "–"});
    put({three(rate / unit)});
    put({r.peaks.flops_per_s > 0 ? fmt::format("{:.0f} %", 100 * rate / r.peaks.flops_per_s) : "–"});
    put({fmt::format("{:.1e}", v.accuracy.rel_l2)});
    put({format_bytes(v.counts.intermediate_bytes)});
  }
  return columns;
}

size_t column_width(const Column& c) {
  size_t width = display_width(c.title);
  for (const Cell& cell : c.cells) width = std::max(width, display_width(cell.text));
  return width;
}

size_t table_width(const std::vector<Column>& columns) {
  size_t width = 0;
  for (const Column& c : columns) width += column_width(c) + 2;
  return width - 2;
}

std::string table_text(std::vector<Column> columns, const TextStyle& style, const Paint& paint) {
  for (int drop = 3; drop > 0 && table_width(columns) > static_cast<size_t>(style.width); --drop)
    std::erase_if(columns, [drop](const Column& c) { return c.drop == drop; });
  std::string text;
  std::string line;
  const auto end_line = [&](const auto& colour) {
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += colour(line) + "\n";
    line.clear();
  };
  for (const Column& c : columns) line += pad(c.title, column_width(c), c.right) + "  ";
  end_line([&](const std::string& s) { return paint.dim(s); });
  for (size_t row = 0; row < columns.front().cells.size(); ++row) {
    for (const Column& c : columns) {
      const Cell& cell = c.cells[row];
      const std::string padded = pad(cell.text, column_width(c), c.right);
      line += (cell.loud ? paint.yellow(padded) : cell.good ? paint.green(padded) : padded) + "  ";
    }
    end_line([](const std::string& s) { return s; });
  }
  return text;
}

// Lines of at most width columns, later ones indented; words are never cut.
std::string wrap(std::string_view text, size_t indent, size_t hanging, int width) {
  std::string out(indent, ' ');
  size_t column = indent;
  bool first = true;
  for (const std::string_view word : split(text, ' ')) {
    const size_t wide = display_width(word);
    if (word.empty()) continue;
    if (!first && column + 1 + wide > static_cast<size_t>(width)) {
      out += "\n" + std::string(hanging, ' ');
      column = hanging;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
    first = false;
  }
  return out + "\n";
}

// The same, broken between parts set off by " · " where that does.
std::string wrap_parts(const std::string& text, int width) {
  std::string out, line;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(" · ", begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::string longer = line.empty() ? part : line + " · " + part;
    if (!line.empty() && display_width(longer) > static_cast<size_t>(width)) {
      out += line + "\n";
      line = part;
    } else {
      line = longer;
    }
    begin = end + std::string_view(" · ").size();
  }
  return out + wrap(line, 0, 2, width);
}

std::string breaks_text(const CompareResult& r, const TextStyle& style, const Paint& paint) {
  std::string text;
  for (const VariantResult& v : r.variants)
    for (const BreakText& b : explain_breaks(v, r)) {
      text += paint.yellow(wrap("◄ " + b.headline, 1, 3, style.width));
      for (const std::string& detail : b.details) text += wrap(detail, 3, 5, style.width);
    }
  const bool guessed = std::any_of(r.variants.begin(), r.variants.end(), [](const VariantResult& v) {
    return v.ok() && (v.guess.kernels || v.guess.copies || v.guess.fills);
  });
  if (text.empty()) return guessed ? paint.green("Every count came out as guessed.") + "\n" : "";
  return paint.bold("Where the guess broke") + "\n" + text;
}

std::string reasons_text(const CompareResult& r, VariantStatus status, const char* title,
                         const TextStyle& style, const Paint& paint) {
  std::string text;
  for (const VariantResult& v : r.variants) {
    if (v.status != status) continue;
    bool first = true;
    for (const Refusal& reason : v.reasons) {
      std::string line = pad(first ? v.name : "", 12) + reason.message;
      if (!reason.remedy.empty()) line += ": " + reason.remedy;
      // pad() leaves several spaces, which wrap() would fold: the name is set apart by hand.
      const std::string body =
          wrap(terminal_safe(line.substr(line.find_first_not_of(' ', v.name.size())), 2000), 0, 15,
               style.width - 15);
      text += "   " + pad(first ? v.name : "", 12) + body;
      first = false;
    }
  }
  return text.empty() ? text : paint.bold(title) + "\n" + text;
}

std::string notes_text(const CompareResult& r, const TextStyle& style, const Paint& paint) {
  std::string text;
  for (const VariantResult& v : r.variants) {
    if (const std::string empty = empty_row_text(v); !empty.empty()) text += wrap(empty, 0, 2, style.width);
    if (v.ok() && !v.counts.steady)
      text +=
          wrap(fmt::format("{}: calls differed in their kernels; the counts are the first call's.", v.name),
               0, 2, style.width);
  }
  const VariantResult* best = r.fastest();
  if (best && best->device_us.p90 > kRestless * best->device_us.p10)
    text += paint.yellow(
        wrap(fmt::format("Times of {} spread over {:.1f} ×: the machine is busy or its clocks move. "
                         "Repeat when it is quiet, or with --min-time 5.",
                         best->name, best->device_us.p90 / best->device_us.p10),
             0, 2, style.width));
  return text;
}

}  // namespace

std::string render_text(const CompareResult& r, const TextStyle& style) {
  const Paint paint(style.colour);
  std::string text = paint.dim(wrap_parts(headline(r), style.width));
  if (!r.device_note.empty()) text += paint.dim(wrap(r.device_note, 0, 2, style.width));
  text += paint.bold(wrap(verdict(r), 0, 0, style.width)) + "\n";
  if (const VariantResult* best = r.fastest()) {
    text += table_text(make_columns(r), style, paint);
    std::string legend = r.guess_source.empty()
                             ? fmt::format("guess: the formula's {} steps, a kernel each; 1 when fused",
                                           formula_kernels(r.problem))
                             : fmt::format("guess: {}; –: not guessed", terminal_safe(r.guess_source));
    legend += fmt::format(" · error: rel. L2 against float64, {} allowed",
                          fmt::format("{:.1e}", best->accuracy.tolerance.rel_l2));
    if (best->accuracy.rows_checked < best->accuracy.rows_total)
      legend += fmt::format(" ({} of {} rows checked)", group_digits(best->accuracy.rows_checked),
                            group_digits(best->accuracy.rows_total));
    text += paint.dim(wrap(legend, 0, 2, style.width));
    if (const std::string allowed = expectation_text(r); !allowed.empty())
      text += paint.dim(wrap(allowed, 0, 2, style.width));
    text += "\n" + notes_text(r, style, paint) + breaks_text(r, style, paint);
  }
  if (const auto others = other_findings(r); !others.empty()) {
    text += paint.bold("Also found") + "\n";
    for (const std::string& line : others) text += wrap(line, 3, 5, style.width);
  }
  text += reasons_text(r, VariantStatus::kFailed, "Failed", style, paint);
  text += reasons_text(r, VariantStatus::kRefused, "Refused", style, paint);
  std::string next;
  for (const std::string& step : next_steps(r)) next += (next.empty() ? "Next: " : "\n      ") + step;
  return text + next + "\n";
}

}  // namespace attnscope::compare
