#pragma once
// The kernel images that the build embedded (images.cmake): one per configuration and dtype.

#include "attnscope/dtype.h"

#include <cstddef>
#include <span>

namespace attnscope::flash_sm90 {

struct EmbeddedImage {
  const char* name;
  DType dtype;
  int e, ev;       // head sizes it computes; smaller ones are filled with zeros
  int keys;        // per step
  int warpgroups;  // of 64 query rows each
  bool causal;
  bool any_output;  // writes an output of any strides; the others need 16-byte alignment throughout
  const std::byte *begin, *end;  // the cubin
  const char* defines;  // what it was compiled with, between semicolons: exact.h replaces some of them

  int rows() const { return 64 * warpgroups; }
  int threads() const { return 128 * (1 + warpgroups); }
  std::span<const std::byte> cubin() const { return {begin, static_cast<size_t>(end - begin)}; }
};

std::span<const EmbeddedImage> images();

}  // namespace attnscope::flash_sm90
