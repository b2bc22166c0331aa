#include "attention/order_table.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace attnscope {
namespace {

constexpr std::string_view kFirstLine = "attnscope.order/1";
constexpr size_t kMostTimes = 32, kMostNameLength = 32, kMostFieldLength = 200, kMostFeatures = 100;
constexpr int64_t kMostSize = int64_t{1} << 40;
constexpr double kMostMicroseconds = 1e12;
constexpr int64_t kLong = 8192;  // keys or queries: longer ones behave alike

tl::unexpected<Error> bad(size_t line, std::string_view what, std::string_view text) {
  return fail(ErrorCode::kBadInput, fmt::format("line {}: {}: '{}'", line, what, terminal_safe(text, 60)),
              "measure again: attnscope compare --tune");
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Lower-case letters, digits and these: what names of backends and features consist of.
bool is_name(std::string_view text, size_t most, std::string_view extra) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [extra](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || extra.find(c) != std::string_view::npos;
  });
}

std::optional<DType> dtype_named(std::string_view text) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (text == dtype_name(t)) return t;
  return std::nullopt;
}

Status read_sizes(size_t line, std::string_view text, OrderShape& shape) {
  const std::array<int64_t*, 7> to{&shape.batch,  &shape.heads,    &shape.kv_heads, &shape.q_len,
                                   &shape.kv_len, &shape.head_dim, &shape.value_dim};
  const auto parts = split(text, ',');
  if (parts.size() != to.size()) return bad(line, "7 sizes are needed", text);
  for (size_t i = 0; i < to.size(); ++i) {
    const auto value = number<int64_t>(parts[i]);
    if (!value || *value < 1 || *value > kMostSize) return bad(line, "not a size", parts[i]);
    *to[i] = *value;
  }
  return {};
}

Result<OrderPoint> read_point(size_t line, std::string_view text) {
  std::vector<std::string_view> words;
  for (const std::string_view word : split(text, ' '))
    if (!word.empty()) words.push_back(word);
  if (words.size() < 4) return bad(line, "no point: dtype, features, sizes, times", text);
  if (words.size() > 3 + kMostTimes) return bad(line, "more backends than there can be", text);
  OrderPoint point;
  const auto dtype = dtype_named(words[0]);
  if (!dtype) return bad(line, "no float type", words[0]);
  point.shape.dtype = *dtype;
  if (!is_name(words[1], kMostFeatures, "+-")) return bad(line, "no features", words[1]);
  point.shape.features = words[1];
  ATTNSCOPE_TRY(read_sizes(line, words[2], point.shape));
  for (size_t i = 3; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string_view name = words[i].substr(0, equals);
    if (equals == std::string_view::npos || !is_name(name, kMostNameLength, "-_"))
      return bad(line, "no backend=microseconds", words[i]);
    const auto us = number<double>(words[i].substr(equals + 1));
    if (!us || !std::isfinite(*us) || *us <= 0 || *us > kMostMicroseconds)
      return bad(line, "not a time", words[i]);
    if (std::any_of(point.times.begin(), point.times.end(),
                    [&](const OrderTime& t) { return t.backend == name; }))
      return bad(line, "a backend twice", name);
    point.times.push_back({std::string(name), *us});
  }
  std::stable_sort(point.times.begin(), point.times.end(),
                   [](const OrderTime& a, const OrderTime& b) { return a.us < b.us; });
  return point;
}

// True when the line was a header field.
Result<bool> read_field(size_t line, std::string_view text, OrderTable& table) {
  const size_t space = text.find(' ');
  const std::string_view key = text.substr(0, space);
  const std::string_view value = space == std::string_view::npos ? "" : text.substr(space + 1);
  std::string* to = key == "device"    ? &table.device.name
                    : key == "arch"    ? &table.device.arch
                    : key == "library" ? &table.library
                                       : nullptr;
  if (to == nullptr && key != "driver") return false;
  if (value.empty() || value.size() > kMostFieldLength || value != terminal_safe(value, kMostFieldLength))
    return bad(line, "an odd value", text);
  if (to != nullptr) {
    *to = value;
    return true;
  }
  const auto driver = number<int64_t>(value);
  if (!driver || *driver < 0) return bad(line, "no driver version", value);
  table.device.driver = *driver;
  return true;
}

bool same_kind(DType a, DType b) {
  return a == b || (dtype_is_half(a) && dtype_is_half(b));
}

double octaves(int64_t a, int64_t b) {
  return std::fabs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
}

