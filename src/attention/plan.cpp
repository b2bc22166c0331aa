#include "attention/backend.h"
#include "attention/refusal.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

Plan::Plan(const Backend& backend, std::shared_ptr<const BackendPlan> impl, CostModel cost,
           std::vector<Refusal> refusals, std::string key, std::string why)
    : backend_(&backend),
      impl_(std::move(impl)),
      cost_(cost),
      refusals_(std::move(refusals)),
      key_(std::move(key)),
      why_(std::move(why)) {}

std::string_view Plan::backend_name() const {
  return backend_->name();
}

size_t Plan::workspace_bytes() const {
  return impl_->workspace_bytes();
}

std::string to_text(const Refusal& r) {
  return fmt::format("{}: {} [{}]{}{}", r.backend, r.message, r.code, r.remedy.empty() ? "" : "; ", r.remedy);
}

std::string Plan::describe() const {
  const auto counted = [](int n, const char* one, const char* many) {
    return fmt::format("{} {}", n, n == 1 ? one : many);
  };
  std::string text = fmt::format(
      "{}: {}\nper forward: {}, {}, {} · reads and writes {}, of which {} are inputs and outputs · {} of "
      "intermediates\n",
      backend_->name(), backend_->description(), counted(cost_.kernels, "kernel", "kernels"),
      counted(cost_.copies, "copy", "copies"), counted(cost_.fills, "fill", "fills"),
      format_bytes(cost_.moved_bytes), format_bytes(cost_.min_bytes), format_bytes(cost_.intermediate_bytes));
  if (!why_.empty()) text += fmt::format("chosen: {}\n", why_);
  int n = 0;
  for (const std::string& step : impl_->steps()) text += fmt::format("{:>4}  {}\n", ++n, step);
  if (!refusals_.empty()) text += "refused\n";
  for (const Refusal& r : refusals_) text += fmt::format("      {}\n", to_text(r));
  return text;
}

}  // namespace attnscope
