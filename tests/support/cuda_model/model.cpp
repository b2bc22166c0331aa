#include "support/cuda_model/model.h"

#include <ucontext.h>

#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <vector>

namespace attnscope::cuda_model {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr uint32_t kBlockShift = 20;  // shared addresses: block of the cluster, byte

struct Meeting {
  int arrived = 0;
  int64_t generation = 0;
};
struct Warp {
  Meeting meeting;
  const void* slots[32] = {};
};
struct Copy {
  void* to;
  const void* from;
  int bytes;
};
struct BlockState {
  std::vector<std::byte> storage;
  std::byte* shared = nullptr;
  std::vector<Warp> warps;
  Meeting all;
  Meeting some[16];
};
struct Fibre {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  int block = 0, rank = 0, thread = 0;
  bool done = false;
  std::deque<std::vector<Copy>> groups{{}};  // the last one is open
};

struct Machine {
  Launch launch;
  const std::function<void(void*)>* kernel = nullptr;
  std::vector<BlockState> blocks;
  std::vector<std::unique_ptr<Fibre>> fibres;
  Meeting cluster;
  Fibre* current = nullptr;
  ucontext_t scheduler{};
  int64_t moves = 0;  // arrivals so far: none in a whole round means a deadlock
};
Machine* machine = nullptr;

BlockState& block() {
  return machine->blocks[static_cast<size_t>(machine->current->rank)];
}
Warp& warp() {
  return block().warps[static_cast<size_t>(machine->current->thread / 32)];
}
void give_way() {
  swapcontext(&machine->current->context, &machine->scheduler);
}
void meet(Meeting& m, int threads) {
  const int64_t generation = m.generation;
  ++machine->moves;
  if (++m.arrived == threads) {
    m.arrived = 0;
    ++m.generation;
    return;
  }
  while (m.generation == generation) give_way();
}
void perform(const Copy& c) {
  std::memset(c.to, 0, 16);
  if (c.bytes > 0) std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
}
void enter() {
  Fibre& f = *machine->current;
  (*machine->kernel)(block().shared);
  f.done = true;
  ++machine->moves;
  give_way();
}

std::unique_ptr<Fibre> new_fibre(int block_number, int rank, int thread) {
  auto f = std::make_unique<Fibre>();
  f->stack = std::make_unique<char[]>(kStackBytes);
  f->block = block_number, f->rank = rank, f->thread = thread;
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack.get();
  f->context.uc_stack.ss_size = kStackBytes;
  f->context.uc_link = nullptr;
  makecontext(&f->context, enter, 0);
  return f;
}

void run_cluster(int first_block) {
  Machine& m = *machine;
  m.fibres.clear();
  m.blocks.clear();
  m.blocks.resize(static_cast<size_t>(m.launch.cluster));
  m.cluster = {};
  for (int rank = 0; rank < m.launch.cluster; ++rank) {
    BlockState& b = m.blocks[static_cast<size_t>(rank)];
    b.storage.assign(m.launch.shared_bytes + 1024, std::byte{0xff});  // NaN in every float type
    const auto at = reinterpret_cast<uintptr_t>(b.storage.data());
    b.shared = b.storage.data() + (1024 - at % 1024) % 1024;
    b.warps.resize(static_cast<size_t>(m.launch.threads / 32));
    for (int t = 0; t < m.launch.threads; ++t) m.fibres.push_back(new_fibre(first_block + rank, rank, t));
  }
  for (bool left = true; left;) {
    left = false;
    const int64_t before = m.moves;
    for (const auto& f : m.fibres) {
      if (f->done) continue;
      left = true;
      m.current = f.get();
      threadIdx.x = static_cast<unsigned>(f->thread);
      blockIdx.x = static_cast<unsigned>(f->block);
      swapcontext(&m.scheduler, &f->context);
    }
    if (left && m.moves == before) throw std::runtime_error("threads wait for others that never arrive");
  }
}

}  // namespace

void run(const Launch& launch, const std::function<void(void*)>& kernel) {
  Machine m;
  m.launch = launch;
  m.kernel = &kernel;
  machine = &m;
  gridDim.x = static_cast<unsigned>(launch.blocks);
  for (int b = 0; b < launch.blocks; b += launch.cluster) run_cluster(b);
  machine = nullptr;
}

void wait_warp() {
  meet(warp().meeting, 32);
}
void wait_block() {
  meet(block().all, machine->launch.threads);
}
void wait_some(int id, int threads) {
  meet(block().some[id], threads);
}
void wait_cluster() {
  meet(machine->cluster, machine->launch.threads * machine->launch.cluster);
}
const void* const* exchange(const void* value) {
  warp().slots[machine->current->thread % 32] = value;
  wait_warp();
  return warp().slots;
}
int lane() {
  return machine->current->thread % 32;
}
uint32_t shared_address(const void* p) {
  const auto offset = static_cast<const std::byte*>(p) - block().shared;
  return static_cast<uint32_t>(offset) | static_cast<uint32_t>(machine->current->rank) << kBlockShift;
}
void* shared_pointer(uint32_t address) {
  return machine->blocks[address >> kBlockShift].shared + (address & ((1u << kBlockShift) - 1));
}
uint32_t address_in_block(uint32_t address, int rank) {
  return (address & ((1u << kBlockShift) - 1)) | static_cast<uint32_t>(rank) << kBlockShift;
}
void copy_async(uint32_t to, const void* from, int bytes) {
  const Copy copy{shared_pointer(to), from, bytes};
  if (machine->launch.copies_land_late)
    machine->current->groups.back().push_back(copy);
  else
    perform(copy);
}
void copy_commit() {
  machine->current->groups.emplace_back();
}
void copy_wait(int pending) {
  auto& groups = machine->current->groups;
  while (static_cast<int>(groups.size()) - 1 > pending) {
    for (const Copy& c : groups.front()) perform(c);
    groups.pop_front();
  }
}

}  // namespace attnscope::cuda_model