// Sum of the distances, infinite past a limit.
double distance(const OrderShape& a, const OrderShape& b) {
  const double head = std::max(octaves(a.head_dim, b.head_dim), octaves(a.value_dim, b.value_dim));
  const double q = octaves(std::min(a.q_len, kLong), std::min(b.q_len, kLong));
  const double kv = octaves(std::min(a.kv_len, kLong), std::min(b.kv_len, kLong));
  const double batch = octaves(a.batch, b.batch) + octaves(a.heads, b.heads);
  const double parallel = std::fabs(std::log2(static_cast<double>(a.batch) / static_cast<double>(b.batch)) +
                                    std::log2(static_cast<double>(a.heads) / static_cast<double>(b.heads)));
  const double group = std::fabs(std::log2(static_cast<double>(a.heads) / static_cast<double>(a.kv_heads)) -
                                 std::log2(static_cast<double>(b.heads) / static_cast<double>(b.kv_heads)));
  constexpr double kRounding = 1e-9;
  if (head > 0.585 + kRounding || q > 1 + kRounding || kv > 1 + kRounding || parallel > 2 + kRounding)
    return INFINITY;
  return 2 * head + q + kv + parallel + 0.1 * batch + 0.25 * group;
}

}  // namespace

OrderShape order_shape(const Request& r) {
  OrderShape shape{r.q.dtype, {},         r.batch(),    r.heads(),    r.k.size(1),
                   r.q_len(), r.kv_len(), r.head_dim(), r.value_dim()};
  const auto add = [&](bool asked, std::string_view name) {
    if (asked) shape.features += (shape.features.empty() ? "" : "+") + std::string(name);
  };
  add(r.causal != CausalMode::kNone, "causal");
  add(r.window.active(), "window");
  add(r.mask_kind == MaskKind::kBool, "bool");
  add(r.mask_kind == MaskKind::kBias, "bias");
  add(r.softcap > 0, "softcap");
  add(r.dropout.p > 0, "dropout");
  add(r.lengths.has_kv_lengths(), "lengths");
  add(r.lengths.packed(), "packed");
  add(r.paging.active(), "paged");
  add(r.sinks.data != nullptr, "sinks");
  add(r.alibi_slopes.data != nullptr, "alibi");
  add(shape.features.empty(), "full");
  return shape;
}

std::string to_text(const OrderShape& s) {
  return fmt::format("{} {} {},{},{},{},{},{},{}", dtype_name(s.dtype), s.features, s.batch, s.heads,
                     s.kv_heads, s.q_len, s.kv_len, s.head_dim, s.value_dim);
}

Result<OrderTable> parse_order_table(std::string_view text) {
  if (text.size() > kMostOrderBytes)
    return bad(1, "the table is too large", fmt::format("{} bytes", text.size()));
  OrderTable table;
  size_t line = 0;
  for (std::string_view rest : split(text, '\n')) {
    ++line;
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    if (line == 1 && rest != kFirstLine) return bad(line, "no table of orders", rest);
    if (line == 1 || rest.empty() || rest.starts_with('#')) continue;
    ATTNSCOPE_ASSIGN(const bool field, read_field(line, rest, table));
    if (field) continue;
    if (table.points.size() >= kMostOrderPoints) return bad(line, "more points than are read", rest);
    ATTNSCOPE_ASSIGN(OrderPoint point, read_point(line, rest));
    table.points.push_back(std::move(point));
  }
  if (table.device.name.empty() || table.device.arch.empty() || table.library.empty())
    return bad(line, "device, arch or library is missing", "");
  return table;
}

std::string write_order_table(const OrderTable& table) {
  std::string text = fmt::format("{}\ndevice {}\narch {}\ndriver {}\nlibrary {}\n", kFirstLine,
                                 table.device.name, table.device.arch, table.device.driver, table.library);
  for (const OrderPoint& point : table.points) {
    text += to_text(point.shape);
    for (const OrderTime& time : point.times) text += fmt::format(" {}={:.4g}", time.backend, time.us);
    text += '\n';
  }
  return text;
}

const OrderPoint* nearest_point(const OrderTable& table, const OrderShape& shape) {
  const OrderPoint* best = nullptr;
  double least = INFINITY;
  for (const OrderPoint& point : table.points) {
    if (point.shape.features != shape.features || !same_kind(point.shape.dtype, shape.dtype)) continue;
    const double d = distance(point.shape, shape);
    if (d >= least) continue;
    least = d;
    best = &point;
  }
  return best;
}

}  // namespace attnscope
