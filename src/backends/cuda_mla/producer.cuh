#pragma once
// One thread that loads K (and a V of its own), for mla's kernel.

#include "backends/cuda_mla/tile.cuh"

namespace attnscope::mla {

ATTNSCOPE_D void load_part(u8* to, const TensorMap& map, Barrier& full, Barrier& empty, u32 parity, int part,
                           const KeyTile& at, int head) {
  barrier_wait(empty, parity ^ 1);
  barrier_expect(full, u32(panels_of(part) * panel_bytes(64)));
#pragma unroll 1
  for (int panel = first_panel(part); panel < first_panel(part) + panels_of(part); ++panel)
    tma_load(to + panel * panel_bytes(64), map, full, panel * kPanelColumns, at.row, head, at.batch,
             kEvictNormal);
}

// In the order in which the parts are given back and asked for.
template <class C>
ATTNSCOPE_D void produce(const Params& p, SharedStorage<C>& shared) {
  const decode::Problem& problem = p.rest.problem;
  int n = 0;  // key tiles of all pieces
  for (int at_piece = int(blockIdx.x); at_piece < piece_count(problem); at_piece += int(gridDim.x)) {
    const Piece piece = piece_of(problem, at_piece);
    const int head = piece.pack * problem.pack;
    for (int t = 0; t < piece.last - piece.first; ++t, ++n) {
      const KeyTile at = key_tile(p.rest, piece, (piece.first + t) * C::kKeys);
      const int stage = stage_of<C>(n);
      const int own = t & 1;
#pragma unroll 1
      for (int i = 0; i < kParts; ++i) {
        const int part = i == 0 ? kRest : i == 1 ? own : 1 - own;
        load_part(shared.k(stage), p.k, shared.k_full[stage][part], shared.k_empty[stage][part],
                  parity_of<C>(n), part, at, head / problem.k_group);
      }
      if constexpr (!C::kAlias)
#pragma unroll 1
        for (int half = 0; half < 2; ++half)
          load_part(shared.values(n), p.v, shared.v_full[half], shared.v_empty[half], parity_of<C>(n), half,
                    at, head / problem.v_group);
    }
  }
}

}  // namespace attnscope::mla
