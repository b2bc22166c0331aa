#include "formats/chrome/metadata.h"

#include "trace/raw_json.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace attnscope::formats::chrome {
namespace {

using trace::DeviceProperties;
using trace::Metadata;

constexpr size_t kMaxOtherBytes = size_t{4} << 20;

std::optional<int64_t> whole(std::string_view text) {
  if (text.size() > 1 && text.front() == '"') text = text.substr(1, text.size() - 2);
  int64_t value = 0;
  uint8_t flags = 0;
  if (!parse_signed(text, value, flags)) return std::nullopt;
  return value;
}
std::string plain(std::string_view text) {
  if (text.size() > 1 && text.front() == '"') text = text.substr(1, text.size() - 2);
  std::string out;
  bool bad_escape = false, bad_utf8 = false;
  decode_string(text, out, bad_escape, bad_utf8);
  return out;
}

std::string_view inside(std::string_view container) {
  return container.size() >= 2 ? container.substr(1, container.size() - 2) : std::string_view{};
}

struct DeviceField {
  std::string_view key;
  int64_t DeviceProperties::* member;
};
constexpr DeviceField kDeviceFields[] = {
    {"totalGlobalMem", &DeviceProperties::total_memory_bytes},
    {"maxThreadsPerBlock", &DeviceProperties::max_threads_per_block},
    {"maxThreadsPerMultiprocessor", &DeviceProperties::max_threads_per_sm},
    {"regsPerBlock", &DeviceProperties::regs_per_block},
    {"regsPerMultiprocessor", &DeviceProperties::regs_per_sm},
    {"warpSize", &DeviceProperties::warp_size},
    {"sharedMemPerBlock", &DeviceProperties::shared_per_block},
    {"sharedMemPerBlockOptin", &DeviceProperties::shared_per_block_optin},
    {"sharedMemPerMultiprocessor", &DeviceProperties::shared_per_sm},
    {"maxSharedMemoryPerMultiProcessor", &DeviceProperties::shared_per_sm},
    {"numSms", &DeviceProperties::num_sms},
};

void take_device(std::string_view members, trace::TraceBuilder& builder) {
  DeviceProperties d;
  trace::for_each_member(members, [&](std::string_view key, std::string_view value) {
    const auto small = [&](int& out) {
      if (const auto v = whole(value)) out = static_cast<int>(std::clamp<int64_t>(*v, -1, 1 << 20));
    };
    if (key == "id") small(d.id);
    if (key == "name") d.name = plain(value);
    if (key == "computeMajor") small(d.compute_major);
    if (key == "computeMinor") small(d.compute_minor);
    for (const DeviceField& field : kDeviceFields)
      if (field.key == key) d.*field.member = whole(value).value_or(-1);
  });
  builder.add_device(std::move(d));
}

void take_devices(std::string_view array, trace::TraceBuilder& builder) {
  std::string_view left = inside(array);
  while (true) {
    const size_t open = left.find('{');
    if (open == std::string_view::npos) return;
    left.remove_prefix(open);
    const size_t n = trace::raw_value_length(left);
    take_device(inside(left.substr(0, n)), builder);
    left.remove_prefix(std::max<size_t>(n, 1));
  }
}

// Members with a place of their own in Metadata. False: none.
bool take_known(const std::string& key, const Token& value, Metadata& m) {
  const std::string_view text = value.text();
  const auto number = [&](std::optional<int64_t>& out) { out = whole(text); };
  const auto flag = [&](bool& out) { out = text != "0" && text != "false"; };
  const auto string = [&](std::string& out) { out = plain(text); };
  if (key == "schemaVersion") return number(m.schema_version), true;
  if (key == "cuda_driver_version") return number(m.cuda_driver_version), true;
  if (key == "cuda_runtime_version") return number(m.cuda_runtime_version), true;
  if (key == "cupti_version") return number(m.cupti_version), true;
  if (key == "hip_driver_version") return number(m.hip_driver_version), true;
  if (key == "hip_runtime_version") return number(m.hip_runtime_version), true;
  if (key == "record_shapes") return flag(m.record_shapes), true;
  if (key == "profile_memory") return flag(m.profile_memory), true;
  if (key == "with_stack") return flag(m.with_stack), true;
  if (key == "with_flops") return flag(m.with_flops), true;
  if (key == "with_modules") return flag(m.with_modules), true;
  if (key == "trace_id") return string(m.trace_id), true;
  if (key == "host_name") return string(m.host_name), true;
  if (key == "traceName") return string(m.trace_name), true;
  if (key == "displayTimeUnit") return string(m.display_time_unit), true;
  return false;
}

}  // namespace

void take_top_level(const std::string& key, const Token& value, trace::TraceBuilder& builder, TopLevel& top) {
  Metadata& m = builder.metadata();
  const std::string_view text = value.text();
  if (key == "baseTimeNanoseconds" || key == "baseTimeNanosecond") {
    int64_t base = 0;
    uint8_t flags = 0;
    if (parse_signed(text, base, flags)) {
      builder.clock().file_base_ns = std::to_string(base);
      builder.clock().has_file_base = top.has_base = true;
    }
    return;
  }
  if ((key == "deviceProperties" || key == "computeProperties") && value.type == TokenType::kContainer)
    return take_devices(text, builder);
  if (take_known(key, value, m)) return;
  if (key == "attnscope_era") {
    const int64_t era = whole(text).value_or(-1);
    if (era >= 0 && era <= static_cast<int64_t>(trace::Era::kAttnscope))
      top.era = static_cast<trace::Era>(era);
    return;
  }
  if (key == "attnscope_producer") {
    m.producer = plain(text);
    return;
  }
  if (key == "attnscope") {
    m.producer = "attnscope " + plain(text);
    return;
  }
  if (key == "distributedInfo" && value.type == TokenType::kContainer) {
    m.distributed_info = text;
    trace::for_each_member(inside(text), [&](std::string_view k, std::string_view v) {
      if (k == "rank") m.rank = whole(v);
      if (k == "world_size") m.world_size = whole(v);
    });
    return;
  }
  if (key == "traceEvents") {  // a second list, or none at all
    builder.diagnostics().add(trace::Diag::kDuplicateKey);
    return;
  }
  top.other_bytes += key.size() + text.size();
  if (top.other_bytes > kMaxOtherBytes) return;
  const size_t quotes = value.type == TokenType::kString ? 1 : 0;
  m.other.emplace_back(key, std::string(text.data() - quotes, text.size() + 2 * quotes));
}

void finish_top_level(const TopLevel& top, EraMarks& marks, trace::TraceBuilder& builder) {
  Metadata& m = builder.metadata();
  marks.base_before_events = top.base_before_events;
  marks.base_after_events = top.has_base && !top.base_before_events;
  marks.attnscope = m.producer.substr(0, 9) == "attnscope";
  for (const auto& [key, value] : m.other) marks.viztracer |= key == "viztracer_metadata";
  marks.has_devices = top.shape.has_member("deviceProperties") || top.shape.has_member("computeProperties");
  const trace::Era era = top.era.value_or(find_era(marks));
  builder.set_era(era);
  if (!m.producer.empty()) return;
  if (marks.viztracer) {
    m.producer = "viztracer";
  } else if (marks.legacy_autograd) {
    m.producer = "PyTorch autograd profiler (before Kineto)";
  } else if (era != trace::Era::kNotKineto) {
    m.producer = "PyTorch (Kineto)";
  } else {
    m.producer = "Chrome trace";
  }
}

}  // namespace attnscope::formats::chrome
