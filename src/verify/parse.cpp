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

// Lists in lists, as deep as tensors have dimensions.
void append_numbers(const Json& j, int depth, std::vector<double>& all) {
  if (!j.is_array()) return all.push_back(number(j));
  if (depth == 0) throw CaseError("lists lie in each other more than four deep");
  for (const Json& item : j) append_numbers(item, depth - 1, all);
}

std::vector<double> numbers(const Json& j) {
  std::vector<double> all;
  append_numbers(j, 4, all);
  return all;
}

// nlohmann's get<int64_t> turns 1e30 and 2.5 into integers without a word.
constexpr int64_t kMostInteger = int64_t{1} << 40;

int64_t integer(const Json& j) {
  if (!j.is_number_integer()) throw CaseError(fmt::format("{} is no whole number", j.dump()));
  if (j.is_number_unsigned() ? j.get<uint64_t>() > kMostInteger : j.get<int64_t>() < -kMostInteger)
    throw CaseError(fmt::format("{} is beyond ±{}", j.dump(), kMostInteger));
  return j.get<int64_t>();
}

int64_t integer(const Json& object, const char* key, int64_t otherwise) {
  return object.contains(key) ? integer(object[key]) : otherwise;
}

int64_t natural(const Json& j) {
  const int64_t n = integer(j);
  if (n < 0) throw CaseError(fmt::format("{} is negative", n));
  return n;
}

// All 64 bits are seeds.
uint64_t seed_value(const Json& j) {
  if (!j.is_number_unsigned()) throw CaseError(fmt::format("{} is no seed: a whole number from 0", j.dump()));
  return j.get<uint64_t>();
}

uint64_t seed_value(const Json& object, const char* key, uint64_t otherwise) {
  return object.contains(key) ? seed_value(object[key]) : otherwise;
}

std::vector<int64_t> integers(const Json& j) {
  if (!j.is_array()) throw CaseError(fmt::format("{} is no list of whole numbers", j.dump()));
  std::vector<int64_t> all;
  for (const Json& item : j) all.push_back(integer(item));
  return all;
}

std::vector<int64_t> integers(const Json& j, const char* what, size_t how_many) {
  std::vector<int64_t> all = integers(j);
  if (all.size() != how_many)
    throw CaseError(fmt::format("{} takes {} numbers; these are {}", what, how_many, all.size()));
  return all;
}

