// Calls attention through the installed library: plan once, look at what will run, run it, check one row by
// hand.
#include <attnscope/attention.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  using namespace attnscope;
  constexpr int64_t kHeads = 2, kLength = 5, kDim = 16;
  std::vector<float> q(kHeads * kLength * kDim), k(q.size()), v(q.size()), out(q.size(), NAN);
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = std::sin(0.37f * static_cast<float>(i));
    k[i] = std::cos(0.11f * static_cast<float>(i));
    v[i] = static_cast<float>(i % 7) - 3;
  }
  const std::array<int64_t, 4> shape{1, kHeads, kLength, kDim};
  Request request;
  request.q = TensorView::contiguous(q.data(), DType::kF32, shape);
  request.k = TensorView::contiguous(k.data(), DType::kF32, shape);
  request.v = TensorView::contiguous(v.data(), DType::kF32, shape);
  request.causal = CausalMode::kTopLeft;
  Outputs outputs;
  outputs.out = TensorView::contiguous(out.data(), DType::kF32, shape);

  const auto planned = plan(request);
  if (!planned) {
    std::fprintf(stderr, "%s\n%s\n", planned.error().message.c_str(), planned.error().remedy.c_str());
    return 1;
  }
  std::printf("%s\n", (*planned)->describe().c_str());
  if (const Status ran = run(**planned, request, outputs); !ran) {
    std::fprintf(stderr, "%s\n", ran.error().message.c_str());
    return 1;
  }
  // The first query sees only the first key, so its output is exactly that key's value.
  for (int64_t d = 0; d < kDim; ++d) {
    if (out[static_cast<size_t>(d)] != v[static_cast<size_t>(d)]) return 1;
  }
  std::puts("first row equals the first value: right");
  return 0;
}
