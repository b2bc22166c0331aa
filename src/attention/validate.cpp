#include "attention/validate.h"

#include "tensor/tensor.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace attnscope {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 59;  // of a view, and the distance of its last one
constexpr int64_t kMostWidth = int64_t{1}
                               << 31;  // of a head: what a tile of rows takes is still counted in 64 bits
// Backends compute softcap · tanh(score / softcap) in f32: beyond these, one of the two is no f32 number.
constexpr double kLeastSoftcap = 1e-30, kMostSoftcap = 1e30;

std::string sizes_text(const TensorView& v) {
  std::string text = "[";
  for (int d = 0; d < v.rank; ++d) text += fmt::format("{}{}", d == 0 ? "" : ",", v.size(d));
  return text + "]";
}

template <typename... Args>
tl::unexpected<Error> invalid(std::string remedy, fmt::format_string<Args...> message, Args&&... args) {
  return fail(ErrorCode::kInvalidArgument, fmt::format(message, std::forward<Args>(args)...),
              std::move(remedy));
}

Status check_view(const char* name, const TensorView& v, const Request& request) {
  if (v.rank < 1 || v.rank > 4) return invalid("", "{} has rank {}", name, v.rank);
  int64_t elements = 1, extent = 0;
  for (int d = 0; d < v.rank; ++d) {
    if (v.size(d) < 0) return invalid("", "{} has a negative size: {}", name, sizes_text(v));
    if (v.size(d) > 1 && v.stride(d) < 0)
      return invalid("pass a view with strides ≥ 0", "{} has stride {} in dimension {}", name, v.stride(d),
                     d);
    int64_t span = 0;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(v.size(d), 1), &elements) ||
        (v.size(d) > 1 && (__builtin_mul_overflow(v.size(d) - 1, v.stride(d), &span) ||
                           __builtin_add_overflow(extent, span, &extent))) ||
        elements > kMostElements || extent > kMostElements)
      return invalid("", "{} {} does not fit the address space", name, sizes_text(v));
  }
  if (reinterpret_cast<uintptr_t>(v.data) % dtype_size(v.dtype) != 0)
    return invalid("copy it", "{} does not begin on an element of {}: it lies at {}", name,
                   dtype_name(v.dtype), static_cast<const void*>(v.data));
  if (!(v.device == request.q.device)) return invalid("move it", "{} is on another device than q", name);
  return {};
}

Status check_qkv(const Request& r) {
  for (const auto& [name, v] : {std::pair{"q", &r.q}, std::pair{"k", &r.k}, std::pair{"v", &r.v}}) {
    if (v->rank != 4)
      return invalid("use [batch, heads, seq, head_dim]", "{} has rank {}, not 4", name, v->rank);
    ATTNSCOPE_TRY(check_view(name, *v, r));
    if (!dtype_is_float(v->dtype))
      return invalid("", "{} is {}, not a float type", name, dtype_name(v->dtype));
  }
  if (r.q.dtype != r.k.dtype || r.q.dtype != r.v.dtype)
    return invalid("convert them to one dtype", "q is {}, k is {}, v is {}: they must agree",
                   dtype_name(r.q.dtype), dtype_name(r.k.dtype), dtype_name(r.v.dtype));
  if (r.q.size(3) != r.k.size(3))
    return invalid("", "head_dim of q is {}, of k {}: they must agree", r.q.size(3), r.k.size(3));
  if (r.q.size(3) > kMostWidth || r.v.size(3) > kMostWidth)
    return invalid("", "head_dim is {}, of v {}: above {}", r.q.size(3), r.v.size(3), kMostWidth);
  if (r.k.size(2) != r.v.size(2))
    return invalid("", "k holds {} keys, v holds {} values: they must agree", r.k.size(2), r.v.size(2));
  if (r.k.size(0) != r.v.size(0))
    return invalid("", "batch of k is {}, of v {}: they must agree", r.k.size(0), r.v.size(0));
  if (!r.paging.active() && r.q.size(0) != r.k.size(0))
    return invalid("expand k and v with stride 0 first", "batch of q is {}, of k and v {}: they must agree",
                   r.q.size(0), r.k.size(0));
  for (const auto& [name, v] : {std::pair{"k", &r.k}, std::pair{"v", &r.v}}) {
    const int64_t heads = v->size(1);
    if (r.q.size(1) == 0 && heads >= 0) continue;
    if (heads == 0 || r.q.size(1) % heads != 0)
      return invalid("q heads must be a multiple of k and v heads", "q has {} heads, {} has {}", r.q.size(1),
                     name, heads);
  }
  return {};
}

