#include "trace/diagnostics.h"

namespace attnscope::trace {
namespace {

using enum DiagSeverity;
constexpr std::array<DiagInfo, kDiagCount> kDiagTable{{
    {"truncated-file", kLoss, "the file ends inside the event list",
     "every whole event before the cut was read; the writer was killed or the copy was cut: record or copy "
     "again"},
    {"truncated-compression", kLoss, "the compressed stream ends early or is damaged",
     "everything that could be unpacked was read; copy the file again"},
    {"raw-control-byte", kData, "a control byte stands unescaped inside a string",
     "strict JSON readers reject this file; `explain --repair` writes a clean copy"},
    {"invalid-utf8", kData, "a name is not valid UTF-8",
     "bad bytes were replaced by U+FFFD; `explain --repair` writes a clean copy"},
    {"bad-escape", kData, "a backslash that starts no JSON escape (often a Windows path)",
     "it was read as a plain backslash; `explain --repair` writes a clean copy"},
    {"unescaped-quote", kData, "a quote inside a name is not escaped",
     "the name's real end was found by what follows; `explain --repair` writes a clean copy"},
    {"non-finite-number", kInfo, "NaN, Infinity or N/A where a number belongs",
     "read as not recorded; Kineto writes these for zero durations and unknown device properties"},
    {"huge-integer", kInfo, "an integer beyond 64 bits",
     "its value is not used for linking; readers that use 64-bit integers reject this file"},
    {"time-as-string", kData, "a time is written as a string", "read as the number inside it"},
    {"time-missing", kData, "an event has no readable time", "it was counted, not placed on the timeline"},
    {"time-out-of-range", kData, "a time does not fit 63 bits of nanoseconds",
     "it was clamped; figures of this event mean nothing"},
    {"time-below-nanosecond", kInfo, "a time has digits below one nanosecond",
     "rounded to the nearest nanosecond"},
    {"time-zero", kData, "device work whose start time is 0",
     "the driver lost its time stamps; the event counts, but its place on the timeline is unknown"},
    {"missing-comma", kData, "a comma between two members or events is missing",
     "read as if it were there; `explain --repair` writes a clean copy"},
    {"foreign-text", kData, "text that is not JSON stands between events (log lines, fragments)",
     "skipped up to the next event; keep the program's output away from the trace file"},
    {"duplicate-key", kInfo, "a key appears twice in one event", "the last one counts"},
    {"not-an-event", kData, "an entry of the event list is not an object", "skipped"},
    {"damaged-event", kLoss, "an event is not readable as JSON",
     "skipped up to the next event; `explain --repair` writes what could be read"},
    {"unknown-phase", kInfo, "an event's phase is none this reader knows", "counted, not kept"},
    {"event-too-long", kLoss, "one event is longer than the 64 MiB that a reader may hold",
     "skipped; a call stack or an input list was probably recorded into it"},
    {"member-too-long", kInfo, "a top-level member outside the event list is longer than 1 MiB", "skipped"},
    {"nested-too-deep", kData, "an argument is nested deeper than 256 levels", "that argument was skipped"},
    {"second-document", kData, "the file goes on with another JSON document",
     "only the first was read; split the file, one trace each"},
    {"byte-order-mark", kInfo, "the file starts with a byte-order mark", "skipped"},
    {"utf-16", kInfo, "the file is UTF-16", "converted while reading; `explain --repair` writes UTF-8"},
    {"trailing-data", kData, "text follows the end of the document", "ignored"},
    {"too-many-categories", kLoss, "more than 4,000 event categories", "the rest share one category"},
    {"too-many-threads", kLoss, "more than 65,535 rows (process and thread pairs)", "the rest share one row"},
    {"file-changed", kLoss, "the file became shorter while it was read",
     "read again when its writer has finished"},
    {"negative-duration", kData, "an event ends before it begins",
     "its duration was taken as 0; the clocks of host and device disagree"},
    {"missing-duration", kData, "a complete event has no duration", "taken as 0"},
    {"unfinished-span", kData, "a span was begun but never ended",
     "shown open until the end of the trace; the recording was stopped inside it"},
    {"end-without-begin", kData, "a span's end has no begin", "it began before the recording; skipped"},
    {"missing-name", kData, "an event has no name", "shown with an empty name"},
    {"temporary-file", kLoss, "the name ends in .tmp: the profiler renames the file when it is complete",
     "its writer was interrupted; expect missing events at the end"},
    {"flow-without-end", kInfo, "flow arrows that start and never end",
     "launches whose work was not recorded, or that do nothing on the device"},
    {"flow-without-start", kInfo, "flow arrows that end without a start",
     "Kineto writes these for runtime calls that launch nothing; harmless"},
    {"flows-unchecked", kInfo, "too many different flow ids to pair them all",
     "the flow figures are a lower bound; linking does not use them"},
    {"missing-correlation", kData, "device work without a correlation id",
     "it cannot be linked to its launch"},
    {"duplicate-correlation", kData, "two launch calls with the same correlation id",
     "the call nearest before the work was taken, with low confidence; traces of several processes were "
     "probably merged"},
    {"launch-without-kernel", kInfo, "launch calls whose device work is not in the file",
     "it ran after the window, was dropped, or device activity was not recorded"},
    {"earlier-work-leaking-in", kInfo, "device work before its stream's first linked work",
     "launched before the window opened and still queued; synchronise before the first recorded step"},
    {"unlinked-device-work", kLoss, "device work that no launch in the file explains",
     "its launch record was lost or filtered; it is counted but belongs to no range"},
    {"external-id-unreliable", kInfo, "External id disagrees with the launching operator",
     "links come from correlation ids; PyTorch 1.11 to 2.2 wrote the correlation there"},
    {"overlapping-kernels", kInfo, "kernels of one stream overlap in time",
     "programmatic dependent launch: sums of kernel times exceed wall time here"},
    {"kernel-before-launch", kData, "device work that starts before its launch call begins",
     "host and device clocks disagree; launch delays of these are not used"},
    {"child-outlives-parent", kInfo, "a span ends after the span that encloses its start",
     "kept as a child; its time past the parent's end is not counted as the parent's"},
}};
static_assert(!kDiagTable.back().id.empty());

}  // namespace

const DiagInfo& diag_info(Diag d) {
  return kDiagTable[static_cast<size_t>(d)];
}

}  // namespace attnscope::trace
