#include "backends/cpu_common/program.h"

#include "base/text.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

namespace attnscope::cpu {
namespace {

std::string shape_text(const TensorView& v) {
  std::string text = fmt::format("{} [", dtype_name(v.dtype));
  for (int d = 0; d < v.rank; ++d) text += fmt::format("{}{}", d == 0 ? "" : ",", v.size(d));
  return text + "]";
}

class ProgramPlan final : public BackendPlan {
 public:
  explicit ProgramPlan(Program program) : program_(std::move(program)) {
    CostModel& cost = program_.cost;
    cost.moved_bytes = 0;
    cost.kernels = cost.copies = cost.fills = 0;
    for (const Operation& operation : program_.operations)
      for (const Kernel& kernel : operation.kernels) {
        cost.moved_bytes += static_cast<double>(kernel.bytes_read + kernel.bytes_written);
        ++(kernel.kind == EventKind::kCopy   ? cost.copies
           : kernel.kind == EventKind::kFill ? cost.fills
                                             : cost.kernels);
      }
    cost.intermediate_bytes = program_.workspace.total();
  }

  Status run(const Request& request, const Outputs& outputs, const RunOptions& options) const override {
    ATTNSCOPE_ASSIGN(const Workspace workspace, Workspace::acquire(options, workspace_bytes()));
    const Geometry geometry(request);
    const RunContext context{request, outputs, geometry, workspace.base(), program_.threads};
    for (const Operation& operation : program_.operations) {
      const TensorView* inputs[4] = {};
      EventInfo info{operation.name, EventKind::kOperator};
      for (const Operand& operand : operation.inputs)
        if (info.input_count < 4) inputs[info.input_count++] = &operand.view;
      info.inputs = inputs;
      const EventScope operator_scope(info);
      for (const Kernel& kernel : operation.kernels) {
        const bool heard = g_event_sink.load(std::memory_order_acquire) != nullptr;
        info.name = heard && kernel.name_of_call ? kernel.name_of_call(context) : kernel.name;
        info.kind = kernel.kind;
        info.bytes_read = kernel.bytes_read;
        info.bytes_written = kernel.bytes_written;
        info.flops = kernel.flops;
        const EventScope kernel_scope(info);
        ATTNSCOPE_TRY(kernel.execute(context));
      }
    }
    return {};
  }
  size_t workspace_bytes() const override { return static_cast<size_t>(program_.workspace.total()); }
  CostModel cost() const override { return program_.cost; }

  std::vector<std::string> steps() const override {
    std::vector<std::string> lines;
    for (const Operation& operation : program_.operations)
      for (const Kernel& kernel : operation.kernels) {
        std::string shapes;
        for (const Operand& operand : operation.inputs) shapes += "  " + shape_text(operand.view);
        const char* what = kernel.kind == EventKind::kCopy   ? "copy"
                           : kernel.kind == EventKind::kFill ? "fill"
                                                             : "kernel";
        lines.push_back(fmt::format("{:<6} {:<24} {:<22}{}  reads {}, writes {}{}{}", what, operation.name,
                                    kernel.name, shapes, format_bytes(static_cast<double>(kernel.bytes_read)),
                                    format_bytes(static_cast<double>(kernel.bytes_written)),
                                    kernel.note.empty() ? "" : "  — ", kernel.note));
      }
    return lines;
  }

 private:
  Program program_;
};

}  // namespace

TensorView RunContext::at(const Operand& operand) const {
  TensorView view = operand.view;
  switch (operand.from) {
    case Operand::From::kNone: view.data = nullptr; break;
    case Operand::From::kQ: view.data = request.q.data; break;
    case Operand::From::kK: view.data = request.k.data; break;
    case Operand::From::kV: view.data = request.v.data; break;
    case Operand::From::kMask: view.data = request.mask.data; break;
    case Operand::From::kOut: return outputs.out;
    case Operand::From::kAppendK: view.data = request.paging.append_k.data; break;
    case Operand::From::kAppendV: view.data = request.paging.append_v.data; break;
    case Operand::From::kScratch: view.data = workspace + operand.offset; break;
  }
  return view;
}

std::string_view stable_name(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return *names.insert(name).first;
}

Operand scratch(WorkspaceLayout& layout, DType dtype, std::array<int64_t, 4> sizes) {
  Operand operand{Operand::From::kScratch, 0, TensorView::contiguous(nullptr, dtype, sizes)};
  double bytes = static_cast<double>(dtype_size(dtype));
  for (const int64_t size : sizes) bytes *= static_cast<double>(size);
  operand.offset = layout.reserve(bytes);
  return operand;
}

Operand reuse(const Operand& dead, DType dtype, std::array<int64_t, 4> sizes) {
  return {dead.from, dead.offset, TensorView::contiguous(nullptr, dtype, sizes)};
}

Operand input(Operand::From from, const TensorView& view) {
  Operand operand{from, 0, view};
  operand.view.data = nullptr;
  return operand;
}

std::shared_ptr<const BackendPlan> make_program_plan(Program program) {
  return std::make_shared<const ProgramPlan>(std::move(program));
}

}  // namespace attnscope::cpu