Status check_mask(const Request& r) {
  const TensorView& m = r.mask;
  if (r.mask_kind == MaskKind::kNone) {
    if (m.data == nullptr) return {};
    return invalid("say kBool or kBias, or leave the mask out", "a mask is given, but its kind is none");
  }
  ATTNSCOPE_TRY(check_view("mask", m, r));
  if (r.mask_kind == MaskKind::kBool && m.dtype != DType::kBool)
    return invalid("pass it as a bias, or convert it to bool", "a bool mask has dtype {}",
                   dtype_name(m.dtype));
  if (r.mask_kind == MaskKind::kBias && !dtype_is_float(m.dtype))
    return invalid("use f16, bf16, f32 or f64", "a bias has dtype {}", dtype_name(m.dtype));
  const int64_t scores[4] = {r.batch(), r.heads(), r.q_len(), r.kv_len()};
  for (int d = 0; d < m.rank; ++d)
    if (m.size(d) != 1 && m.size(d) != scores[4 - m.rank + d])
      return invalid(
          "each dimension, aligned at the right, must be 1 or that of the scores (a [B,L,S] mask binds B to "
          "heads: "
          "insert a dimension)",
          "mask {} does not broadcast to the scores [{},{},{},{}]", sizes_text(m), scores[0], scores[1],
          scores[2], scores[3]);
  return {};
}

Status check_scalars(const Request& r) {
  if (r.scale && !std::isfinite(*r.scale)) return invalid("", "scale is {}, not finite", *r.scale);
  if (r.softcap != 0 && !(r.softcap >= kLeastSoftcap && r.softcap <= kMostSoftcap))
    return invalid("0 turns it off", "softcap is {}; it must be 0, or from {:g} to {:g}", r.softcap,
                   kLeastSoftcap, kMostSoftcap);
  if (!(r.dropout.p >= 0.0 && r.dropout.p <= 1.0))
    return invalid("", "dropout is {}; it must be in [0, 1]", r.dropout.p);
  if (r.window.left < -1 || r.window.right < -1)
    return invalid("-1 is unbounded", "window ({}, {}): both must be ≥ -1", r.window.left, r.window.right);
  if (r.limits.threads < 0 || r.limits.sm_count < 0 || r.limits.splits < 0 || r.limits.memory_bytes < 0)
    return invalid("0 means no limit", "limits must be ≥ 0");
  return {};
}

bool is_index(const TensorView& v) {
  return v.dtype == DType::kI32 || v.dtype == DType::kI64;
}

