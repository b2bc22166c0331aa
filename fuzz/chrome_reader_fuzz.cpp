// Any bytes at all: the reader answers with a trace or a refusal, the links of a trace can be built, and what
// the writer and the repair make of it is read back.

#include "json_mutator.h"

#include "formats/chrome/reader.h"
#include "formats/chrome/repair.h"
#include "formats/chrome/writer.h"
#include "trace/link.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace attnscope;

namespace {

// Touches every accessor of every event.
uint64_t visit(const trace::Trace& t, const trace::Links& l) {
  uint64_t sum = 0;
  for (trace::EventIndex i = 0; i < t.size(); ++i) {
    sum += t.name(i).size() + t.category(i).size() + static_cast<uint64_t>(t.dur_ns(i));
    sum += t.correlation(i) + t.external_id(i) + t.sequence(i) + t.forward_thread(i);
    sum += t.operator_args(i).input_dims.size() + static_cast<uint64_t>(t.copy(i).bytes);
    sum += t.kernel(i).config + static_cast<uint64_t>(t.memory(i).bytes) + t.python(i).id;
    sum += t.thread_of(i).pid.size() + static_cast<uint64_t>(l.step_of(i));
    if (t.at_ordinal(t.ordinal(i)) != i) std::abort();
    if (l.parent(i) == i || l.launch(i) == i) std::abort();
    sum += l.launched_by(i);
  }
  if (t.size() > 0) sum += l.range_sum(t.name_id(0)).calls;
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  formats::chrome::ReadOptions options;
  options.limits.max_plain_bytes = 32 << 20;
  options.max_event_bytes = 1 << 20;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto read = formats::chrome::read_memory(bytes, "fuzz", options);
  if (!read) {
    if (read.error().message.empty()) std::abort();
    return 0;
  }
  const trace::Links links = trace::Links::build(*read);
  volatile uint64_t keep = visit(*read, links);
  (void)keep;
  std::string text;
  const auto sink = formats::append_to(text);
  if (!formats::chrome::write(*read, links, *sink)) std::abort();
  const auto again = formats::chrome::read_memory(text, "again");
  // A trace without events is refused as none.
  if (read->size() > 0 && (!again || again->size() != read->size())) std::abort();
  std::string repaired;
  const auto repaired_sink = formats::append_to(repaired);
  const auto repair = formats::chrome::repair_memory(bytes, *repaired_sink, options);
  if (!repair || repair->size() != read->size()) std::abort();
  const auto once_more = formats::chrome::read_memory(repaired, "repaired");
  if (read->size() > 0 && (!once_more || once_more->size() != read->size())) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}
