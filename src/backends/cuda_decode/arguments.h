#pragma once
// A request as the kernels' parameters.

#include "attnscope/attention.h"
#include "backends/cuda_decode/params.h"

#include <cstdint>

namespace attnscope::decode {

// How the keys of a row tile are shared among blocks.
struct Sharing {
  int parts = 1;   // even parts of every row tile; 0: flat
  int blocks = 0;  // flat: that share the line
  Join join = Join::kNone;
};

// Query heads that share both their key head and their value head.
int64_t packed_heads(const Request& request);
// Of the K and V that a call reads; of pages, what the block table can name.
double cache_bytes(const Request& request);
// K and V are small beside L2.
bool has_small_cache(const Request& request);
int64_t row_tiles_of(const Request& request, int tile_rows);

// Everything but the addresses.
Params constant_params(const Request& request, int tile_rows, int tile_keys, const Sharing& sharing);
// workspace: what workspace_of() asks for, or null.
void set_addresses(const Request& request, const Outputs& outputs, void* workspace, Params* params);

// Blocks of the forward kernel, and of the joining one.
int64_t forward_blocks(const Params& params);
int64_t combine_blocks(const Params& params);
// Bytes that Join::kWorkspace needs for the pieces; the states begin at a multiple of 256.
struct WorkspaceSize {
  size_t sums = 0, states = 0;
  size_t total() const { return sums + states; }
};
WorkspaceSize workspace_of(const Params& params);

}  // namespace attnscope::decode
