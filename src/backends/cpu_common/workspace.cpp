#include "backends/cpu_common/workspace.h"

#include "base/event_sink.h"

#include <fmt/format.h>

#include <utility>

namespace attnscope::cpu {
namespace {

EventInfo memory_event(EventKind kind, const void* address, size_t bytes) {
  EventInfo info{kind == EventKind::kAllocation ? "attnscope::allocate" : "attnscope::free", kind};
  info.bytes_written = static_cast<int64_t>(bytes);
  info.address = reinterpret_cast<uintptr_t>(address);
  return info;
}

}  // namespace

size_t WorkspaceLayout::reserve(double bytes) {
  const auto offset = static_cast<size_t>(total_ < 1e18 ? total_ : 1e18);
  total_ += bytes < 1e18 ? static_cast<double>(align_up(static_cast<size_t>(bytes))) : bytes;
  return offset;
}

Result<Workspace> Workspace::acquire(const RunOptions& options, size_t bytes) {
  Workspace workspace;
  if (options.workspace != nullptr) {
    if (options.workspace_bytes < bytes)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the workspace holds {} bytes, the plan needs {}", options.workspace_bytes, bytes),
          "ask the plan for workspace_bytes()");
    if (reinterpret_cast<uintptr_t>(options.workspace) % kWorkspaceAlignment != 0)
      return fail(ErrorCode::kInvalidArgument, "the workspace is not aligned to 64 bytes");
    workspace.base_ = static_cast<std::byte*>(options.workspace);
    return workspace;
  }
  if (bytes == 0) return workspace;
  ATTNSCOPE_ASSIGN(workspace.buffer_, HostBuffer::allocate(bytes));
  workspace.base_ = static_cast<std::byte*>(workspace.buffer_.data());
  workspace.reported_ = bytes;
  report_instant(memory_event(EventKind::kAllocation, workspace.base_, bytes));
  return workspace;
}

Workspace::Workspace(Workspace&& other) noexcept
    : buffer_(std::move(other.buffer_)),
      base_(std::exchange(other.base_, nullptr)),
      reported_(std::exchange(other.reported_, 0)) {}

Workspace::~Workspace() {
  if (reported_ > 0) report_instant(memory_event(EventKind::kFree, base_, reported_));
}

}  // namespace attnscope::cpu
