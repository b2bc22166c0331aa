// C tile by C tile: each task owns a block of kRows × cols of one matrix of the stack, walks k in steps of
// kDepth, widens the block of A row-major and the block of B into register-wide panels, and hands register
// tiles to the kernel of the instruction set.
//
//   scratch per thread: A block kRows × kDepth · B panels kDepth × cols · C block kRows × cols · staging of B
//   columns

#include "backends/cpu_common/matmul_blocked.h"

#include "backends/cpu_common/row_kernels.h"
#include "backends/cpu_common/threads.h"
#include "backends/cpu_common/workspace.h"

#include <algorithm>
#include <cstring>

namespace attnscope::cpu {
namespace {

constexpr int64_t kRows = 96;  // a multiple of every tile_rows
constexpr int64_t kDepth = 256;
constexpr int64_t kPanels = 4;

const std::byte* element(const void* base, DType dtype, int64_t offset) {
  return static_cast<const std::byte*>(base) + offset * static_cast<int64_t>(dtype_size(dtype));
}

template <typename T>
class BlockedMatmul final : public Matmul {
 public:
  BlockedMatmul(const MatmulShape& shape, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                int threads)
      : s_(shape), a_(a), b_(b), c_(c), threads_(threads), rows_(row_kernels<T>()) {
    cols_ = kPanels * rows_.tile_cols;
  }

  Status run(const void* a, const void* b, void* c, std::byte* scratch) const override {
    const int64_t row_blocks = (s_.m + kRows - 1) / kRows, col_blocks = (s_.n + cols_ - 1) / cols_;
    const int64_t tasks = s_.batch * s_.heads * row_blocks * col_blocks;
    parallel_tasks(threads_, tasks, [&](int64_t task, int thread) {
      const int64_t col = task % col_blocks, row = task / col_blocks % row_blocks;
      const int64_t head = task / col_blocks / row_blocks % s_.heads,
                    batch = task / col_blocks / row_blocks / s_.heads;
      const int64_t group = s_.heads / s_.b_heads;
      block(element(a, a_.dtype, batch * a_.batch + head * a_.head),
            element(b, b_.dtype, batch * b_.batch + head / group * b_.head),
            const_cast<std::byte*>(element(c, c_.dtype, batch * c_.batch + head * c_.head)), row * kRows,
            col * cols_, reinterpret_cast<T*>(scratch + static_cast<size_t>(thread) * thread_bytes()));
    });
    return {};
  }
  size_t scratch_bytes() const override { return thread_bytes() * static_cast<size_t>(threads_); }
  std::string kernel_name() const override {
    return std::string("gemm_") + std::string(dtype_name(a_.dtype));
  }

 private:
  size_t thread_bytes() const {
    const auto elements = kRows * kDepth + 2 * kDepth * cols_ + kRows * cols_;
    return align_up(static_cast<size_t>(elements) * sizeof(T));
  }

  void block(const void* a, const void* b, void* c, int64_t m0, int64_t n0, T* scratch) const {
    T* a_block = scratch;
    T* b_panels = a_block + kRows * kDepth;
    T* staging = b_panels + kDepth * cols_;
    T* c_block = staging + kDepth * cols_;
    const int64_t m = std::min(kRows, s_.m - m0), n = std::min<int64_t>(cols_, s_.n - n0);
    const int64_t m_tiles = (m + rows_.tile_rows - 1) / rows_.tile_rows;
    const int64_t n_tiles = (n + rows_.tile_cols - 1) / rows_.tile_cols;
    std::memset(c_block, 0, static_cast<size_t>(m_tiles * rows_.tile_rows * cols_) * sizeof(T));
    for (int64_t k0 = 0; k0 < s_.k; k0 += kDepth) {
      const int64_t k = std::min(kDepth, s_.k - k0);
      for (int64_t r = 0; r < m; ++r)
        rows_.load(element(a, a_.dtype, (m0 + r) * a_.row + k0 * a_.col), a_.dtype, a_.col, k,
                   a_block + r * kDepth);
      for (int64_t r = m; r < m_tiles * rows_.tile_rows; ++r)
        std::memset(a_block + r * kDepth, 0, static_cast<size_t>(k) * sizeof(T));
      for (int64_t t = 0; t < n_tiles; ++t) {
        T* panel = b_panels + t * kDepth * rows_.tile_cols;
        pack(b, n0 + t * rows_.tile_cols, std::min<int64_t>(rows_.tile_cols, n - t * rows_.tile_cols), k0, k,
             panel, staging);
        for (int64_t r = 0; r < m_tiles; ++r)
          rows_.tile(k, a_block + r * rows_.tile_rows * kDepth, kDepth, panel,
                     c_block + r * rows_.tile_rows * cols_ + t * rows_.tile_cols, cols_);
      }
    }
    for (int64_t r = 0; r < m; ++r)
      rows_.store(c_block + r * cols_, n,
                  const_cast<std::byte*>(element(c, c_.dtype, (m0 + r) * c_.row + n0 * c_.col)), c_.dtype,
                  c_.col);
  }

  // Columns n … n+cols−1 of B, k0 … k0+k−1, as panel[k][tile_cols], zero to the right.
  void pack(const void* b, int64_t n, int64_t cols, int64_t k0, int64_t k, T* panel, T* staging) const {
    if (b_.row == 1 && b_.col != 1) {
      for (int64_t j = 0; j < cols; ++j)
        rows_.load(element(b, b_.dtype, (n + j) * b_.col + k0), b_.dtype, 1, k, staging + j * kDepth);
      rows_.transpose(staging, kDepth, cols, k, panel);
      return;
    }
    for (int64_t p = 0; p < k; ++p) {
      T* row = panel + p * rows_.tile_cols;
      rows_.load(element(b, b_.dtype, (k0 + p) * b_.row + n * b_.col), b_.dtype, b_.col, cols, row);
      std::fill(row + cols, row + rows_.tile_cols, T{0});
    }
  }

  MatmulShape s_;
  MatrixLayout a_, b_, c_;
  int threads_;
  const RowKernels<T>& rows_;
  int64_t cols_;
};

}  // namespace

std::shared_ptr<const Matmul> make_blocked_matmul(const MatmulShape& shape, const MatrixLayout& a,
                                                  const MatrixLayout& b, const MatrixLayout& c, int threads) {
  if (a.dtype == DType::kF64) return std::make_shared<BlockedMatmul<double>>(shape, a, b, c, threads);
  return std::make_shared<BlockedMatmul<float>>(shape, a, b, c, threads);
}

}  // namespace attnscope::cpu
