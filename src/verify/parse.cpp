// Cases from JSON lines. Every field is checked; what is unknown is an error, so that a misspelt key cannot
// quietly weaken a case.

#include "verify/verify_case.h"

#include "base/text.h"
#include "tensor/fill.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace attnscope::verify {
namespace {

using Json = nlohmann::json;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Thrown and caught inside parse_cases only: nlohmann throws as well.
struct CaseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void allow_only(const Json& object, const char* what, std::initializer_list<const char*> keys) {
  if (!object.is_object()) throw CaseError(fmt::format("{} is not an object", what));
  for (const auto& [key, value] : object.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      throw CaseError(fmt::format("{} has the unknown key '{}'", what, terminal_safe(key)));
}

double number(const Json& j) {
  if (j.is_number()) return j.get<double>();
  const auto text = j.get<std::string>();
  if (text == "nan") return std::nan("");
  if (text == "inf") return kInf;
  if (text == "-inf") return -kInf;
  if (text == "f32-lowest") return static_cast<double>(std::numeric_limits<float>::lowest());
  throw CaseError(fmt::format("'{}' is no number", terminal_safe(text)));
}

std::vector<double> numbers(const Json& j) {
  std::vector<double> all;
  if (!j.is_array()) return {number(j)};
  for (const Json& item : j) {
    const std::vector<double> part = numbers(item);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<int64_t> integers(const Json& j) {
  return j.get<std::vector<int64_t>>();
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || size > (int64_t{1} << 40)) throw CaseError("a size is negative or too large");
    if (__builtin_mul_overflow(n, size, &n)) throw CaseError("the sizes overflow");
  }
  return n;
}

double uniform(uint64_t seed, int64_t linear) {
  return static_cast<double>(random_bits(seed, static_cast<uint64_t>(linear)) >> 11) * 0x1p-53;
}

Content list_content(const Json& j, size_t dimension) {
  auto list = std::make_shared<std::vector<double>>(numbers(j));
  if (list->empty()) throw CaseError("a list of values is empty");
  return [list, dimension](const std::array<int64_t, 4>& at, int64_t) {
    return (*list)[std::min(static_cast<size_t>(at[dimension]), list->size() - 1)];
  };
}

// The generator a tensor names; see tests/cases/README.md.
Content base_content(const Json& j, int64_t count) {
  if (j.contains("values")) {
    auto values = std::make_shared<std::vector<double>>(numbers(j["values"]));
    if (static_cast<int64_t>(values->size()) != count)
      throw CaseError(fmt::format("{} values for {} elements", values->size(), count));
    return [values](const auto&, int64_t linear) { return (*values)[static_cast<size_t>(linear)]; };
  }
  if (j.contains("constant")) return [c = number(j["constant"])](const auto&, int64_t) { return c; };
  if (j.contains("normal"))
    return [seed = j["normal"].get<uint64_t>(), scale = j.value("scale", 1.0), holes = j.value("holes", 0.0)](
               const auto&, int64_t linear) {
      if (holes > 0 && uniform(seed + 1000, linear) < holes) return -kInf;
      return scale * random_normal(seed, static_cast<uint64_t>(linear));
    };
  if (j.contains("heavy_tail"))  // four wide columns, the rest narrow
    return [seed = j["heavy_tail"].get<uint64_t>()](const std::array<int64_t, 4>& at, int64_t linear) {
      return (at[3] < 4 ? 8.0 : 0.1) * random_normal(seed, static_cast<uint64_t>(linear));
    };
  if (j.contains("by_row")) return list_content(j["by_row"], 2);
  if (j.contains("by_head")) return list_content(j["by_head"], 1);
  if (j.contains("first_column"))
    return [c = number(j["first_column"])](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] == 0 ? c : 0.0;
    };
  if (j.contains("bernoulli"))
    return [seed = j["bernoulli"].get<uint64_t>(), p = j.value("p", 0.5),
            first = j.value("keep_first", false)](const std::array<int64_t, 4>& at, int64_t linear) {
      return uniform(seed, linear) < p || (first && at[3] == 0) ? 1.0 : 0.0;
    };
  if (j.contains("choice")) {
    const std::vector<double> pair = numbers(j["of"]);
    if (pair.size() != 2) throw CaseError("'of' takes two values");
    return [seed = j["choice"].get<uint64_t>(), p = j.value("p", 0.5), a = pair[0], b = pair[1]](
               const auto&, int64_t linear) { return uniform(seed, linear) < p ? a : b; };
  }
  if (j.contains("tril"))
    return [](const std::array<int64_t, 4>& at, int64_t) { return at[3] <= at[2] ? 1.0 : 0.0; };
  if (j.contains("left_padding"))  // batch b hides its first (7 b) mod (most + 1) keys
    return [most = j["left_padding"].get<int64_t>()](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] >= at[0] * 7 % (most + 1) ? 1.0 : 0.0;
    };
  if (j.contains("key_below")) {
    auto lengths = std::make_shared<std::vector<int64_t>>(integers(j["key_below"]));
    if (lengths->empty()) throw CaseError("key_below is empty");
    return [lengths](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] < (*lengths)[std::min(static_cast<size_t>(at[0]), lengths->size() - 1)] ? 1.0 : 0.0;
    };
  }
  if (j.contains("lowest_below_key"))
    return [n = j["lowest_below_key"].get<int64_t>()](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] < n ? static_cast<double>(std::numeric_limits<float>::lowest()) : 0.0;
    };
  if (j.contains("last_row_and_column_false")) {
    const std::vector<int64_t> last = integers(j["last_row_and_column_false"]);
    return [rows = last.at(0), cols = last.at(1)](const std::array<int64_t, 4>& at, int64_t) {
      return at[2] == rows - 1 || at[3] == cols - 1 ? 0.0 : 1.0;
    };
  }
  if (j.contains("block")) {  // [batch, first query, key end]: −inf there, 0 elsewhere
    const std::vector<int64_t> b = integers(j["block"]);
    return [batch = b.at(0), query = b.at(1), key = b.at(2)](const std::array<int64_t, 4>& at, int64_t) {
      return at[0] == batch && at[2] >= query && at[3] < key ? -kInf : 0.0;
    };
  }
  throw CaseError("a tensor has no content");
}

