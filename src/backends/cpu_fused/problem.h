#pragma once
// What a fused CPU kernel is asked to do, as plain data: one Problem per call, many Tasks.
//
// The kernel translation units are compiled for instruction sets that this machine may lack, so this header
// includes nothing with inline functions: a linker may keep any unit's copy of those.

#include <cstddef>
#include <cstdint>

namespace attnscope::cpu_fused {

enum class Element : uint8_t { kF64, kF32, kF16, kBF16, kBool };

// A strided 4-d tensor; strides in bytes.
struct Strided {
  char* data;
  int64_t stride[4];
};

// Keys seen by position i of a unit: d − left ≤ j ≤ d + right with d = i + unit.diagonal, inside [0, k_len).
// kUnbounded switches a side off.
inline constexpr int64_t kUnbounded = INT64_MAX / 4;

// One sequence: a batch entry, or one of the packed sequences.
struct Unit {
  int64_t batch;  // index into the batch dimension of q, out, mask (0 when packed)
  int64_t q_begin, q_len;
  int64_t k_begin, k_len;
  int64_t diagonal;
};

struct Problem {
  Strided q, k, v;      // [B, Hq, L, E], [B, Hk, S, E], [B, Hv, S, Ev]; paged: [pages, H, page_size, ·]
  Strided out;          // [B, Hq, L, Ev]
  Strided lse;          // f32 [B, Hq, L]; data null = not wanted
  Strided mask;         // broadcast to [B, Hq, L, S] by zero strides; data null = none
  Strided block_table;  // i32 [B, max_pages] in stride[0], stride[1]; data null = not paged
  Element mask_element;
  int64_t heads, q_len, head_dim, value_dim;  // of the views, for dropout rows
  int64_t group;                              // query heads that share one K head and one V head
  int64_t k_ratio, v_ratio;                   // Hq/Hk, Hq/Hv
  int64_t page_size;
  int64_t left, right;

  // score = multiplier · (q·2^q_exponent·sign) · k; the power of two keeps the dot product in range for
  // scales far below one, and multiplier stays in [1, 2) then. Huge scales act on score differences only.
  float multiplier;
  double lse_multiplier;  // the same, unrounded
  float q_sign;           // ±1, or 0 for scale 0
  int q_exponent;
  float softcap;  // 0 = none

  bool dropout;
  bool drop_all;
  uint64_t seed, offset;
  uint32_t drop_threshold;
  float keep_scale;  // 1 / (1 − p)

  int rows_per_task;   // upper bound of Task::rows
  int keys_per_block;  // ≤ kMaxBlockKeys, multiple of 64
};

inline constexpr int kMaxBlockKeys = 256;

// Where a task that sees only part of the keys leaves its state, to be merged: [rows][value width] f32
// unnormalised, then [rows] maxima, then [rows] sums.
struct Partial {
  float* values;
  float* maximum;
  float* sum;
};

// Rows are (position, head of the group), position-major: row = position · group + head.
struct Task {
  const Unit* unit;
  int64_t head0;  // first query head of the group
  int64_t row_begin;
  int32_t rows;
  int32_t splits;  // parts that this row block's keys are cut into
  int64_t key_begin, key_end;
  Partial partial;  // used when splits > 1
};

// The entry points of one translation unit for one element type.
struct KernelSet {
  const char* isa;
  int row_tile;      // rows per register tile
  int packed_bytes;  // of an element in the panels
  int value_align;   // padding of the value width in Partial
  int block_keys;    // keys a block at most, ≤ kMaxBlockKeys
  size_t (*scratch_bytes)(const Problem&);
  void (*run_task)(const Problem&, const Task&, void* scratch);
  // Combines `splits` tasks of the same rows and writes the outputs.
  void (*merge)(const Problem&, const Task* parts, void* scratch);
};

}  // namespace attnscope::cpu_fused