Status check_lengths(const Request& r) {
  const Lengths& l = r.lengths;
  if (l.has_kv_lengths()) {
    ATTNSCOPE_TRY(check_view("kv_lengths", l.kv_lengths, r));
    if (!is_index(l.kv_lengths) || l.kv_lengths.rank != 1 || l.kv_lengths.size(0) != r.batch())
      return invalid("", "kv_lengths must be i32 or i64 [{}]; it is {} {}", r.batch(),
                     dtype_name(l.kv_lengths.dtype), sizes_text(l.kv_lengths));
  }
  if ((l.cu_q.data != nullptr) != (l.cu_k.data != nullptr))
    return invalid("", "packed sequences need both cu_q and cu_k");
  if (!l.packed()) return {};
  ATTNSCOPE_TRY(check_view("cu_q", l.cu_q, r));
  ATTNSCOPE_TRY(check_view("cu_k", l.cu_k, r));
  if (!is_index(l.cu_q) || !is_index(l.cu_k) || l.cu_q.rank != 1 || l.cu_k.rank != 1 ||
      l.cu_q.size(0) != l.cu_k.size(0) || l.cu_q.size(0) < 1)
    return invalid("", "cu_q and cu_k must be i32 or i64 [N+1] of one size; they are {} {} and {} {}",
                   dtype_name(l.cu_q.dtype), sizes_text(l.cu_q), dtype_name(l.cu_k.dtype),
                   sizes_text(l.cu_k));
  if (l.has_kv_lengths() || r.paging.active())
    return invalid("use one of them", "packed sequences cannot be combined with kv_lengths or pages");
  if (r.batch() != 1) return invalid("", "packed sequences need batch 1; it is {}", r.batch());
  return {};
}

Status check_paging(const Request& r) {
  const Paging& p = r.paging;
  if (!p.active()) {
    if (p.append_k.data != nullptr || p.append_v.data != nullptr)
      return invalid("", "an append needs a block table");
    return {};
  }
  ATTNSCOPE_TRY(check_view("block_table", p.block_table, r));
  if (p.block_table.dtype != DType::kI32 || p.block_table.rank != 2 || p.block_table.size(0) != r.q.size(0))
    return invalid("", "block_table must be i32 [{}, max_pages]; it is {} {}", r.q.size(0),
                   dtype_name(p.block_table.dtype), sizes_text(p.block_table));
  if (p.page_size < 1 || r.k.size(2) != p.page_size)
    return invalid("", "page_size is {}, the cache's pages hold {}", p.page_size, r.k.size(2));
  int64_t keys = 0;
  if (__builtin_mul_overflow(p.block_table.size(1), p.page_size, &keys) || keys > kMostElements)
    return invalid("", "{} pages of {} keys do not fit the address space", p.block_table.size(1),
                   p.page_size);
  if (!r.lengths.has_kv_lengths()) return invalid("", "a paged cache needs kv_lengths");
  if ((p.append_k.data != nullptr) != (p.append_v.data != nullptr))
    return invalid("", "an append needs both append_k and append_v");
  if (p.append_k.data == nullptr) return {};
  for (const auto& [name, v, cache] :
       {std::tuple{"append_k", &p.append_k, &r.k}, std::tuple{"append_v", &p.append_v, &r.v}}) {
    ATTNSCOPE_TRY(check_view(name, *v, r));
    if (v->rank != 4 || v->dtype != cache->dtype || v->size(0) != r.q.size(0) ||
        v->size(1) != cache->size(1) || v->size(2) != p.append_k.size(2) || v->size(3) != cache->size(3))
      return invalid("", "{} is {} {}; it must be {} [{},{},{},{}]", name, dtype_name(v->dtype),
                     sizes_text(*v), dtype_name(cache->dtype), r.q.size(0), cache->size(1),
                     p.append_k.size(2), cache->size(3));
  }
  return {};
}

int64_t read_int(const TensorView& v, int64_t i) {
  return v.dtype == DType::kI64 ? v.as<int64_t>()[i * v.stride(0)] : v.as<int32_t>()[i * v.stride(0)];
}

// Addresses of a view's first byte and of one past its last; nothing when it has no elements.
struct Extent {
  uintptr_t begin = 0, end = 0;
  explicit Extent(const TensorView& v) {
    if (v.data == nullptr) return;
    uintptr_t last = 0;
    for (int d = 0; d < v.rank; ++d) {
      if (v.size(d) == 0) return;
      if (v.size(d) > 1) last += static_cast<uintptr_t>(v.size(d) - 1) * static_cast<uintptr_t>(v.stride(d));
    }
    begin = reinterpret_cast<uintptr_t>(v.data);
    end = begin + (last + 1) * dtype_size(v.dtype);
  }
};

