// The appending kernel's source on the software model of tests/support/cuda_model: every new row lands in its
// slot, nothing else of the cache changes.
#include "backends/cuda_append/arguments.h"
#include "backends/cuda_append/kernel.cuh"  // through the model, which comes first on the include path
#include "support/attention_case.h"
#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <vector>

namespace attnscope::append {
namespace {

using testing::AttentionCase;
using testing::CaseSpec;
using testing::Layout;

CaseSpec spec_of(DType dtype, int64_t page_size, int64_t appended, Layout layout) {
  CaseSpec s;
  s.dtype = dtype;
  s.B = 3, s.Hq = 6, s.Hk = 3, s.Hv = 2, s.L = appended, s.S = appended + 290, s.E = 40, s.Ev = 24;
  s.paged = s.append = true;
  s.page_size = page_size;
  s.appended = appended;
  s.layout = layout;
  s.seed = static_cast<uint64_t>(page_size + appended);
  return s;
}

void run_on_model(const Request& r) {
  const Params p = params_of(r);
  cuda_model::run({static_cast<int>(r.batch()) * p.appended, kThreads}, [&](void*) { cache_append(p); });
}

std::vector<double> values_of(const TensorView& v) {
  std::vector<double> all;
  for (int64_t page = 0; page < v.size(0); ++page)
    for (int64_t h = 0; h < v.size(1); ++h)
      for (int64_t slot = 0; slot < v.size(2); ++slot)
        for (int64_t e = 0; e < v.size(3); ++e) all.push_back(read_element(v, page, h, slot, e));
  return all;
}

// What `cache` holds after the append, computed element by element.
std::vector<double> expected_of(const Request& r, const TensorView& cache, const TensorView& rows) {
  std::vector<double> all = values_of(cache);
  for (int64_t b = 0; b < r.batch(); ++b) {
    const auto length = static_cast<int64_t>(read_element(r.lengths.kv_lengths, b));
    for (int64_t i = 0; i < rows.size(2); ++i) {
      const int64_t key = length + i;
      if (key >= r.kv_len()) continue;
      const auto page = static_cast<int64_t>(read_element(r.paging.block_table, b, key / r.paging.page_size));
      for (int64_t h = 0; h < cache.size(1); ++h)
        for (int64_t e = 0; e < cache.size(3); ++e)
          all[static_cast<size_t>(
              ((page * cache.size(1) + h) * cache.size(2) + key % r.paging.page_size) * cache.size(3) + e)] =
              read_element(rows, b, h, i, e);
    }
  }
  return all;
}

TEST(AppendKernel, EveryRowLandsInItsSlotAndNothingElseChanges) {
  struct Pages {
    int64_t size, appended;
  };
  constexpr Pages kPages[] = {{16, 1}, {24, 9}, {64, 3}, {256, 12}};
  size_t n = 0;
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const Layout layout :
         {Layout::kDense, Layout::kSeqMajor, Layout::kLastStride2, Layout::kOddOffset}) {
      const Pages& pages = kPages[n % 4];
      n += n == 3 ? 2 : 1;  // another pairing for the other dtype
      AttentionCase test(spec_of(dtype, pages.size, pages.appended, layout));
      const Request& r = test.request();
      const auto k = expected_of(r, r.k, r.paging.append_k), v = expected_of(r, r.v, r.paging.append_v);
      ASSERT_NE(k, values_of(r.k));
      run_on_model(r);
      EXPECT_EQ(values_of(r.k), k) << test.spec().name();
      EXPECT_EQ(values_of(r.v), v) << test.spec().name();
    }
}

TEST(AppendKernel, WhatHasNoRoomIsLeftOut) {
  AttentionCase test(spec_of(DType::kBF16, 16, 3, Layout::kDense));
  Request& r = test.request();
  write_element(r.lengths.kv_lengths, static_cast<double>(r.kv_len() - 1), 0);
  write_element(r.lengths.kv_lengths, 1e9, 1);
  for (int64_t n = 0; n < r.paging.block_table.size(1); ++n)
    write_element(r.paging.block_table, static_cast<double>(n), 0, n);
  TensorView last = r.paging.append_k;
  const double first_row = read_element(last, 0, 0, 0, 0);
  run_on_model(r);  // would write outside its memory
  EXPECT_EQ(read_element(r.k, r.paging.block_table.size(1) - 1, 0, 15, 0), first_row);
}

TEST(AppendArguments, RowsMoveInVectorsWhereBothSidesAllowIt) {
  const AttentionCase dense(spec_of(DType::kBF16, 16, 3, Layout::kDense));
  EXPECT_EQ(params_of(dense.request()).k.piece_bytes, 16);
  EXPECT_EQ(params_of(dense.request()).k.columns, 5);
  EXPECT_EQ(bytes_of(dense.request()), 3 * 3 * (3 * 40 + 2 * 24) * 2);
  const AttentionCase f32(spec_of(DType::kF32, 16, 3, Layout::kSeqMajor));
  EXPECT_EQ(params_of(f32.request()).v.piece_bytes, 16);
  EXPECT_EQ(params_of(f32.request()).v.columns, 6);
  const AttentionCase odd(spec_of(DType::kBF16, 16, 3, Layout::kOddOffset));
  EXPECT_EQ(params_of(odd.request()).k.piece_bytes, 2);
  EXPECT_EQ(params_of(odd.request()).k.columns, 40);
  Request none = dense.request();
  none.paging.append_k = none.paging.append_v = TensorView{};
  EXPECT_EQ(bytes_of(none), 0);
}

}  // namespace
}  // namespace attnscope::append
