#pragma once
// Words and annotations of the device tile layer. Nothing here or beside it includes a system header, so the
// same text compiles with nvcc, with NVRTC on a machine without a toolkit, and (maps.h) with the host
// compiler.

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ATTNSCOPE_HD __host__ __device__ __forceinline__
#define ATTNSCOPE_D __device__ __forceinline__
#else
#define ATTNSCOPE_HD inline
#endif

namespace attnscope::tile {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

inline constexpr int kWarp = 32;        // threads
inline constexpr int kWarpgroup = 128;  // threads: the unit that issues wgmma

enum class Type16 { kBf16, kF16 };

// A descriptor for the copy engine, as the host encodes it with cuTensorMapEncodeTiled: opaque, passed in
// kernel parameters.
struct alignas(64) TensorMap {
  u64 words[16];
};

}  // namespace attnscope::tile
