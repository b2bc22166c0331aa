#pragma once
// Changes JSON as JSON: what a mutation of bytes rarely reaches. Values become numbers at the ends of their
// types or values of other places, entries are repeated, moved and removed, one member changes in many
// objects.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace attnscope::fuzz {

using Json = nlohmann::ordered_json;
using Random = std::minstd_rand;

inline size_t below(Random& random, size_t n) {
  return n == 0 ? 0 : static_cast<size_t>(random()) % n;
}

inline Json extreme(Random& random) {
  static const Json kValues[] = {0,
                                 1,
                                 -1,
                                 2147483647,
                                 -2147483648LL,
                                 4294967295LL,
                                 1e15,
                                 -1e15,
                                 2e15,
                                 9223372036854775807LL,
                                 INT64_MIN,
                                 UINT64_MAX,
                                 1LL << 53,
                                 1LL << 62,
                                 1e22,
                                 1e308,
                                 -1e308,
                                 1e-320,
                                 0.0005,
                                 "",
                                 "x",
                                 nullptr,
                                 true,
                                 Json::array(),
                                 "\x1b[31m\0|<b>",
                                 "9223372036854775807",
                                 "NaN"};
  return kValues[below(random, std::size(kValues))];
}

inline void collect(Json& at, std::vector<Json*>& scalars, std::vector<Json*>& lists) {
  if (at.is_array()) lists.push_back(&at);
  if (!at.is_structured())
    scalars.push_back(&at);
  else
    for (Json& inner : at) collect(inner, scalars, lists);
}

// Every object of a list that has the member gets the same value.
inline void change_everywhere(Json& list, Random& random) {
  const Json& model = list[below(random, list.size())];
  if (!model.is_object() || model.empty()) return;
  const Json::iterator member =
      std::next(const_cast<Json&>(model).begin(), static_cast<ptrdiff_t>(below(random, model.size())));
  const std::string key = member.key();
  const Json value = extreme(random);
  for (Json& entry : list)
    if (entry.is_object() && entry.contains(key) && !entry[key].is_structured()) entry[key] = value;
}

inline void change_list(Json& list, Random& random) {
  if (list.empty()) return;
  const auto at = static_cast<ptrdiff_t>(below(random, list.size()));
  const Json entry = list[static_cast<size_t>(at)];
  switch (below(random, 4)) {
    case 0: list.erase(list.begin() + at); break;
    case 1: std::swap(list[static_cast<size_t>(at)], list[below(random, list.size())]); break;
    case 2: change_everywhere(list, random); break;
    default:
      for (size_t copies = 1 + below(random, 8); copies > 0; --copies) list.push_back(entry);
  }
}

inline void mutate(Json& document, Random& random) {
  for (size_t changes = 1 + below(random, 6); changes > 0; --changes) {
    std::vector<Json*> scalars, lists;
    collect(document, scalars, lists);
    if (!lists.empty() && below(random, 3) == 0)
      change_list(*lists[below(random, lists.size())], random);
    else if (!scalars.empty()) {
      const Json value = below(random, 4) == 0 ? *scalars[below(random, scalars.size())] : extreme(random);
      *scalars[below(random, scalars.size())] = value;
    }
  }
}

// For LLVMFuzzerCustomMutator: half of the mutations are of JSON, where the input is JSON.
inline size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Random random(seed);
  if (below(random, 2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // What lies deeper is left out: everything here follows nesting by recursion.
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth < 100; };
  Json document = Json::parse(text, shallow, false);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  mutate(document, random);
  const std::string changed = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(changed.begin(), changed.end(), data);
  return changed.size();
}

}  // namespace attnscope::fuzz
