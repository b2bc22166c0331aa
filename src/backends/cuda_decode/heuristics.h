#pragma once
// Which image and which sharing of the keys a request gets, with the measurements that say so.

#include "attnscope/attention.h"
#include "backends/cuda_decode/arguments.h"
#include "backends/cuda_decode/images.h"

#include <cstdint>

namespace attnscope::decode {

// What the choice depends on of the GPU.
struct Gpu {
  int sm_count = 132;
  int64_t shared_per_block = 232448;  // that a kernel may opt into
  bool clusters = true;               // sm_90 and later
};

// Row tiles of up to 16 rows, else of 64: a tile of 16 leaves the tensor cores' other rows idle, which costs
// nothing while memory is the bound; of 64, its four warps share each chunk of keys.
inline constexpr int kSmallRows = 16;
// A request with more query rows per head than this, and more packed rows than a row tile holds, is flash's.
inline constexpr int64_t kMaxLength = 16;
inline constexpr int64_t kMaxPackedRows = 64;

// More query rows than these backends' tiles are for: flash's.
bool too_many_rows(const Request& request);

// The image for the smallest head size that holds the request's, for this GPU; null when there is none.
const EmbeddedImage* choose_image(const Request& request, const Gpu& gpu);

struct Work {
  int64_t row_tiles = 1;
  int64_t key_tiles = 1;  // of a row tile, at most
  int64_t slots = 132;    // blocks that run at once
  bool ragged = false;    // lengths differ between batch entries, as far as the host can know
  int64_t splits = 0;     // asked for; 0: choose
  bool clusters = true;
};
Sharing share_keys(const Work& work);

// Dynamic shared memory of an image, from its configuration; the image itself says it exactly once loaded.
int64_t shared_bytes_of(const EmbeddedImage& image);

}  // namespace attnscope::decode
