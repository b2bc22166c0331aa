#include "analysis/occupancy.h"

#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

namespace attnscope {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int kUnlimited = INT32_MAX;

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// The figures that differ between compute capabilities (CUDA programming guide, "Compute capabilities").
struct ArchRow {
  int major, minor;
  std::string_view name;
  int max_threads_per_sm, max_blocks_per_sm;
  int64_t shared_per_sm_kib, shared_optin_kib;
  int typical_sms;  // of the best known device of this kind; only a default for the command line
};
constexpr std::array kArchs = {
    ArchRow{5, 0, "sm_50", 2048, 32, 64, 48, 5},       ArchRow{5, 2, "sm_52", 2048, 32, 96, 48, 24},
    ArchRow{6, 0, "sm_60", 2048, 32, 64, 48, 56},      ArchRow{6, 1, "sm_61", 2048, 32, 96, 48, 28},
    ArchRow{7, 0, "sm_70", 2048, 32, 96, 96, 80},      ArchRow{7, 2, "sm_72", 2048, 32, 96, 96, 8},
    ArchRow{7, 5, "sm_75", 1024, 16, 64, 64, 40},      ArchRow{8, 0, "sm_80", 2048, 32, 164, 163, 108},
    ArchRow{8, 6, "sm_86", 1536, 16, 100, 99, 82},     ArchRow{8, 7, "sm_87", 1536, 16, 164, 163, 16},
    ArchRow{8, 9, "sm_89", 1536, 24, 100, 99, 128},    ArchRow{9, 0, "sm_90", 2048, 32, 228, 227, 132},
    ArchRow{10, 0, "sm_100", 2048, 32, 228, 227, 148}, ArchRow{10, 1, "sm_101", 1536, 24, 228, 227, 20},
    ArchRow{10, 3, "sm_103", 2048, 32, 228, 227, 148}, ArchRow{11, 0, "sm_110", 1536, 24, 228, 227, 20},
    ArchRow{12, 0, "sm_120", 1536, 24, 100, 99, 170},  ArchRow{12, 1, "sm_121", 1536, 24, 100, 99, 48}};

constexpr auto kArchNames = [] {
  std::array<std::string_view, kArchs.size()> names{};
  for (size_t i = 0; i < kArchs.size(); ++i) names[i] = kArchs[i].name;
  return names;
}();

// Hardware barriers: two for every block that can be resident, one where blocks are at most 24 per SM.
int barriers_per_sm(int major, int max_blocks) {
  return major < 9 ? 0 : max_blocks >= 32 ? 2 * max_blocks : max_blocks;
}

void count_registers(const SmLimits& sm, const BlockDemand& demand, Occupancy& out) {
  const int64_t per_warp = round_up(demand.registers * sm.warp_size, sm.register_granularity);
  out.registers_per_block = per_warp * out.warps_per_block;
  if (per_warp == 0) {
    out.by_registers = kUnlimited;
    return;
  }
  // The launch check assumes that every sub-partition gets a warp of the last row.
  const int64_t checked = per_warp * round_up(out.warps_per_block, sm.sub_partitions);
  if (checked > sm.registers_per_block || demand.registers > sm.max_registers_per_thread) {
    out.by_registers = 0;
    return;
  }
  const int64_t warps_per_partition = sm.registers_per_sm / sm.sub_partitions / per_warp;
  out.by_registers = static_cast<int>(warps_per_partition * sm.sub_partitions / out.warps_per_block);
}

void count_shared(const SmLimits& sm, const BlockDemand& demand, Occupancy& out) {
  const int64_t used = demand.shared_bytes + sm.shared_reserved;
  out.shared_per_block = round_up(used, sm.shared_granularity);
  const int64_t limit =
      (demand.shared_limit >= 0 ? demand.shared_limit : sm.shared_per_block_optin) + sm.shared_reserved;
  if (used > limit)
    out.by_shared = 0;
  else if (out.shared_per_block == 0)
    out.by_shared = kUnlimited;
  else
    out.by_shared = static_cast<int>(std::min<int64_t>(sm.shared_per_sm / out.shared_per_block, kUnlimited));
}

std::string why_none_fits(const SmLimits& sm, const BlockDemand& demand, const Occupancy& out) {
  if (demand.threads > sm.max_threads_per_block)
    return fmt::format("{} threads per block; the most is {}", demand.threads, sm.max_threads_per_block);
  if (demand.registers > sm.max_registers_per_thread)
    return fmt::format("{} registers per thread; the most is {}", demand.registers,
                       sm.max_registers_per_thread);
  if (out.by_registers == 0)
    return fmt::format("{} registers per block as allocated; the most is {}", out.registers_per_block,
                       sm.registers_per_block);
  if (out.by_shared == 0)
    return fmt::format(
        "{} B of shared memory per block; the most is {} B", group_digits(demand.shared_bytes),
        group_digits(demand.shared_limit >= 0 ? demand.shared_limit : sm.shared_per_block_optin));
  if (out.by_barriers == 0)
    return fmt::format("{} barriers per block; the most is {}", demand.barriers, sm.barriers_per_sm);
  return {};
}

}  // namespace

