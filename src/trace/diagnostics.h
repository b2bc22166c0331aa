#pragma once
// Everything odd that a reader or the linker can meet, in one table. Odd data is counted here and shown
// with its advice; it never fails a read and is never passed over in silence.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnscope::trace {

// One entry per row of kDiagTable (diagnostics.cpp), in the same order; a test holds the two together.
enum class Diag : uint8_t {
  // The file as bytes and JSON
  kTruncatedFile,
  kTruncatedCompression,
  kRawControlByte,
  kInvalidUtf8,
  kBadEscape,
  kUnescapedQuote,
  kNonFiniteNumber,
  kHugeInteger,
  kTimeAsString,
  kTimeMissing,
  kTimeOutOfRange,
  kTimeBelowNanosecond,
  kTimeZero,
  kMissingComma,
  kForeignText,
  kDuplicateKey,
  kNotAnEvent,
  kDamagedEvent,
  kUnknownPhase,
  kEventTooLong,
  kMemberTooLong,
  kTooDeep,
  kSecondDocument,
  kByteOrderMark,
  kUtf16,
  kTrailingData,
  kTooManyCategories,
  kTooManyThreads,
  kFileChanged,
  // Events as such
  kNegativeDuration,
  kMissingDuration,
  kUnfinishedSpan,
  kEndWithoutBegin,
  kMissingName,
  kTemporaryFile,
  // Relations between events
  kFlowWithoutEnd,
  kFlowWithoutStart,
  kFlowsUnchecked,
  kMissingCorrelation,
  kDuplicateCorrelation,
  kLaunchWithoutKernel,
  kEarlierWork,
  kUnlinkedKernel,
  kExternalIdUnreliable,
  kOverlappingKernels,
  kKernelBeforeLaunch,
  kChildOutlivesParent,
  kSpansTooDeep,
  kCount,
};
inline constexpr size_t kDiagCount = static_cast<size_t>(Diag::kCount);

enum class DiagSeverity : uint8_t { kInfo, kData, kLoss };  // harmless · odd data · something was lost

struct DiagInfo {
  std::string_view id;  // kebab-case; the same string in reports, JSON and docs
  DiagSeverity severity = DiagSeverity::kInfo;
  std::string_view what;    // one sentence about what was met
  std::string_view advice;  // what it means and what to do
};
const DiagInfo& diag_info(Diag d);

// Counts per diagnostic, with the ordinal of the first event concerned.
struct Diagnostics {
  static constexpr uint64_t kNoOrdinal = UINT64_MAX;
  std::array<uint64_t, kDiagCount> counts{};
  std::array<uint64_t, kDiagCount> first_ordinal = [] {
    std::array<uint64_t, kDiagCount> none{};
    none.fill(kNoOrdinal);
    return none;
  }();

  void add(Diag d, uint64_t ordinal = kNoOrdinal, uint64_t n = 1) {
    const auto i = static_cast<size_t>(d);
    if (counts[i] == 0) first_ordinal[i] = ordinal;
    counts[i] += n;
  }
  uint64_t count(Diag d) const { return counts[static_cast<size_t>(d)]; }
  friend bool operator==(const Diagnostics&, const Diagnostics&) = default;
};

}  // namespace attnscope::trace
