#pragma once
// Makes a failing attention case small: tries simpler variants as long as they still fail.

#include "support/attention_case.h"

#include <functional>
#include <vector>

namespace attnscope::testing {

// A case that make sense: heads divide, paged and packed exclude each other, and so on.
inline bool consistent(const CaseSpec& s) {
  const bool heads = s.Hk > 0 && s.Hv > 0 && s.Hq % s.Hk == 0 && s.Hq % s.Hv == 0;
  const bool lengths = !(s.packed && (s.kv_lengths || s.paged)) && !(s.packed && s.B != 1);
  return heads && lengths && (!s.append || s.paged) && (!s.poison_masked || (s.kv_lengths && !s.paged));
}

// Simpler neighbours of a case, the boldest first.
inline std::vector<CaseSpec> simpler(const CaseSpec& s) {
  std::vector<CaseSpec> all;
  const auto with = [&](auto change) {
    CaseSpec other = s;
    change(other);
    if (consistent(other)) all.push_back(other);
  };
  for (int64_t CaseSpec::* size : {&CaseSpec::B, &CaseSpec::L, &CaseSpec::S, &CaseSpec::E, &CaseSpec::Ev}) {
    const int64_t value = s.*size;
    for (const int64_t smaller : {int64_t{1}, value / 2, value - 1})
      if (smaller >= 1 && smaller < value) with([&](CaseSpec& c) { c.*size = smaller; });
  }
  if (s.Hq > 1) {
    with([](CaseSpec& c) { c.Hq = c.Hk = c.Hv = 1; });
    with([](CaseSpec& c) { c.Hk = c.Hv = c.Hq; });
    with([](CaseSpec& c) { c.Hv = c.Hk; });
  }
  if (s.mask != MaskSpec::kNone) with([](CaseSpec& c) { c.mask = MaskSpec::kNone; });
  if (s.causal != CausalMode::kNone) with([](CaseSpec& c) { c.causal = CausalMode::kNone; });
  if (s.window.active()) with([](CaseSpec& c) { c.window = {}; });
  if (s.layout != Layout::kDense) with([](CaseSpec& c) { c.layout = Layout::kDense; });
  if (s.scale) with([](CaseSpec& c) { c.scale.reset(); });
  if (s.softcap > 0) with([](CaseSpec& c) { c.softcap = 0; });
  if (s.dropout > 0) with([](CaseSpec& c) { c.dropout = 0; });
  if (s.append) with([](CaseSpec& c) { c.append = false; });
  if (s.poison_masked) with([](CaseSpec& c) { c.poison_masked = false; });
  with([&](CaseSpec& c) { c.kv_lengths = c.paged = c.packed = c.append = c.poison_masked = false; });
  if (!s.kv_lengths && !s.paged && !s.packed) all.pop_back();  // that was no change
  if (s.dtype != DType::kF32) with([](CaseSpec& c) { c.dtype = DType::kF32; });
  return all;
}

// The smallest case found that still fails; `fails(start)` must be true.
inline CaseSpec shrink(CaseSpec start, const std::function<bool(const CaseSpec&)>& fails) {
  for (bool progress = true; progress;) {
    progress = false;
    for (const CaseSpec& candidate : simpler(start))
      if (fails(candidate)) {
        start = candidate;
        progress = true;
        break;
      }
  }
  return start;
}

}  // namespace attnscope::testing
