#include "backends/cuda_decode/request.h"

#include "backends/cuda_decode/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace attnscope::decode {
namespace {

constexpr int64_t kMaxIndex = int64_t{1} << 30;  // keys, rows and blocks are ints in the kernels

}  // namespace

void refuse_features(const Request& r, std::string_view elsewhere, Refusals& all) {
  const std::string remedy(elsewhere);
  if (r.mask_kind != MaskKind::kNone) all.add("mask", "takes no bool mask or bias", remedy);
  if (r.dropout.p > 0) all.add("dropout", fmt::format("dropout {:g} is not built in", r.dropout.p), remedy);
  if (r.lengths.packed()) all.add("packed-sequences", "takes no packed sequences", remedy);
  if (r.sinks.data != nullptr && r.sinks.dtype == DType::kF64)
    all.add("sinks", "takes sinks in f32, bf16 and f16; these are f64", "convert them");
  if (!r.score_program.empty()) all.add("score-program", "score programs are not implemented");
}

void refuse_extent(const Request& r, Refusals& all) {
  if (r.heads() == 0 || r.kv_len() == 0 || r.head_dim() == 0 || r.value_dim() == 0)
    all.add("empty", "needs at least one head, one key and one column", "use math");
  const int64_t rows = r.batch() * r.heads() * r.q_len();
  if (std::max(r.kv_len(), rows) > kMaxIndex)
    all.add("too-long", fmt::format("{} keys or {} rows are more than {}", r.kv_len(), rows, kMaxIndex),
            "split the batch");
}

int64_t output_bytes(const Request& r) {
  const int64_t rows = r.batch() * r.heads() * r.q_len();
  return rows * (r.value_dim() * 2 + (r.wants.lse ? 4 : 0));
}

double paged_bytes(const Request& r) {
  const auto rows = static_cast<double>(r.batch() * r.heads() * r.q_len() * r.head_dim());
  return cache_bytes(r) + rows * 2 + static_cast<double>(output_bytes(r));
}

}  // namespace attnscope::decode