// Lengths and page numbers become i32.
std::vector<int64_t> small_integers(const Json& j) {
  std::vector<int64_t> all = integers(j);
  for (const int64_t n : all)
    if (n != static_cast<int32_t>(n)) throw CaseError(fmt::format("{} does not fit 32 bits", n));
  return all;
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  if (sizes.size() > 4) throw CaseError(fmt::format("{} dimensions; tensors have up to 4", sizes.size()));
  for (const int64_t size : sizes) {
    if (size < 0) throw CaseError(fmt::format("a size is {}", size));
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
    return [seed = seed_value(j["normal"]), scale = j.value("scale", 1.0), holes = j.value("holes", 0.0)](
               const auto&, int64_t linear) {
      if (holes > 0 && uniform(seed + 1000, linear) < holes) return -kInf;
      return scale * random_normal(seed, static_cast<uint64_t>(linear));
    };
  if (j.contains("heavy_tail"))  // four wide columns, the rest narrow
    return [seed = seed_value(j["heavy_tail"])](const std::array<int64_t, 4>& at, int64_t linear) {
      return (at[3] < 4 ? 8.0 : 0.1) * random_normal(seed, static_cast<uint64_t>(linear));
    };
  if (j.contains("by_row")) return list_content(j["by_row"], 2);
  if (j.contains("by_head")) return list_content(j["by_head"], 1);
  if (j.contains("first_column"))
    return [c = number(j["first_column"])](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] == 0 ? c : 0.0;
    };
  if (j.contains("bernoulli"))
    return [seed = seed_value(j["bernoulli"]), p = j.value("p", 0.5), first = j.value("keep_first", false)](
               const std::array<int64_t, 4>& at, int64_t linear) {
      return uniform(seed, linear) < p || (first && at[3] == 0) ? 1.0 : 0.0;
    };
  if (j.contains("choice")) {
    const std::vector<double> pair = numbers(j["of"]);
    if (pair.size() != 2) throw CaseError("'of' takes two values");
    return [seed = seed_value(j["choice"]), p = j.value("p", 0.5), a = pair[0], b = pair[1]](
               const auto&, int64_t linear) { return uniform(seed, linear) < p ? a : b; };
  }
  if (j.contains("tril"))
    return [](const std::array<int64_t, 4>& at, int64_t) { return at[3] <= at[2] ? 1.0 : 0.0; };
  if (j.contains("left_padding"))  // batch b hides its first (7 b) mod (most + 1) keys
    return [most = natural(j["left_padding"])](const std::array<int64_t, 4>& at, int64_t) {
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
    return [n = integer(j["lowest_below_key"])](const std::array<int64_t, 4>& at, int64_t) {
      return at[3] < n ? static_cast<double>(std::numeric_limits<float>::lowest()) : 0.0;
    };
  if (j.contains("last_row_and_column_false")) {
    const std::vector<int64_t> last =
        integers(j["last_row_and_column_false"], "last_row_and_column_false", 2);
    return [rows = last[0], cols = last[1]](const std::array<int64_t, 4>& at, int64_t) {
      return at[2] == rows - 1 || at[3] == cols - 1 ? 0.0 : 1.0;
    };
  }
  if (j.contains("block")) {  // [batch, first query, key end]: −inf there, 0 elsewhere
    const std::vector<int64_t> b = integers(j["block"], "block", 3);
    return [batch = b[0], query = b[1], key = b[2]](const std::array<int64_t, 4>& at, int64_t) {
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
    t.content = [inner = t.content, from = integer(j["nan_from_row"])](const std::array<int64_t, 4>& at,
                                                                       int64_t n) {
      return at[2] >= from ? std::nan("") : inner(at, n);
    };
  if (j.contains("strides")) t.strides = integers(j["strides"]);
  t.offset = j.contains("offset") ? natural(j["offset"]) : 0;
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
    for (const Json& state : j["merge"]) {
      allow_only(state, "a state", {"out", "lse"});
      c.merge.push_back({numbers(state.at("out")), number(state.at("lse"))});
    }
    return c;
  }
  if (!c.machinery.empty() && !j.contains("sizes")) return c;

  const DType dtype = parse_dtype(j.at("dtype").get<std::string>());
  const Json& s = j.at("sizes");
  allow_only(s, "sizes", {"B", "H", "Hk", "Hv", "L", "S", "Sv", "E", "Ev", "pages"});
  const int64_t B = integer(s.at("B")), H = integer(s.at("H")), L = integer(s.at("L")),
                S = integer(s.at("S")), E = integer(s.at("E"));
  const int64_t Hk = integer(s, "Hk", H), Hv = integer(s, "Hv", Hk), Ev = integer(s, "Ev", E),
                Sv = integer(s, "Sv", S);
  const int64_t kv_batch = integer(s, "pages", B);
  c.q = parse_tensor(j.at("q"), dtype, {B, H, L, E});
  c.k = parse_tensor(j.at("k"), dtype, {kv_batch, Hk, S, E});
  c.v = parse_tensor(j.at("v"), dtype, {kv_batch, Hv, Sv, Ev});
  if (j.contains("mask")) parse_mask(j["mask"], c);
  c.causal = parse_causal(j.value("causal", "none"));
  if (j.contains("window")) {
    const std::vector<int64_t> sides = integers(j["window"], "window", 2);
    c.window = {sides[0], sides[1]};
  }
  if (j.contains("scale")) c.scale = number(j["scale"]);
  c.softcap = j.value("softcap", 0.0);
  if (j.contains("dropout")) {
    allow_only(j["dropout"], "dropout", {"p", "seed", "offset"});
    c.dropout = {j["dropout"].at("p").get<double>(), seed_value(j["dropout"], "seed", 1),
                 seed_value(j["dropout"], "offset", 0)};
  }
  for (const auto& [key, into] : {std::pair{"kv_lengths", &c.kv_lengths}, std::pair{"cu_q", &c.cu_q},
                                  std::pair{"cu_k", &c.cu_k}, std::pair{"pages", &c.pages}})
    if (j.contains(key)) *into = small_integers(j[key]);
  c.page_size = integer(j, "page_size", 0);
  if (c.page_size > 0 && (B == 0 ? !c.pages.empty() : c.pages.size() % static_cast<size_t>(B) != 0))
    throw CaseError(fmt::format("{} pages for a batch of {}", c.pages.size(), B));
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