std::span<const std::string_view> known_archs() {
  return kArchNames;
}

std::optional<SmLimits> sm_limits(int major, int minor) {
  for (const ArchRow& row : kArchs) {
    if (row.major != major || row.minor != minor) continue;
    SmLimits sm;
    sm.major = major;
    sm.minor = minor;
    sm.max_threads_per_sm = row.max_threads_per_sm;
    sm.max_blocks_per_sm = row.max_blocks_per_sm;
    sm.shared_per_sm = row.shared_per_sm_kib * kKiB;
    sm.shared_per_block_optin = row.shared_optin_kib * kKiB;
    sm.shared_reserved = major >= 8 ? kKiB : 0;
    sm.shared_granularity = major >= 8 ? 128 : 256;
    sm.sub_partitions = major == 6 && minor == 0 ? 2 : 4;
    sm.max_registers_per_thread = 255;
    sm.registers_per_block = major == 5 && minor == 3 ? 32768 : 65536;
    sm.barriers_per_sm = barriers_per_sm(major, row.max_blocks_per_sm);
    sm.sms = row.typical_sms;
    return sm;
  }
  return std::nullopt;
}

Result<SmLimits> parse_arch(std::string_view text) {
  std::string_view digits = text;
  for (std::string_view prefix : {"sm_", "sm", "compute_"})
    if (digits.starts_with(prefix)) {
      digits.remove_prefix(prefix.size());
      break;
    }
  if (digits.ends_with("a") || digits.ends_with("f")) digits.remove_suffix(1);
  for (const ArchRow& row : kArchs)
    if (digits == row.name.substr(3) || digits == fmt::format("{}.{}", row.major, row.minor))
      return *sm_limits(row.major, row.minor);
  std::string known;
  for (std::string_view name : kArchNames) known += (known.empty() ? "" : ", ") + std::string(name);
  return fail(ErrorCode::kInvalidArgument, fmt::format("unknown architecture '{}'", terminal_safe(text, 40)),
              "known: " + known);
}

std::optional<SmLimits> sm_limits(const trace::DeviceProperties& device) {
  if (device.compute_major < 5) return std::nullopt;
  // AMD reports its own numbers as compute capability (9.4 for gfx942); only NVIDIA has
  // regsPerMultiprocessor.
  if (device.regs_per_sm < 0 && device.shared_per_sm < 0) return std::nullopt;
  std::optional<SmLimits> sm = sm_limits(device.compute_major, device.compute_minor);
  if (!sm) return std::nullopt;
  // Figures that no device has (files hold anything) leave those of its kind.
  const auto take = [](int64_t recorded, auto& into, int64_t least = 1) {
    if (recorded >= least && recorded < INT32_MAX)
      into = static_cast<std::remove_reference_t<decltype(into)>>(recorded);
  };
  take(device.max_threads_per_block, sm->max_threads_per_block, sm->warp_size);
  take(device.max_threads_per_sm, sm->max_threads_per_sm, sm->warp_size);
  take(device.regs_per_block, sm->registers_per_block);
  take(device.regs_per_sm, sm->registers_per_sm);
  take(device.shared_per_block, sm->shared_per_block);
  take(device.shared_per_block_optin, sm->shared_per_block_optin);
  take(device.shared_per_sm, sm->shared_per_sm);
  sm->sms = 0;
  take(device.num_sms, sm->sms);
  if (device.warp_size == 32) sm->warp_size = 32;
  return sm;
}

std::optional<BlockDemand> block_demand(const trace::KernelConfig& config) {
  for (int i = 0; i < 3; ++i)
    if (config.block[static_cast<size_t>(i)] <= 0) return std::nullopt;
  if (config.registers < 0) return std::nullopt;
  BlockDemand demand;
  demand.threads = product(config.block);
  demand.registers = config.registers;
  demand.shared_bytes = std::max<int64_t>(config.shared_bytes, 0);
  if (config.grid[0] > 0 && config.grid[1] > 0 && config.grid[2] > 0)
    demand.grid_blocks = product(config.grid);
  if (config.cluster[0] > 0 && config.cluster[1] > 0 && config.cluster[2] > 0)
    demand.cluster_blocks = product(config.cluster);
  if (config.shared_optin > 0) demand.shared_limit = config.shared_optin;
  return demand;
}

