#include "profiler/injection/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace attnscope::profiler::spool {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kWindow = uint64_t{8}
                             << 20;  // the file grows by this much; records do not cross its borders
constexpr size_t kAlign = 8;

struct RecordHead {
  uint32_t type = 0;
  uint32_t bytes = 0;  // of the payload
};

size_t rounded(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

uint32_t layout_version() {
  return static_cast<uint32_t>(1 + sizeof(ApiRecord) * 3 + sizeof(KernelRecord) * 5 + sizeof(CopyRecord) * 7 +
                               sizeof(FillRecord) * 11 + sizeof(SyncRecord) * 13 +
                               sizeof(OverheadRecord) * 17 + sizeof(RangeRecord) * 19 +
                               sizeof(DeviceRecord) * 23);
}

Writer* Writer::create(const std::string& folder) {
  const std::string path = folder + "/" + std::to_string(getpid()) + ".spool";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* page = ftruncate(file, kPage) == 0 ? mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                                           : MAP_FAILED;
  if (page == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  auto* writer = new (std::nothrow) Writer;
  if (!writer) return nullptr;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  writer->file_ = file;
  writer->header_ = new (page) Header;
  writer->header_->layout = layout_version();
  writer->header_->process = static_cast<uint32_t>(getpid());
  writer->header_->started_ns =
      static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
  writer->header_->magic = kMagic;
  return writer;
}

// Makes `bytes` contiguous bytes at written_ mapped, skipping to the next window when this one is too full.
bool Writer::reserve(size_t bytes) {
  if (bytes > kWindow) return false;
  const uint64_t left = window_ ? window_begin_ + kWindow - written_ : 0;
  if (window_ && left >= bytes) return true;
  if (window_ && left >= sizeof(RecordHead)) {
    const RecordHead padding{0, static_cast<uint32_t>(left - sizeof(RecordHead))};
    std::memcpy(window_ + (written_ - window_begin_), &padding, sizeof(padding));
  }
  if (window_) munmap(window_, kWindow);
  window_ = nullptr;
  const uint64_t next = (written_ + kWindow - 1) / kWindow * kWindow;
  if (ftruncate(file_, static_cast<off_t>(kPage + next + kWindow)) != 0) return false;
  void* mapped =
      mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(kPage + next));
  if (mapped == MAP_FAILED) return false;
  window_ = static_cast<std::byte*>(mapped);
  window_begin_ = written_ = next;
  return true;
}

void Writer::append(RecordType type, const void* head, size_t head_bytes, const void* tail,
                    size_t tail_bytes) {
  const size_t payload = head_bytes + tail_bytes;
  const size_t bytes = sizeof(RecordHead) + rounded(payload);
  std::lock_guard lock(mutex_);
  if (!reserve(bytes)) return;
  std::byte* at = window_ + (written_ - window_begin_);
  const RecordHead record{static_cast<uint32_t>(type), static_cast<uint32_t>(payload)};
  std::memcpy(at, &record, sizeof(record));
  std::memcpy(at + sizeof(record), head, head_bytes);
  if (tail_bytes > 0) std::memcpy(at + sizeof(record) + head_bytes, tail, tail_bytes);
  written_ += bytes;
  header_->committed.store(written_, std::memory_order_release);
}

namespace {

template <typename T>
bool take(const std::byte* payload, size_t bytes, std::vector<T>& to) {
  if (bytes != sizeof(T)) return false;
  to.emplace_back();
  std::memcpy(&to.back(), payload, sizeof(T));
  return true;
}

// Ids in the file are the writer's; `map` turns them into ours.
struct NameMap {
  std::vector<uint32_t> ours;
  void set(uint32_t theirs, uint32_t mine) {
    if (theirs >= ours.size()) ours.resize(theirs + 1, 0);
    ours[theirs] = mine;
  }
  uint32_t operator()(uint32_t theirs) const { return theirs < ours.size() ? ours[theirs] : 0; }
};

bool read_record(RecordType type, const std::byte* payload, size_t bytes, NameMap& names, Content& content) {
  switch (type) {
    case RecordType::kPadding: return true;
    case RecordType::kName: {
      NameRecord name;
      if (bytes < sizeof(name)) return false;
      std::memcpy(&name, payload, sizeof(name));
      if (name.bytes > bytes - sizeof(name) || name.id > (1u << 24)) return false;
      names.set(name.id,
                content.names.intern({reinterpret_cast<const char*>(payload) + sizeof(name), name.bytes}));
      return true;
    }
    case RecordType::kApi:
      if (!take(payload, bytes, content.records.apis)) return false;
      content.records.apis.back().name = names(content.records.apis.back().name);
      return true;
    case RecordType::kKernel:
      if (!take(payload, bytes, content.records.kernels)) return false;
      content.records.kernels.back().name = names(content.records.kernels.back().name);
      return true;
    case RecordType::kCopy: return take(payload, bytes, content.records.copies);
    case RecordType::kFill: return take(payload, bytes, content.records.fills);
    case RecordType::kSync: return take(payload, bytes, content.records.syncs);
    case RecordType::kOverhead: return take(payload, bytes, content.records.overheads);
    case RecordType::kRange:
      if (!take(payload, bytes, content.ranges)) return false;
      content.ranges.back().name = names(content.ranges.back().name);
      return true;
    case RecordType::kDevice:
      if (!take(payload, bytes, content.devices)) return false;
      content.devices.back().name[sizeof(DeviceRecord::name) - 1] = '\0';
      return true;
    case RecordType::kLoss: {
      LossCounts loss;
      if (bytes != sizeof(loss)) return false;
      std::memcpy(&loss, payload, sizeof(loss));
      LossCounts& sum = content.records.loss;
      sum.dropped += loss.dropped;
      sum.lost_buffers += loss.lost_buffers;
      sum.unknown += loss.unknown;
      sum.malformed += loss.malformed;
      sum.broken_buffers += loss.broken_buffers;
      return true;
    }
    case RecordType::kNote:
      content.notes.emplace_back(reinterpret_cast<const char*>(payload), bytes);
      return true;
  }
  return false;
}

struct Mapping {
  int file = -1;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  explicit Mapping(const std::string& path) {
    file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info{};
    if (file < 0 || fstat(file, &info) != 0 || info.st_size < static_cast<off_t>(kPage)) return;
    void* mapped = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) return;
    data = static_cast<const std::byte*>(mapped);
    bytes = static_cast<size_t>(info.st_size);
  }
  ~Mapping() {
    if (data) munmap(const_cast<std::byte*>(data), bytes);
    if (file >= 0) close(file);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

}  // namespace

Result<Content> read(const std::string& path) {
  const Mapping mapping(path);
  if (!mapping.data) return fail(ErrorCode::kIo, path + " cannot be read, or is too short for a spool");
  const auto* header = reinterpret_cast<const Header*>(mapping.data);
  if (header->magic != kMagic || header->layout != layout_version())
    return fail(ErrorCode::kBadInput, path + " was not written by this build's injection library");
  Content content;
  content.process = header->process;
  content.started_ns = header->started_ns;
  const uint64_t committed =
      std::min<uint64_t>(header->committed.load(std::memory_order_acquire), mapping.bytes - kPage);
  NameMap names;
  for (uint64_t at = 0; at + sizeof(RecordHead) <= committed;) {
    RecordHead record;
    std::memcpy(&record, mapping.data + kPage + at, sizeof(record));
    const uint64_t end = at + sizeof(record) + rounded(record.bytes);
    if (end > committed) break;
    if (!read_record(static_cast<RecordType>(record.type), mapping.data + kPage + at + sizeof(record),
                     record.bytes, names, content))
      ++content.records.loss.unknown;
    at = end;
  }
  content.records.sort();
  return content;
}

}  // namespace attnscope::profiler::spool
