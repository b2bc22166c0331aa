#pragma once
// Collects the reasons of a backend, all of them.

#include "attnscope/attention.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnscope {

class Refusals {
 public:
  explicit Refusals(std::string_view backend) : backend_(backend) {}
  void add(std::string_view code, std::string message, std::string remedy = {}) {
    list_.push_back({backend_, std::string(code), std::move(message), std::move(remedy)});
  }
  bool empty() const { return list_.empty(); }
  std::vector<Refusal> take() { return std::move(list_); }

 private:
  std::string backend_;
  std::vector<Refusal> list_;
};

// "flash: head dim 260 is above 256 [head-dim-too-large]; use math"
std::string to_text(const Refusal& refusal);

}  // namespace attnscope
