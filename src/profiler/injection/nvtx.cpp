#include "profiler/injection/nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace attnscope::profiler::injection {
namespace {

std::atomic<RangeSink> g_sink{nullptr};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}
uint32_t thread_id() {
  thread_local const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
  return id;
}

struct Open {
  std::string name;
  uint64_t begin_ns;
};
// Ranges of all domains nest on one stack: a program that mixes domains on a thread nests them as it runs.
thread_local std::vector<Open> t_open;

void give(const std::string& name, uint32_t thread, uint64_t begin, uint64_t end) {
  if (RangeSink sink = g_sink.load(std::memory_order_acquire)) sink(name.c_str(), thread, begin, end);
}

int push(const char* name) {
  t_open.push_back({name ? name : "(unnamed range)", now_ns()});
  return static_cast<int>(t_open.size()) - 1;
}
int pop() {
  if (t_open.empty()) return -1;
  const Open range = std::move(t_open.back());
  t_open.pop_back();
  give(range.name, thread_id(), range.begin_ns, now_ns());
  return static_cast<int>(t_open.size());
}

// Ranges that start on one thread and may end on another.
struct Started {
  Open range;
  uint32_t thread;
};
std::mutex g_mutex;
std::unordered_map<nvtxRangeId_t, Started> g_started;
nvtxRangeId_t g_next = 1;
std::unordered_set<std::string> g_strings;  // registered: their addresses are the handles

nvtxRangeId_t start(const char* name) {
  std::lock_guard lock(g_mutex);
  g_started.emplace(g_next, Started{{name ? name : "(unnamed range)", now_ns()}, thread_id()});
  return g_next++;
}
void end(nvtxRangeId_t id) {
  const uint64_t now = now_ns();
  std::lock_guard lock(g_mutex);
  const auto found = g_started.find(id);
  if (found == g_started.end()) return;
  give(found->second.range.name, found->second.thread, found->second.range.begin_ns, now);
  g_started.erase(found);
}

const char* text_of(const nvtxEventAttributes_t* a) {
  if (!a) return nullptr;
  if (a->messageType == NVTX_MESSAGE_TYPE_ASCII) return a->message.ascii;
  if (a->messageType == NVTX_MESSAGE_TYPE_REGISTERED && a->message.registered)
    return reinterpret_cast<const std::string*>(a->message.registered)->c_str();
  return nullptr;
}

int on_push_a(const char* name) {
  return push(name);
}
int on_push_ex(const nvtxEventAttributes_t* a) {
  return push(text_of(a));
}
int on_pop() {
  return pop();
}
nvtxRangeId_t on_start_a(const char* name) {
  return start(name);
}
nvtxRangeId_t on_start_ex(const nvtxEventAttributes_t* a) {
  return start(text_of(a));
}
void on_end(nvtxRangeId_t id) {
  end(id);
}
int on_domain_push_ex(nvtxDomainHandle_t, const nvtxEventAttributes_t* a) {
  return push(text_of(a));
}
int on_domain_pop(nvtxDomainHandle_t) {
  return pop();
}
nvtxRangeId_t on_domain_start_ex(nvtxDomainHandle_t, const nvtxEventAttributes_t* a) {
  return start(text_of(a));
}
void on_domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) {
  end(id);
}
nvtxStringHandle_t on_register_string(nvtxDomainHandle_t, const char* text) {
  std::lock_guard lock(g_mutex);
  const std::string* stored = &*g_strings.insert(text ? text : "").first;
  return reinterpret_cast<nvtxStringHandle_t>(const_cast<std::string*>(stored));
}

template <typename F>
void put(NvtxFunctionTable table, unsigned int size, unsigned int id, F function) {
  if (id < size && table[id]) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

void set_range_sink(RangeSink sink) {
  g_sink.store(sink, std::memory_order_release);
}

void close_open_ranges() {
  for (const Open& range : t_open) give(range.name, thread_id(), range.begin_ns, 0);
  t_open.clear();
}

}  // namespace attnscope::profiler::injection

extern "C" void attnscope_injection_start();  // inject.cpp

// NVTX calls this when NVTX_INJECTION64_PATH names our library: the functions it asks for are replaced by
// ours.
// NOLINTNEXTLINE(readability-identifier-naming): the name is NVTX's
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  using namespace attnscope::profiler::injection;
  const auto* callbacks = reinterpret_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (!callbacks) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) {
    put(table, size, NVTX_CBID_CORE_RangePushA, on_push_a);
    put(table, size, NVTX_CBID_CORE_RangePushEx, on_push_ex);
    put(table, size, NVTX_CBID_CORE_RangePop, on_pop);
    put(table, size, NVTX_CBID_CORE_RangeStartA, on_start_a);
    put(table, size, NVTX_CBID_CORE_RangeStartEx, on_start_ex);
    put(table, size, NVTX_CBID_CORE_RangeEnd, on_end);
  }
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
    put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, on_domain_push_ex);
    put(table, size, NVTX_CBID_CORE2_DomainRangePop, on_domain_pop);
    put(table, size, NVTX_CBID_CORE2_DomainRangeStartEx, on_domain_start_ex);
    put(table, size, NVTX_CBID_CORE2_DomainRangeEnd, on_domain_end);
    put(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, on_register_string);
  }
  attnscope_injection_start();
  return 1;
}
