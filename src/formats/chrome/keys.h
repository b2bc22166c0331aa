#pragma once
// The JSON keys this reader knows, found without comparing them one by one.

#include "formats/chrome/simd.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

namespace attnscope::formats::chrome {

// The name of the metadata event that stands at the end of a list that was cut when it was read.
inline constexpr std::string_view kTruncatedMark = "attnscope_truncated";

// Members of an event.
enum class EventKey : uint8_t {
  kPh,
  kCat,
  kName,
  kPid,
  kTid,
  kTs,
  kDur,
  kArgs,
  kId,
  kId2,
  kBp,
  kScope,
  kCount
};

// Members of "args" that are kept, named as Kineto spells them; ours at the end.
enum class Arg : uint8_t {
  kExternalId,
  kCorrelation,
  kDevice,
  kContext,
  kStream,
  kBytes,
  kRegisters,
  kSharedMemory,
  kGrid,
  kBlock,
  kCluster,
  kBlocksPerSm,
  kWarpsPerSm,
  kOccupancyPct,
  kOccupancyObject,
  kGraphId,
  kGraphNodeId,
  kFromDevice,
  kToDevice,
  kInputDims,
  kInputStrides,
  kInputType,
  kConcreteInputs,
  kSequence,
  kForwardThread,
  kPythonId,
  kPythonParent,
  kPythonModule,
  kAddress,
  kTotalAllocated,
  kTotalReserved,
  kDeviceType,
  kDeviceId,
  kSyncKind,
  kWaitOnStream,
  kName,
  kLabels,
  kSortIndex,
  kStaticShared,
  kDynamicShared,
  kSharedOptin,
  kLocalMemory,
  kBytesRead,
  kBytesWritten,
  kFlops,
  kCount,
};

namespace detail {

template <typename Key>
struct Spelling {
  std::string_view text;
  Key key;
};

inline constexpr Spelling<EventKey> kEventKeys[] = {
    {"ph", EventKey::kPh},   {"cat", EventKey::kCat}, {"name", EventKey::kName}, {"pid", EventKey::kPid},
    {"tid", EventKey::kTid}, {"ts", EventKey::kTs},   {"dur", EventKey::kDur},   {"args", EventKey::kArgs},
    {"id", EventKey::kId},   {"id2", EventKey::kId2}, {"bp", EventKey::kBp},     {"scope", EventKey::kScope},
    {"s", EventKey::kCount},
};

inline constexpr Spelling<Arg> kArgKeys[] = {
    {"External id", Arg::kExternalId},
    {"external id", Arg::kExternalId},
    {"correlation", Arg::kCorrelation},
    {"device", Arg::kDevice},
    {"context", Arg::kContext},
    {"stream", Arg::kStream},
    {"bytes", Arg::kBytes},
    {"Bytes", Arg::kBytes},
    {"registers per thread", Arg::kRegisters},
    {"shared memory", Arg::kSharedMemory},
    {"grid", Arg::kGrid},
    {"block", Arg::kBlock},
    {"cluster", Arg::kCluster},
    {"blocks per SM", Arg::kBlocksPerSm},
    {"warps per SM", Arg::kWarpsPerSm},
    {"est. achieved occupancy %", Arg::kOccupancyPct},
    {"theoretical occupancy %", Arg::kOccupancyPct},
    {"occupancy", Arg::kOccupancyObject},
    {"graph id", Arg::kGraphId},
    {"graph node id", Arg::kGraphNodeId},
    {"fromDevice", Arg::kFromDevice},
    {"toDevice", Arg::kToDevice},
    {"Input Dims", Arg::kInputDims},
    {"Input dims", Arg::kInputDims},
    {"Input Strides", Arg::kInputStrides},
    {"Input type", Arg::kInputType},
    {"Concrete Inputs", Arg::kConcreteInputs},
    {"Sequence number", Arg::kSequence},
    {"Fwd thread id", Arg::kForwardThread},
    {"Python id", Arg::kPythonId},
    {"Python parent id", Arg::kPythonParent},
    {"Python module id", Arg::kPythonModule},
    {"Addr", Arg::kAddress},
    {"Total Allocated", Arg::kTotalAllocated},
    {"Total Reserved", Arg::kTotalReserved},
    {"Device Type", Arg::kDeviceType},
    {"Device Id", Arg::kDeviceId},
    {"cuda_sync_kind", Arg::kSyncKind},
    {"wait_on_stream", Arg::kWaitOnStream},
    {"name", Arg::kName},
    {"labels", Arg::kLabels},
    {"sort_index", Arg::kSortIndex},
    {"static shared memory", Arg::kStaticShared},
    {"dynamic shared memory", Arg::kDynamicShared},
    {"shared memory opt-in limit", Arg::kSharedOptin},
    {"local memory per thread", Arg::kLocalMemory},
    {"bytes read", Arg::kBytesRead},
    {"bytes written", Arg::kBytesWritten},
    {"flops", Arg::kFlops},
    // Frequent and of no use here: known so that they can be expected.
    {"Record function id", Arg::kCount},
    {"Ev Idx", Arg::kCount},
    {"cbid", Arg::kCount},
    {"queued", Arg::kCount},
    {"memory bandwidth (GB/s)", Arg::kCount},
    {"Trace name", Arg::kCount},
    {"Trace iteration", Arg::kCount},
    {"Profiler Event Index", Arg::kCount},
    {"external ts", Arg::kCount},
    {"Input names", Arg::kCount},
    {"Output dims", Arg::kCount},
    {"Output type", Arg::kCount},
    {"Output names", Arg::kCount},
    {"Device", Arg::kCount},
    {"Extra arguments", Arg::kCount},
    {"priority", Arg::kCount},
    {"channel", Arg::kCount},
    {"channel_type", Arg::kCount},
    {"direction", Arg::kCount},
    {"size", Arg::kCount},
    {"packet_ptr", Arg::kCount},
    {"kind", Arg::kCount},
};

// A collision-free table over length and four letters; the multiplier is found at compile time.
template <typename Key, size_t N, size_t Slots>
struct KeyTable {
  std::array<uint8_t, Slots> slot{};  // row + 1
  std::array<Spelling<Key>, N> rows{};
  struct Padded {  // with the closing quote
    std::array<char, 32> text{};
    size_t size = 0;
  };
  std::array<Padded, N> padded{};
  uint64_t multiplier = 0;