// Does an element of v begin at the address? Found by taking the widest strides first, which is exact for
// views whose dimensions lie inside each other; a yes is a yes for every view.
bool has_element_at(const TensorView& v, uintptr_t address) {
  const auto begin = reinterpret_cast<uintptr_t>(v.data), size = static_cast<uintptr_t>(dtype_size(v.dtype));
  if (address < begin || (address - begin) % size != 0) return false;
  auto rest = static_cast<int64_t>((address - begin) / size);
  bool taken[4] = {};
  for (int n = 0; n < v.rank; ++n) {
    int widest = -1;
    for (int d = 0; d < v.rank; ++d)
      if (!taken[d] && (widest < 0 || v.stride(d) > v.stride(widest))) widest = d;
    taken[widest] = true;
    if (v.size(widest) > 1 && v.stride(widest) > 0)
      rest -= std::min(rest / v.stride(widest), v.size(widest) - 1) * v.stride(widest);
  }
  return rest == 0;
}

// True only when they do: two views may lie between each other's rows.
bool share_memory(const TensorView& a, const Extent& of_a, const TensorView& b, const Extent& of_b) {
  if (of_a.begin >= of_b.end || of_b.begin >= of_a.end) return false;
  return has_element_at(a, of_b.begin) || has_element_at(b, of_a.begin);
}

// Outputs are written while inputs are still read. Every planned call comes by: nothing is worked out twice.
Status check_overlap(const Request& r, const Outputs& outputs) {
  static const TensorView kNone;
  const TensorView &out = outputs.out, &lse = r.wants.lse ? outputs.lse : kNone;
  const Extent of_out(out), of_lse(lse);
  if (share_memory(out, of_out, lse, of_lse))
    return invalid("give it memory of its own", "lse shares memory with out");
  const std::pair<const char*, const TensorView*> inputs[] = {{"q", &r.q},
                                                              {"k", &r.k},
                                                              {"v", &r.v},
                                                              {"the mask", &r.mask},
                                                              {"append_k", &r.paging.append_k},
                                                              {"append_v", &r.paging.append_v}};
  for (const auto& [name, input] : inputs) {
    if (input->data == nullptr) continue;
    const Extent of_input(*input);
    const char* output = share_memory(out, of_out, *input, of_input)   ? "out"
                         : share_memory(lse, of_lse, *input, of_input) ? "lse"
                                                                       : nullptr;
    if (output != nullptr)
      return invalid("give it memory of its own", "{} shares memory with {}", output, name);
  }
  return {};
}

Status check_offsets(const char* name, const TensorView& cu, int64_t rows) {
  int64_t previous = 0;
  for (int64_t n = 0; n < cu.size(0); ++n) {
    const int64_t value = read_int(cu, n);
    if (n == 0 ? value != 0 : value < previous)
      return invalid("offsets start at 0 and never decrease", "{}[{}] is {}", name, n, value);
    previous = value;
  }
  if (previous > rows) return invalid("", "{} ends at {}, past the {} rows there are", name, previous, rows);
  return {};
}

}  // namespace

Status validate(const Request& request) {
  ATTNSCOPE_TRY(check_qkv(request));
  ATTNSCOPE_TRY(check_scalars(request));
  ATTNSCOPE_TRY(check_lengths(request));
  ATTNSCOPE_TRY(check_paging(request));
  ATTNSCOPE_TRY(check_mask(request));
  const TensorView& sinks = request.sinks;
  if (sinks.data != nullptr) {
    ATTNSCOPE_TRY(check_view("sinks", sinks, request));
    if (!dtype_is_float(sinks.dtype) || sinks.rank != 1 || sinks.size(0) != request.heads())
      return invalid("", "sinks must be float [{}]; it is {} {}", request.heads(), dtype_name(sinks.dtype),
                     sizes_text(sinks));
  }
  const TensorView& slopes = request.alibi_slopes;
  if (slopes.data != nullptr) {
    ATTNSCOPE_TRY(check_view("alibi_slopes", slopes, request));
    const bool per_head = slopes.rank == 1 && slopes.size(0) == request.heads();
    const bool per_batch =
        slopes.rank == 2 && slopes.size(0) == request.batch() && slopes.size(1) == request.heads();
    if (slopes.dtype != DType::kF32 || !(per_head || per_batch))
      return invalid("", "alibi_slopes must be f32 [{0}] or [{1},{0}]; it is {2} {3}", request.heads(),
                     request.batch(), dtype_name(slopes.dtype), sizes_text(slopes));
  }
  return {};
}

