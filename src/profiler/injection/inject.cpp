// What `attnscope record` loads into a program: CUDA loads it at its start (CUDA_INJECTION64_PATH), NVTX at
// the first range (NVTX_INJECTION64_PATH). It records GPU activity and ranges into a spool that the recording
// process reads when this one has ended, however it ended. Nothing here prints, exits or throws; when
// something cannot be recorded a note says so in the spool and the program runs on.
#include "profiler/cupti_collector.h"
#include "profiler/injection/nvtx.h"
#include "profiler/injection/spool.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

namespace attnscope::profiler::injection {
namespace {

// Everything of this process; made once, never destroyed: threads of the program may outlive main().
struct State {
  std::mutex mutex;  // names and devices
  spool::Writer* writer = nullptr;
  std::unordered_map<std::string, uint32_t> range_names;
  uint32_t next_name = 1u << 20;  // ranges' ids, apart from those of the collector's table
  size_t names_written = 1;       // of the collector's table
  std::set<uint32_t> devices_written;
  std::unique_ptr<CuptiCollector> collector;
  std::mutex stop_mutex;
  std::condition_variable stop_signal;
  bool stopping = false;
  bool forked = false;
};
State* g_state = nullptr;

int setting(const char* name, int missing) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : missing;
}

void note(const std::string& text) {
  if (g_state && g_state->writer) g_state->writer->append(spool::RecordType::kNote, text.data(), text.size());
}

void on_range(const char* name, uint32_t thread, uint64_t begin, uint64_t end) {
  State& s = *g_state;
  if (!s.writer) return;
  uint32_t id = 0;
  {
    std::lock_guard lock(s.mutex);
    const auto [at, fresh] = s.range_names.try_emplace(name, s.next_name);
    if (fresh) {
      const spool::NameRecord record{s.next_name++, static_cast<uint32_t>(at->first.size())};
      s.writer->append(spool::RecordType::kName, &record, sizeof(record), at->first.data(), at->first.size());
    }
    id = at->second;
  }
  s.writer->append(spool::RecordType::kRange, spool::RangeRecord{id, thread, begin, end});
}

// The facts of a device from the driver that is already loaded; called outside CUPTI's callbacks.
void write_device(uint32_t index) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!driver) return;
  const auto get = reinterpret_cast<decltype(&cuDeviceGet)>(dlsym(driver, "cuDeviceGet"));
  const auto attribute =
      reinterpret_cast<decltype(&cuDeviceGetAttribute)>(dlsym(driver, "cuDeviceGetAttribute"));
  const auto name = reinterpret_cast<decltype(&cuDeviceGetName)>(dlsym(driver, "cuDeviceGetName"));
  const auto memory = reinterpret_cast<CUresult (*)(size_t*, CUdevice)>(dlsym(driver, "cuDeviceTotalMem_v2"));
  CUdevice device = 0;
  if (!get || !attribute || !name || !memory || get(&device, static_cast<int>(index)) != CUDA_SUCCESS) return;
  spool::DeviceRecord r;
  r.index = static_cast<int32_t>(index);
  const struct {
    int32_t& to;
    CUdevice_attribute what;
  } figures[] = {{r.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                 {r.minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
                 {r.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                 {r.warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
                 {r.max_threads_per_block, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
                 {r.max_threads_per_sm, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
                 {r.registers_per_block, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
                 {r.registers_per_sm, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
                 {r.shared_per_block, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
                 {r.shared_per_block_optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
                 {r.shared_per_sm, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR}};
  for (const auto& figure : figures) (void)attribute(&figure.to, figure.what, device);
  size_t bytes = 0;
  if (memory(&bytes, device) == CUDA_SUCCESS) r.memory_bytes = static_cast<int64_t>(bytes);
  (void)name(r.name, sizeof(r.name) - 1, device);
  g_state->writer->append(spool::RecordType::kDevice, r);
}

// After each of CUPTI's buffers, under the collector's lock: everything goes to the spool.
void take(ActivityRecords& records, NameTable& names) {
  State& s = *g_state;
  if (!s.writer) return;
  for (; s.names_written < names.size(); ++s.names_written) {
    const std::string_view text = names.text(static_cast<uint32_t>(s.names_written));
    const spool::NameRecord record{static_cast<uint32_t>(s.names_written),
                                   static_cast<uint32_t>(text.size())};
    s.writer->append(spool::RecordType::kName, &record, sizeof(record), text.data(), text.size());
  }
  s.writer->append_all(spool::RecordType::kApi, records.apis);
  s.writer->append_all(spool::RecordType::kKernel, records.kernels);
  s.writer->append_all(spool::RecordType::kCopy, records.copies);
  s.writer->append_all(spool::RecordType::kFill, records.fills);
  s.writer->append_all(spool::RecordType::kSync, records.syncs);
  s.writer->append_all(spool::RecordType::kOverhead, records.overheads);
  s.writer->append(spool::RecordType::kLoss, records.loss);
  {
    std::lock_guard lock(s.mutex);
    for (const KernelRecord& k : records.kernels) s.devices_written.insert(k.device);
  }
  records = {};
}

void write_new_devices(std::set<uint32_t>& done) {
  std::set<uint32_t> seen;
  {
    std::lock_guard lock(g_state->mutex);
    seen = g_state->devices_written;
  }
  for (const uint32_t device : seen)
    if (done.insert(device).second) write_device(device);
}

// Flushes often, so that a program that dies loses little; ends the recording after --duration.
void flush_loop() {
  State& s = *g_state;
  const auto period = std::chrono::milliseconds(std::max(1, setting("ATTNSCOPE_FLUSH_MS", 50)));
  const int duration_ms = setting("ATTNSCOPE_DURATION_MS", 0);
  const auto began = std::chrono::steady_clock::now();
  std::set<uint32_t> devices;
  std::unique_lock lock(s.stop_mutex);
  while (!s.stopping) {
    s.stop_signal.wait_for(lock, period);
    if (s.stopping) break;
    lock.unlock();
    s.collector->flush();
    write_new_devices(devices);
    const bool over =
        duration_ms > 0 && std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(duration_ms);
    if (over) {
      set_range_sink(nullptr);
      ActivityRecords rest = s.collector->stop();
      s.writer->append(spool::RecordType::kLoss, rest.loss);
      note("the recording ended after the duration asked for; the program ran on");
      return;
    }
    lock.lock();
  }
}

void at_exit() {
  State& s = *g_state;
  if (s.forked) return;
  {
    std::lock_guard lock(s.stop_mutex);
    if (s.stopping) return;
    s.stopping = true;
  }
  s.stop_signal.notify_all();
  close_open_ranges();
  if (!s.collector) return;
  ActivityRecords rest = s.collector->stop();
  s.writer->append(spool::RecordType::kLoss, rest.loss);
  for (const std::string& text : s.collector->notes()) note(text);
  std::set<uint32_t> none;
  write_new_devices(none);
}

// A forked child has none of CUPTI's threads and may not use CUDA that its parent began; its ranges get a
// file of their own.
void in_forked_child() {
  if (!g_state) return;
  State& s = *g_state;
  s.forked = true;
  new (&s.mutex) std::mutex;  // another thread may have held it at the fork
  s.range_names.clear();
  s.next_name = 1u << 20;
  const char* folder = std::getenv("ATTNSCOPE_SPOOL");
  s.writer = folder ? spool::Writer::create(folder) : nullptr;
  note("a forked child: its GPU work, which CUDA does not allow, is not recorded");
}

void start_collector() {
  State& s = *g_state;
  auto api = load_cupti();
  if (!api) return note(api.error().message + "; " + api.error().remedy);
  CollectorOptions options;
  options.on_records = take;
  s.collector = std::make_unique<CuptiCollector>(**api, std::move(options));
  if (const Status started = s.collector->start(); !started) {
    note("GPU activity is not recorded: " + started.error().message + "; " + started.error().remedy);
    s.collector.reset();
    return;
  }
  std::thread(flush_loop).detach();
}

void start_state() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* folder = std::getenv("ATTNSCOPE_SPOOL");
    if (!folder) return;
    auto* state = new State;
    state->writer = spool::Writer::create(folder);
    g_state = state;
    if (!state->writer) return;
    set_range_sink(on_range);
    (void)pthread_atfork(nullptr, nullptr, in_forked_child);
    (void)std::atexit(at_exit);
  });
}

}  // namespace
}  // namespace attnscope::profiler::injection

extern "C" void attnscope_injection_start() {
  try {
    attnscope::profiler::injection::start_state();
  } catch (...) {
    // Out of memory: nothing is recorded, the program runs on.
    attnscope::profiler::injection::set_range_sink(nullptr);
  }
}

// CUDA calls this at its start; the name is CUDA's.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace attnscope::profiler::injection;
  try {
    start_state();
    static std::once_flag once;
    std::call_once(once, [] {
      if (g_state && g_state->writer && !g_state->forked) start_collector();
    });
  } catch (...) {
    return 0;
  }
  return 1;
}
