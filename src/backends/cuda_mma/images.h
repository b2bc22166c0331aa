#pragma once
// The kernel images that the build embedded (images.cmake of this folder; the f32 ones of cuda_efficient have
// the same rows): one per configuration and dtype.

#include "attnscope/dtype.h"

#include <cstddef>
#include <span>

namespace attnscope::mma {

struct EmbeddedImage {
  const char* name;
  DType dtype;
  int e;          // head size it computes, of keys and of values; smaller ones are filled with zeros
  int rows;       // of a block
  int keys;       // per step
  int threads;    // of a block
  bool featured;  // takes masks, softcap, slopes, pages, any alignment; else only what Geometry says
  const std::byte *begin, *end;  // a fat binary: code for several architectures, PTX for later ones
  int stages = 1;                // tiles of K and V that shared memory holds
  bool dropout = false;          // takes dropout
  const char* defines =
      nullptr;  // what it was compiled with, between semicolons, where exact.h may replace it

  std::span<const std::byte> bytes() const { return {begin, static_cast<size_t>(end - begin)}; }
};

std::span<const EmbeddedImage> images();  // bf16 and f16

}  // namespace attnscope::mma