Status validate_lengths(const Request& r) {
  if (!r.q.device.is_cpu()) return {};
  const Lengths& l = r.lengths;
  if (l.packed()) {
    ATTNSCOPE_TRY(check_offsets("cu_q", l.cu_q, r.q_len()));
    ATTNSCOPE_TRY(check_offsets("cu_k", l.cu_k, r.kv_len()));
  }
  if (!l.has_kv_lengths()) return {};
  const int64_t appended = r.paging.append_k.data != nullptr ? r.paging.append_k.size(2) : 0;
  for (int64_t b = 0; b < r.batch(); ++b) {
    const int64_t length = read_int(l.kv_lengths, b);
    if (length < 0 || length > r.kv_len() - appended)
      return invalid("", "kv_lengths[{}] is {}{}; there is room for {} keys", b, length,
                     appended > 0 ? fmt::format(" plus {} appended", appended) : "", r.kv_len());
    if (!r.paging.active()) continue;
    for (int64_t n = 0; n * r.paging.page_size < length + appended; ++n) {
      const int32_t page = r.paging.block_table.as<int32_t>()[element_offset(r.paging.block_table, b, n)];
      if (page < 0 || page >= r.k.size(0))
        return invalid("", "block_table[{}][{}] is {}; the cache has {} pages", b, n, page, r.k.size(0));
    }
  }
  return {};
}

Status validate_run(const Request& r, const Outputs& outputs) {
  const auto missing = [](const TensorView& v) { return v.data == nullptr && v.numel() > 0; };
  if (missing(r.q) || missing(r.k) || missing(r.v)) return invalid("", "q, k or v has no data");
  if (r.mask_kind != MaskKind::kNone && missing(r.mask)) return invalid("", "the mask has no data");
  const TensorView& o = outputs.out;
  const int64_t sizes[4] = {r.batch(), r.heads(), r.q_len(), r.value_dim()};
  const auto check = [&](const char* name, const TensorView& v, int rank, DType dtype) -> Status {
    bool fits = v.rank == rank && v.dtype == dtype;
    for (int d = 0; d < rank && fits; ++d) fits = v.size(d) == sizes[d];
    if (!fits) {
      TensorView wanted;
      wanted.rank = rank;
      for (int d = 0; d < rank; ++d) wanted.sizes[static_cast<size_t>(d)] = sizes[d];
      return invalid("", "{} is {} {}; it must be {} {}", name, dtype_name(v.dtype), sizes_text(v),
                     dtype_name(dtype), sizes_text(wanted));
    }
    ATTNSCOPE_TRY(check_view(name, v, r));
    for (int d = 0; d < rank; ++d)
      if (v.numel() > 0 && v.size(d) > 1 && v.stride(d) == 0)
        return invalid("", "{} has stride 0 in dimension {}: its elements would overlap", name, d);
    if (missing(v)) return invalid("", "{} has no data", name);
    return {};
  };
  ATTNSCOPE_TRY(check("out", o, 4, r.q.dtype));
  if (r.wants.lse) ATTNSCOPE_TRY(check("lse", outputs.lse, 3, DType::kF32));
  return check_overlap(r, outputs);
}

}  // namespace attnscope
