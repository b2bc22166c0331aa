#pragma once
// Which attention weights dropout removes: Philox-4x32-10 (Salmon et al., SC'11) over a counter that names
// the weight itself, so every backend, tile shape and device drops the same ones. No system headers: device
// code too.

#if defined(__CUDACC__)
#define ATTNSCOPE_HOST_DEVICE __host__ __device__
#else
#define ATTNSCOPE_HOST_DEVICE
#endif

namespace attnscope {

struct Philox4 {
  unsigned int x[4];
};

ATTNSCOPE_HOST_DEVICE inline Philox4 philox_4x32_10(Philox4 counter, unsigned int key0, unsigned int key1) {
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xD2511F53ull * counter.x[0];
    const unsigned long long p1 = 0xCD9E8D57ull * counter.x[2];
    counter =
        Philox4{{static_cast<unsigned int>(p1 >> 32) ^ counter.x[1] ^ key0, static_cast<unsigned int>(p1),
                 static_cast<unsigned int>(p0 >> 32) ^ counter.x[3] ^ key1, static_cast<unsigned int>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Four neighbouring weights' random words: keys 4·(key/4) … +3 of score row `row`.
// row = (batch · Hq + head) · L + query over the view's own sizes (packed: batch 0, L = T_q); 64 bits, never
// wraps.
ATTNSCOPE_HOST_DEVICE inline Philox4 dropout_words(unsigned long long seed, unsigned long long offset,
                                                   unsigned long long row, unsigned long long key) {
  const unsigned long long quad = key >> 2;
  const Philox4 counter{
      {static_cast<unsigned int>(quad), static_cast<unsigned int>(row),
       static_cast<unsigned int>(row >> 32) ^ static_cast<unsigned int>(quad >> 32) * 0x85EBCA6Bu,
       static_cast<unsigned int>(offset)}};
  return philox_4x32_10(
      counter, static_cast<unsigned int>(seed),
      static_cast<unsigned int>(seed >> 32) ^ static_cast<unsigned int>(offset >> 32) * 0x9E3779B9u);
}

// A weight is kept when its word is ≥ the threshold; kept weights are scaled by 1/(1−p). p = 0 keeps all and
// p = 1 drops all without drawing: callers branch on those two.
ATTNSCOPE_HOST_DEVICE inline unsigned int dropout_threshold(double p) {
  const double t = p * 4294967296.0;
  return t >= 4294967295.0 ? 4294967295u : static_cast<unsigned int>(t);
}

ATTNSCOPE_HOST_DEVICE inline bool dropout_keeps(unsigned long long seed, unsigned long long offset,
                                                unsigned long long row, unsigned long long key,
                                                unsigned int threshold) {
  return dropout_words(seed, offset, row, key).x[key & 3] >= threshold;
}

}  // namespace attnscope
