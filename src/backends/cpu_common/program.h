#pragma once
// An unfused backend's plan as data: operations made of kernels, each with what it reads, writes and
// computes. describe(), the cost model and the events of a run all come from this one list, so they cannot
// disagree.

#include "attention/backend.h"
#include "attention/geometry.h"
#include "backends/cpu_common/workspace.h"
#include "base/event_sink.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cpu {

// A tensor a step works on: one of the request's, or a region of the workspace.
struct Operand {
  enum class From : uint8_t { kNone, kQ, kK, kV, kMask, kOut, kAppendK, kAppendV, kScratch };
  From from = From::kNone;
  size_t offset = 0;  // kScratch: bytes into the workspace
  TensorView view;    // shape, strides and dtype; data is filled in per call
  int64_t bytes() const { return view.numel() * static_cast<int64_t>(dtype_size(view.dtype)); }
};

// What a kernel sees of one call.
struct RunContext {
  const Request& request;
  const Outputs& outputs;
  const Geometry& geometry;
  std::byte* workspace;
  int threads;
  TensorView at(const Operand& operand) const;
};

struct Kernel {
  std::string_view name;  // stable: from stable_name()
  EventKind kind = EventKind::kKernel;
  int64_t bytes_read = 0, bytes_written = 0, flops = 0;
  std::string note;  // for describe()
  std::function<Status(const RunContext&)> execute;
  // What runs where only the call decides (the output's strides are no part of a plan); none: `name`.
  std::function<std::string_view(const RunContext&)> name_of_call = {};
};

struct Operation {
  std::string_view name;  // "attnscope::matmul"
  std::vector<Operand> inputs;
  std::vector<Kernel> kernels;
};

struct Program {
  std::vector<Operation> operations;
  WorkspaceLayout workspace;
  int threads = 1;
  CostModel cost;  // flops and min_bytes set by the builder; the rest summed from the kernels
};

// The one copy of a name that lives as long as the process: event names outlast plans.
std::string_view stable_name(const std::string& name);
// Dense [sizes…] of dtype in the workspace.
Operand scratch(WorkspaceLayout& layout, DType dtype, std::array<int64_t, 4> sizes);
// The same bytes of an operand that is dead, seen with another dtype or shape (must not be larger).
Operand reuse(const Operand& dead, DType dtype, std::array<int64_t, 4> sizes);
Operand input(Operand::From from, const TensorView& view);

std::shared_ptr<const BackendPlan> make_program_plan(Program program);

}  // namespace attnscope::cpu