DType parse_dtype(const std::string& name) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kBool})
    if (dtype_name(t) == name) return t;
  throw CaseError(fmt::format("unknown dtype '{}'", terminal_safe(name)));
}

TensorSpec parse_tensor(const Json& j, DType dtype, std::vector<int64_t> sizes) {
  allow_only(j, "a tensor",
             {"values",
              "constant",
              "normal",
              "scale",
              "holes",
              "heavy_tail",
              "by_row",
              "by_head",
              "first_column",
              "bernoulli",
              "p",
              "keep_first",
              "choice",
              "of",
              "tril",
              "left_padding",
              "key_below",
              "lowest_below_key",
              "last_row_and_column_false",
              "block",
              "nan_from_row",
              "strides",
              "offset",
              "kind",
              "dtype",
              "sizes"});
  TensorSpec t;
  t.dtype = dtype;
  t.sizes = std::move(sizes);
  const int64_t count = product(t.sizes);
  t.content = count > 0 ? base_content(j, count) : Content([](const auto&, int64_t) { return 0.0; });
  if (j.contains("nan_from_row"))
    t.content = [inner = t.content, from = j["nan_from_row"].get<int64_t>()](const std::array<int64_t, 4>& at,
                                                                             int64_t n) {
      return at[2] >= from ? std::nan("") : inner(at, n);
    };
  if (j.contains("strides")) t.strides = integers(j["strides"]);
  t.offset = j.value("offset", int64_t{0});
  if (!t.strides.empty() && t.strides.size() != t.sizes.size())
    throw CaseError("strides and sizes differ in number");
  if (t.offset != 0 && t.strides.empty()) throw CaseError("an offset needs strides");
  return t;
}

void parse_mask(const Json& j, Case& c) {
  const auto kind = j.at("kind").get<std::string>();
  if (kind != "bool" && kind != "bias") throw CaseError("mask kind must be bool or bias");
  c.mask_kind = kind == "bool" ? MaskKind::kBool : MaskKind::kBias;
  const DType dtype = kind == "bool" ? DType::kBool : parse_dtype(j.value("dtype", "f32"));
  c.mask = parse_tensor(j, dtype, integers(j.at("sizes")));
}

void parse_expect(const Json& j, Case& c) {
  allow_only(j, "expect", {"out", "lse", "error", "tolerance", "rule"});
  c.rule = j.value("rule", "");
  c.expect_error = j.value("error", false);
  if (j.contains("out")) c.expect_out = numbers(j["out"]);
  if (j.contains("lse")) c.expect_lse = numbers(j["lse"]);
  c.expect_tolerance = j.value("tolerance", 0.0);
}