  static constexpr size_t hash(std::string_view s, uint64_t multiplier) {
    const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(s[i])); };
    const size_t n = s.size();
    const uint64_t mixed =
        byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16 | byte(n > 3 ? n - 4 : 0) << 24 | uint64_t{n} << 32;
    return (mixed * multiplier >> 40) % Slots;
  }
  explicit constexpr KeyTable(const Spelling<Key> (&spellings)[N]) {
    for (size_t i = 0; i < N; ++i) {
      rows[i] = spellings[i];
      for (size_t c = 0; c < spellings[i].text.size(); ++c) padded[i].text[c] = spellings[i].text[c];
      padded[i].text[spellings[i].text.size()] = '"';
      padded[i].size = spellings[i].text.size() + 1;
    }
    for (multiplier = 0x9E3779B97F4A7C15u;; multiplier += 2) {
      slot.fill(0);
      bool clash = false;
      for (size_t i = 0; i < N && !clash; ++i) {
        uint8_t& s = slot[hash(rows[i].text, multiplier)];
        clash = s != 0;
        s = static_cast<uint8_t>(i + 1);
      }
      if (!clash) return;
    }
  }
  static constexpr uint8_t kUnknown = N,
                           kFirst = N + 1;  // rows that are none: no such key · before the first
  // Whether the key of this row, closing quote included, stands at p. kPadding bytes are readable there.
  bool stands_at(uint8_t row, const char* p) const {
    const Padded& want = padded[row];
    if (want.size <= 16) return same_bytes(want.text.data(), p, want.size);
    return same_bytes(want.text.data(), p, 16) && same_bytes(want.text.data() + 16, p + 16, want.size - 16);
  }
  // The row of a key that is followed by its quote; kUnknown when none.
  uint8_t find(std::string_view s) const {
    if (s.empty()) return kUnknown;
    const uint8_t row = slot[hash(s, multiplier)];
    return row != 0 && padded[row - 1].size == s.size() + 1 && stands_at(row - 1, s.data()) ? row - 1
                                                                                            : kUnknown;
  }
  Key key(uint8_t row) const { return row < N ? rows[row].key : Key::kCount; }
};

}  // namespace detail

// Text that stood between the end of one member's value and the start of the next one's, `, "ts": `.
// Producers write members in one order and with one spacing, so it usually stands there again.
struct Gap {
  static constexpr size_t kMaxLength = 48;
  std::array<char, kMaxLength> text{};
  uint8_t length = 0;  // 0: nothing remembered
  uint8_t row = 0;     // of the key inside
  uint8_t key_at = 0;  // where its opening quote is

  // kPadding bytes are readable at p.
  bool stands_at(const char* p) const {
    if (length == 0) return false;
    if (length <= 16) return same_bytes(text.data(), p, length);
    if (!same_bytes(text.data(), p, 16)) return false;
    if (length <= 32) return same_bytes(text.data() + 16, p + 16, length - 16u);
    return same_bytes(text.data() + 16, p + 16, 16) && same_bytes(text.data() + 32, p + 32, length - 32u);
  }
};
// For each row, what followed it lately.
template <typename Table, size_t kWays>
using GapMemory = std::array<std::array<Gap, kWays>, std::tuple_size_v<decltype(Table::rows)> + 2>;

inline constexpr detail::KeyTable<EventKey, std::size(detail::kEventKeys), 64> kEventTable(
    detail::kEventKeys);
inline constexpr detail::KeyTable<Arg, std::size(detail::kArgKeys), 1024> kArgTable(detail::kArgKeys);

}  // namespace attnscope::formats::chrome
