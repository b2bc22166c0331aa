#pragma once
// Four neighbouring columns of a row of the output.

#include "backends/cuda_decode/output.cuh"
#include "backends/cuda_mla/params.h"

namespace attnscope::mla {

using namespace attnscope::tile;

template <Type16 T>
ATTNSCOPE_D void store_four(const Params& launch, int batch, decode::Row row, int column,
                            const float (&v)[4]) {
  const decode::Params& p = launch.rest;
  if (launch.out_vectors == 0) return decode::store_output<T>(p, batch, row, column, v);
  u16* to =
      p.out + batch * p.out_strides[0] + row.head * p.out_strides[1] + row.i * p.out_strides[2] + column;
  *reinterpret_cast<uint2*>(to) = make_uint2(pack16<T>(v[0], v[1]), pack16<T>(v[2], v[3]));
}

}  // namespace attnscope::mla
