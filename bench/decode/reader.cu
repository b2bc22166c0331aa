// How long it takes to only read: bytes go to shared memory and stay there. One issuing thread a warp, each
// warp a ring of `stages` places of `chunk` bytes.
//   mode 0: every block a run of the first half and one of the second (K and V), alternating
//   mode 1: chunks of all blocks side by side (grid stride)
//   mode 2: chunks taken from a counter
using u32 = unsigned int;
using u64 = unsigned long long;
struct Params {
  const char* from;
  u64 bytes;
  unsigned* counter;
  int chunk, stages, mode, policy;
};
extern "C" __device__ const int reader_shared_bytes = 0;
__device__ __forceinline__ u32 address(const void* p) {
  return u32(__cvta_generic_to_shared(p));
}

extern "C" __global__ void __launch_bounds__(256) read_all(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) char ring[];
  __shared__ u64 full[8][32];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (threadIdx.x % 32 != 0) return;
  char* mine = ring + warp * p.stages * p.chunk;
  for (int s = 0; s < p.stages; ++s)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full[warp][s])));
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  u64 policy;
  if (p.policy == 0)
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else if (p.policy == 1)
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  const u32 chunks = u32(p.bytes / p.chunk), workers = gridDim.x * warps;
  const u32 half = chunks / 2;
  const u32 begin = u32(u64(half) * blockIdx.x / gridDim.x),
            end = u32(u64(half) * (blockIdx.x + 1) / gridDim.x);
  u32 n = 0;
  const auto next = [&]() -> u32 {  // chunk number, or chunks
    const u32 i = n++;
    if (p.mode == 0) {
      const u32 at = begin + warp + (i / 2) * warps;
      return at < end ? at + (i % 2) * half : chunks;
    }
    if (p.mode == 1) {
      const u32 at = (i * warps + warp) * gridDim.x + blockIdx.x;
      return at < chunks ? at : chunks;
    }
    const u32 at = i == 0 ? blockIdx.x * warps + warp : atomicAdd(p.counter, 1u) + workers;
    return at < chunks ? at : chunks;
  };
  const auto issue = [&](int place) {
    const u32 at = next();
    if (at >= chunks) return false;
    const u32 bar = address(&full[warp][place]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(p.chunk)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
        "[%3], %4;" ::"r"(address(mine + place * p.chunk)),
        "l"(p.from + u64(at) * p.chunk), "r"(p.chunk), "r"(bar), "l"(policy)
        : "memory");
    return true;
  };
  int issued = 0;
  bool more = true;
  for (int s = 0; s < p.stages && more; ++s) more = issue(s), issued += more;
  for (int done = 0; done < issued; ++done) {
    const int place = done % p.stages;
    const u32 parity = u32(done / p.stages) & 1u;
    asm volatile(
        "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra "
        "finished;\nbra again;\nfinished:\n}\n" ::"r"(address(&full[warp][place])),
        "r"(parity)
        : "memory");
    if (more) more = issue(place), issued += more;
  }
  if (p.mode == 2 && atomicAdd(p.counter + 1, 1u) == workers - 1) p.counter[0] = 0, p.counter[1] = 0;
}