Occupancy occupancy(const SmLimits& sm, const BlockDemand& asked) {
  // Demands come from files: whatever no device could hold fits nothing, and is cut so that sums stay
  // defined.
  constexpr int64_t kMoreThanAnyDevice = int64_t{1} << 24;
  BlockDemand demand = asked;
  for (auto* value : {&demand.threads, &demand.registers, &demand.shared_bytes})
    *value = std::clamp<int64_t>(*value, 0, kMoreThanAnyDevice);
  demand.barriers = std::min<decltype(demand.barriers)>(demand.barriers, 1 << 20);
  Occupancy out;
  out.max_warps_per_sm = sm.max_warps_per_sm();
  out.warps_per_block =
      static_cast<int>(std::max<int64_t>(1, (demand.threads + sm.warp_size - 1) / sm.warp_size));
  out.by_blocks = sm.max_blocks_per_sm;
  out.by_warps = demand.threads > sm.max_threads_per_block ? 0 : out.max_warps_per_sm / out.warps_per_block;
  count_registers(sm, demand, out);
  count_shared(sm, demand, out);
  out.by_barriers = sm.barriers_per_sm > 0 && demand.barriers > 0
                        ? static_cast<int>(sm.barriers_per_sm / demand.barriers)
                        : kUnlimited;
  out.blocks_per_sm =
      std::min({out.by_warps, out.by_registers, out.by_shared, out.by_blocks, out.by_barriers});
  if (out.by_warps == out.blocks_per_sm) out.limiters |= kLimitWarps;
  if (out.by_registers == out.blocks_per_sm) out.limiters |= kLimitRegisters;
  if (out.by_shared == out.blocks_per_sm) out.limiters |= kLimitShared;
  if (out.by_blocks == out.blocks_per_sm) out.limiters |= kLimitBlocks;
  // One barrier per block allows as many blocks as the block limit itself: that says nothing new.
  if (out.by_barriers == out.blocks_per_sm && demand.barriers > 1) out.limiters |= kLimitBarriers;
  if (out.blocks_per_sm == 0) out.cannot_launch = why_none_fits(sm, demand, out);
  out.warps_per_sm = out.blocks_per_sm * out.warps_per_block;
  out.percent = 100.0 * out.warps_per_sm / out.max_warps_per_sm;
  if (demand.grid_blocks > 0 && sm.sms > 0 && out.blocks_per_sm > 0) {
    out.waves = static_cast<double>(demand.grid_blocks) / (static_cast<double>(out.blocks_per_sm) * sm.sms);
    out.achieved_percent = out.percent * std::min(1.0, *out.waves);
  }
  return out;
}

std::string limiter_text(unsigned limiters) {
  struct Word {
    unsigned bit;
    std::string_view word;
  };
  std::string text;
  for (const Word& w :
       {Word{kLimitRegisters, "registers"}, Word{kLimitShared, "shared memory"}, Word{kLimitWarps, "warps"},
        Word{kLimitBlocks, "blocks"}, Word{kLimitBarriers, "barriers"}})
    if (limiters & w.bit) text += (text.empty() ? "" : " + ") + std::string(w.word);
  return text.empty() ? "none" : text;
}

std::string occupancy_line(const Occupancy& result) {
  if (result.blocks_per_sm == 0) return "0 blocks: " + result.cannot_launch;
  return fmt::format("{} block{}, {} of {} warps, {}, {}", result.blocks_per_sm,
                     result.blocks_per_sm == 1 ? "" : "s", result.warps_per_sm, result.max_warps_per_sm,
                     format_percent(result.percent), limiter_text(result.limiters));
}

std::optional<int> kineto_estimate(const trace::DeviceProperties& device, const trace::KernelConfig& config) {
  const std::optional<SmLimits> sm = sm_limits(device);
  std::optional<BlockDemand> demand = block_demand(config);
  if (!sm || !demand || config.shared_bytes < 0 || device.num_sms <= 0 || device.max_threads_per_sm <= 0)
    return std::nullopt;
  demand->shared_limit = sm->shared_per_block;
  demand->barriers = 0;
  const Occupancy fit = occupancy(*sm, *demand);
  // Kineto multiplies the grid in 32 bits.
  const uint32_t grid = static_cast<uint32_t>(config.grid[0]) * static_cast<uint32_t>(config.grid[1]) *
                        static_cast<uint32_t>(config.grid[2]);
  const float blocks_per_sm =
      static_cast<float>(static_cast<int32_t>(grid)) / static_cast<float>(device.num_sms);
  const float resident = std::min(static_cast<float>(fit.blocks_per_sm), blocks_per_sm);
  const float fraction =
      resident * static_cast<float>(demand->threads) / static_cast<float>(device.max_threads_per_sm);
  return static_cast<int>(std::lround(fraction * 100.0));
}

ZeroCause zero_cause(const trace::DeviceProperties& device, const trace::KernelConfig& config) {
  if (config.reported_occupancy_pct != 0) return ZeroCause::kNotZero;
  const std::optional<SmLimits> sm = sm_limits(device);
  const std::optional<BlockDemand> demand = block_demand(config);
  if (!sm || !demand) return ZeroCause::kUnexplained;
  const Occupancy real = occupancy(*sm, *demand);
  if (config.shared_bytes > sm->shared_per_block && real.blocks_per_sm > 0) return ZeroCause::kFalse;
  if (real.achieved_percent && *real.achieved_percent < 0.5) return ZeroCause::kSmallGrid;
  return ZeroCause::kUnexplained;
}

}  // namespace attnscope
