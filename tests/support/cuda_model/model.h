#pragma once
// A software model of one cluster of thread blocks, good enough to run a kernel's source on the CPU: every
// thread is a fibre, collectives wait for all who take part, shared memory starts poisoned, asynchronous
// copies land either at once or only when they are waited for (a kernel must be right both ways). A test that
// includes a kernel puts this folder first on the include path, so that the files below it replace the
// instructions.

#include <cstdint>
#include <functional>

#define ATTNSCOPE_D inline
#define __global__
#define __shared__ static
#define __forceinline__ inline

struct Dim3 {
  unsigned x = 0, y = 0, z = 0;
};
inline Dim3 threadIdx, blockIdx, gridDim;  // set whenever a fibre goes on

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

namespace attnscope::cuda_model {

struct Launch {
  int blocks = 1, threads = 32;
  int cluster = 1;  // blocks that run together
  size_t shared_bytes = 0;
  bool copies_land_late = true;
};
// Runs kernel(shared memory of the block) for every thread. Throws std::runtime_error when threads wait for
// ever.
void run(const Launch& launch, const std::function<void(void*)>& kernel);

// What a thread of the kernel calls.
void wait_warp();
void wait_block();
void wait_some(int id, int threads);
void wait_cluster();
// Gives every lane of the warp a pointer to each lane's `value`; valid until wait_warp().
const void* const* exchange(const void* value);
int lane();
uint32_t shared_address(const void* p);
void* shared_pointer(uint32_t address);
uint32_t address_in_block(uint32_t address, int rank);
void copy_async(uint32_t to, const void* from, int bytes);
void copy_commit();
void copy_wait(int pending);

}  // namespace attnscope::cuda_model

inline void __syncthreads() {
  attnscope::cuda_model::wait_block();
}
inline void __syncwarp() {
  attnscope::cuda_model::wait_warp();
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const void* const* all = attnscope::cuda_model::exchange(&value);
  const T result = *static_cast<const T*>(all[attnscope::cuda_model::lane() ^ mask]);
  attnscope::cuda_model::wait_warp();
  return result;
}
template <class T>
T __shfl_up_sync(unsigned, T value, int delta) {
  const void* const* all = attnscope::cuda_model::exchange(&value);
  const int from = attnscope::cuda_model::lane() - delta;
  const T result = from >= 0 ? *static_cast<const T*>(all[from]) : value;
  attnscope::cuda_model::wait_warp();
  return result;
}
inline bool __any_sync(unsigned, bool value) {
  const void* const* all = attnscope::cuda_model::exchange(&value);
  bool result = false;
  for (int l = 0; l < 32; ++l) result |= *static_cast<const bool*>(all[l]);
  attnscope::cuda_model::wait_warp();
  return result;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __int_as_float(int bits) {
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
