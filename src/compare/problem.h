#pragma once
// The attention call that is compared: sizes and options as a person states them, before memory is taken.

#include "attnscope/attention.h"
#include "tensor/tensor.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::compare {

enum class Layout : uint8_t { kBhsd, kBshd };  // memory order; views are always [batch, heads, seq, head_dim]

struct Problem {
  int64_t batch = 1;
  int64_t heads = 8;     // Hq
  int64_t kv_heads = 8;  // Hk = Hv
  int64_t q_len = 1024;
  int64_t kv_len = 1024;
  int64_t head_dim = 64;
  int64_t value_dim = 64;
  DType dtype = DType::kF32;
  CausalMode causal = CausalMode::kTopLeft;
  Window window;
  MaskKind mask_kind = MaskKind::kNone;
  std::array<int64_t, 4> mask_sizes{1, 1, 1, 1};
  std::optional<double> scale;
  double softcap = 0.0;
  double dropout = 0.0;
  std::vector<int64_t> lengths;  // kv length per batch entry; empty: all
  Layout layout = Layout::kBhsd;
  bool train = false;  // a backward pass will follow: gradients and the LSE are wanted
  uint64_t seed = 1;
  int threads = 0;           // CPU; 0 = all the process may use
  int64_t memory_limit = 0;  // bytes of intermediates a variant may use; 0 = what is free
};

// The article's shape on a GPU, one that takes a few seconds on a CPU.
Problem default_problem(DeviceType device);

// "causal attention, batch 8, heads 16, length 1024, head_dim 64, bf16", and what else was asked for.
std::string describe(const Problem& problem);
// "--shape 8,16,1024,64 --dtype bf16 --causal": the options that state it.
std::string as_options(const Problem& problem);

// The formula's steps, a kernel each: scores, scale, mask (when there is one), softmax, values; and softcap
// and dropout where asked for. This is the guess for what is not fused.
int formula_kernels(const Problem& problem);

double mask_bytes(const Problem& problem);
// Bytes of q, k, v, mask and the output.
double tensor_bytes(const Problem& problem);

// The request with sizes and strides but no data: what a backend decides on. Checked by validate().
[[nodiscard]] Result<Request> request_shape(const Problem& problem);

// The tensors in host memory, filled from the seed: q, k, v normal, a bias normal, a bool mask that keeps
// 9 of 10 keys and always the first one, so that no row is empty by chance.
struct HostTensors {
  Tensor q, k, v, mask, lengths;
  Request request;  // over these
};
[[nodiscard]] Result<HostTensors> make_tensors(const Problem& problem);
// An output in the problem's layout, every byte set so that an unwritten element is NaN.
[[nodiscard]] Result<Tensor> make_output(const Problem& problem);

}  // namespace attnscope::compare
