#pragma once
// How many blocks of a kernel fit on one multiprocessor, and which resource says so.

#include "attnscope/result.h"
#include "trace/trace.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// What one multiprocessor offers. Bytes, registers, threads.
struct SmLimits {
  int major = 0, minor = 0;
  int max_threads_per_block = 1024;
  int max_threads_per_sm = 0;
  int max_blocks_per_sm = 0;
  int64_t registers_per_sm = 65536;
  int64_t registers_per_block = 65536;
  int max_registers_per_thread = 255;
  int register_granularity = 256;  // registers, per warp
  int sub_partitions = 4;          // registers are handed out per sub-partition
  int warp_size = 32;
  int64_t shared_per_sm = 0;
  int64_t shared_per_block = 49152;    // without opting in
  int64_t shared_per_block_optin = 0;  // the most that a kernel may ask for
  int64_t shared_reserved = 0;         // taken by the system from every block: 1 KiB from sm_80 on
  int64_t shared_granularity = 128;
  int barriers_per_sm = 0;  // hardware barriers that blocks share, from sm_90 on; 0: never the limit
  int sms = 0;              // multiprocessors of the device; 0: not known

  int max_warps_per_sm() const { return max_threads_per_sm / warp_size; }
};

// By compute capability: 5.0 … 12.1. Nothing for one we do not know.
std::optional<SmLimits> sm_limits(int major, int minor);
// "sm_80", "sm80", "80", "8.0", "sm_90a". The error lists the known ones.
Result<SmLimits> parse_arch(std::string_view text);
// "sm_70", … in order: what parse_arch knows.
std::span<const std::string_view> known_archs();
// The limits that a trace recorded for its device; what it left out comes from the compute capability.
// Nothing for a device without a compute capability of NVIDIA's numbering.
std::optional<SmLimits> sm_limits(const trace::DeviceProperties& device);

// What a launch asks for.
struct BlockDemand {
  int64_t threads = 0;       // per block
  int64_t registers = 0;     // per thread
  int64_t shared_bytes = 0;  // static + dynamic
  int64_t barriers = 1;      // hardware barriers per block
  int64_t grid_blocks = 0;   // 0: not known
  int64_t cluster_blocks = 1;
  // The limit in force for shared memory; −1: whatever the device allows a kernel to opt in to.
  int64_t shared_limit = -1;
};
// From a recorded launch; nothing when threads or registers were not recorded.
std::optional<BlockDemand> block_demand(const trace::KernelConfig& config);

enum Limiter : unsigned {
  kLimitWarps = 1,
  kLimitRegisters = 2,
  kLimitShared = 4,
  kLimitBlocks = 8,
  kLimitBarriers = 16,
};
// "registers", "shared memory + warps", "none".
std::string limiter_text(unsigned limiters);

struct Occupancy {
  int blocks_per_sm = 0;
  int warps_per_block = 0;
  int warps_per_sm = 0;  // resident
  int max_warps_per_sm = 0;
  double percent = 0;     // theoretical: resident warps of all that could be
  unsigned limiters = 0;  // Limiter bits: every resource that allows no more blocks than this
  // Blocks that each resource alone would allow; a resource that is not used at all allows INT32_MAX.
  int by_warps = 0, by_registers = 0, by_shared = 0, by_blocks = 0, by_barriers = 0;
  int64_t registers_per_block = 0;  // as allocated
  int64_t shared_per_block = 0;     // as allocated, the reserved part included
  std::string cannot_launch;        // why no block fits; empty when one does
  // With a grid and a number of multiprocessors: whole device.
  std::optional<double> waves;             // grid ÷ blocks that run at once
  std::optional<double> achieved_percent;  // the percentage that this grid can reach at best
};

Occupancy occupancy(const SmLimits& sm, const BlockDemand& demand);

// One line: "2 blocks, 8 of 64 warps, 12.5 %, registers".
std::string occupancy_line(const Occupancy& result);

// The integer that Kineto writes as "est. achieved occupancy %": its calculator is given the default
// shared-memory limit (48 KiB) and never the opt-in one, so a block above it counts as not resident: 0.
// It caps the blocks by grid ÷ multiprocessors. Nothing when a needed figure was not recorded.
std::optional<int> kineto_estimate(const trace::DeviceProperties& device, const trace::KernelConfig& config);

// Why a reported figure of zero is what it is.
enum class ZeroCause : uint8_t {
  kNotZero,    // the figure is not zero, or not recorded
  kFalse,      // Kineto's limit: blocks are resident, the figure is wrong
  kSmallGrid,  // honest: fewer blocks than would make half a percent
  kUnexplained,
};
ZeroCause zero_cause(const trace::DeviceProperties& device, const trace::KernelConfig& config);

}  // namespace attnscope
