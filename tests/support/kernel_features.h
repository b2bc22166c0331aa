#pragma once
// What a fused kernel is asked for at every head size: a request of a few tiles, and each feature on it.

#include "support/attention_case.h"

#include <functional>

namespace attnscope::testing {

// Grouped heads; rows and keys end inside a tile.
inline CaseSpec few_tiles(DType dtype, int64_t head_dim) {
  CaseSpec spec;
  spec.dtype = dtype;
  spec.B = 2;
  spec.Hq = 4;
  spec.Hk = spec.Hv = 2;
  spec.L = 150;
  spec.S = 270;
  spec.E = spec.Ev = head_dim;
  return spec;
}

struct Feature {
  const char* name;
  std::function<void(CaseSpec&)> change;
};
inline const Feature kFeatures[] = {
    {"plain", [](CaseSpec&) {}},
    {"causal", [](CaseSpec& s) { s.causal = CausalMode::kTopLeft; }},
    {"window",
     [](CaseSpec& s) {
       s.causal = CausalMode::kLowerRight;
       s.window = {70, 0};
     }},
    {"softcap", [](CaseSpec& s) { s.softcap = 3; }},
    {"dropout",
     [](CaseSpec& s) {
       s.dropout = 0.3;
       s.causal = CausalMode::kLowerRight;
     }},
    {"lengths", [](CaseSpec& s) { s.kv_lengths = s.poison_masked = true; }},
    {"packed",
     [](CaseSpec& s) {
       s.packed = true;
       s.B = 1;
       s.causal = CausalMode::kTopLeft;
     }},
    {"pages", [](CaseSpec& s) { s.paged = true; }},
    {"negative scale", [](CaseSpec& s) { s.scale = -0.2; }},
};

}  // namespace attnscope::testing