CausalMode parse_causal(const std::string& name) {
  if (name == "none") return CausalMode::kNone;
  if (name == "top_left") return CausalMode::kTopLeft;
  if (name == "lower_right") return CausalMode::kLowerRight;
  throw CaseError("causal must be none, top_left or lower_right");
}

Case parse_case(const Json& j) {
  allow_only(j, "the case", {"id",      "source",  "fault",      "note",    "machinery", "dtype",     "sizes",
                             "q",       "k",       "v",          "mask",    "causal",    "window",    "scale",
                             "softcap", "dropout", "kv_lengths", "cu_q",    "cu_k",      "page_size", "pages",
                             "merge",   "expect",  "deviates",   "backward"});
  Case c;
  c.id = j.at("id").get<std::string>();
  c.source = j.value("source", "");
  c.fault = j.value("fault", "");
  c.note = j.value("note", "");
  c.machinery = j.value("machinery", "");
  parse_expect(j.value("expect", Json::object()), c);
  c.needs_backward = j.contains("backward");
  if (j.contains("merge")) {
    for (const Json& state : j["merge"])
      c.merge.push_back({numbers(state.at("out")), number(state.at("lse"))});
    return c;
  }
  if (!c.machinery.empty() && !j.contains("sizes")) return c;

  const DType dtype = parse_dtype(j.at("dtype").get<std::string>());
  const Json& s = j.at("sizes");
  allow_only(s, "sizes", {"B", "H", "Hk", "Hv", "L", "S", "Sv", "E", "Ev", "pages"});
  const auto size = [&](const char* key, int64_t otherwise) { return s.value(key, otherwise); };
  const int64_t B = s.at("B"), H = s.at("H"), L = s.at("L"), S = s.at("S"), E = s.at("E");
  const int64_t Hk = size("Hk", H), Hv = size("Hv", Hk), Ev = size("Ev", E), Sv = size("Sv", S);
  const int64_t kv_batch = size("pages", B);
  c.q = parse_tensor(j.at("q"), dtype, {B, H, L, E});
  c.k = parse_tensor(j.at("k"), dtype, {kv_batch, Hk, S, E});
  c.v = parse_tensor(j.at("v"), dtype, {kv_batch, Hv, Sv, Ev});
  if (j.contains("mask")) parse_mask(j["mask"], c);
  c.causal = parse_causal(j.value("causal", "none"));
  if (j.contains("window")) c.window = {j["window"].at(0).get<int64_t>(), j["window"].at(1).get<int64_t>()};
  if (j.contains("scale")) c.scale = number(j["scale"]);
  c.softcap = j.value("softcap", 0.0);
  if (j.contains("dropout"))
    c.dropout = {j["dropout"].at("p").get<double>(), j["dropout"].value("seed", uint64_t{1}),
                 j["dropout"].value("offset", uint64_t{0})};
  for (const auto& [key, into] : {std::pair{"kv_lengths", &c.kv_lengths}, std::pair{"cu_q", &c.cu_q},
                                  std::pair{"cu_k", &c.cu_k}, std::pair{"pages", &c.pages}})
    if (j.contains(key)) *into = integers(j[key]);
  c.page_size = j.value("page_size", int64_t{0});
  if (c.cu_q.size() != c.cu_k.size()) throw CaseError("cu_q and cu_k differ in length");
  if (j.contains("deviates")) c.deviates = j["deviates"].get<std::map<std::string, std::string>>();
  return c;
}

}  // namespace

Result<std::vector<Case>> parse_cases(std::string_view text, const std::string& where) {
  std::vector<Case> cases;
  std::set<std::string> ids;
  int line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      cases.push_back(parse_case(Json::parse(line)));
    } catch (const std::exception& e) {
      return fail(ErrorCode::kBadInput,
                  fmt::format("{} line {}: {}", where, line_number, terminal_safe(e.what())),
                  "the format is described in tests/cases/README.md");
    }
    if (!ids.insert(cases.back().id).second)
      return fail(ErrorCode::kBadInput, fmt::format("{} line {}: the id '{}' is taken", where, line_number,
                                                    terminal_safe(cases.back().id)));
  }
  if (cases.empty()) return fail(ErrorCode::kBadInput, fmt::format("{} holds no case", where));
  return cases;
}

}  // namespace attnscope::verify
