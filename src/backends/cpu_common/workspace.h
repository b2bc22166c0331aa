#pragma once
// The memory of one call: the caller's when it brought enough, else a block obtained, reported and given
// back.

#include "attnscope/attention.h"
#include "tensor/tensor.h"

#include <cstddef>

namespace attnscope::cpu {

inline constexpr size_t kWorkspaceAlignment = 64;
constexpr size_t align_up(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// Offsets handed out while a plan is made. A region can be taken over once its content is dead.
class WorkspaceLayout {
 public:
  size_t reserve(double bytes);  // double: sizes beyond 64 bits are refused for memory, not wrapped
  double total() const { return total_; }

 private:
  double total_ = 0;
};

class Workspace {
 public:
  // kOutOfMemory when the block cannot be had; kInvalidArgument when the caller's is too small.
  [[nodiscard]] static Result<Workspace> acquire(const RunOptions& options, size_t bytes);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&&) = delete;
  std::byte* base() const { return base_; }

 private:
  Workspace() = default;
  HostBuffer buffer_;
  std::byte* base_ = nullptr;
  size_t reported_ = 0;
};

}  // namespace attnscope::cpu
