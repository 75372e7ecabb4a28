#include "emu/grid.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "base/format.h"
#include "emu/fiber.h"
#include "emu/shared.h"

namespace bowline::detail::cuda_emu {

Running running;

namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr uint32_t kAllLanes = 0xFFFFFFFF;
constexpr const char* kAccesses = "accesses device memory";

// A collective operation that some lanes of a warp have reached.
struct Meeting {
  Collective kind = Collective::shuffle;
  uint32_t mask = 0;
  uint32_t arrived = 0;
  uint64_t values[kWarp] = {};
  uint64_t results[kWarp] = {};  // of the last completed operation
  uint32_t result_mask = 0;
  Where where;
};

enum class State : uint8_t { ready, at_barrier, at_collective, at_counter, ended };

struct Slot {
  Thread thread;
  Fiber* fiber = nullptr;
  State state = State::ready;
  bool has_to_wait = false;  // for the launch before
  Where where;
  const uint32_t* counter = nullptr;  // of a thread at_counter
  uint32_t target = 0;
};

// For each block of the grid, how many of its phases are ordered before something. Barriers divide
// the work of a block into phases: phase n is after n barriers.
using Phases = std::vector<uint32_t>;

void join(Phases& to, const Phases& from) {
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = std::max(to[i], from[i]);
  }
}

struct Block {
  uint3 index;
  uint64_t number = 0;
  uint32_t barriers = 0;
  unsigned begun = 0;
  unsigned ended = 0;
  unsigned at_barrier = 0;
  std::vector<Slot> slots;
  std::vector<Meeting> meetings;        // by warp
  std::vector<uint32_t> warp_barriers;  // by warp
  std::vector<unsigned> ready;
  size_t next_ready = 0;
  std::vector<unsigned> waiting;  // threads at_counter
  Phases known;                   // what is ordered before all its threads
  Phases acquired;                // what a barrier of the block adds to them
};

// The accesses to an element that blocks exchange.
struct Exchanges {
  struct Access {
    uint64_t block;
    uint32_t phase;
    unsigned thread;
    bool by_others = false;  // also by other threads of the block, in the same phase
  };
  std::vector<Access> writes;  // the last one
  std::vector<Access> reads;   // the last one of each block since then
};

// Runs the blocks of a grid: one after the other, or all by turns.
class Scheduler {
 public:
  std::string run(dim3 grid, dim3 block, const std::function<void()>& kernel, unsigned shared_bytes,
                  bool together) {
    kernel_ = &kernel;
    running.shared_bytes = shared_bytes;
    error_.clear();
    reverse_ = !reverse_;
    running.block_dim = block;
    running.grid_dim = grid;
    count_ = block.x * block.y * block.z;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    first_number_ = next_number_;
    next_number_ += blocks;
    counters_.clear();
    exchanges_.clear();
    together ? run_together(blocks) : run_in_turn(blocks);
    running.thread = nullptr;
    return error_;
  }

  // Runs on a fiber: starts the remaining threads of the block one after the other.
  void run_threads(Fiber& fiber) {
    for (;;) {
      while (block_->begun < count_) {
        const unsigned i = reverse_ ? count_ - 1 - block_->begun : block_->begun;
        ++block_->begun;
        block_->slots[i].fiber = &fiber;
        enter(i);
        run_thread();
        check_waited("ends");
        block_->slots[current_].state = State::ended;
        ++block_->ended;
      }
      fiber_is_idle_ = true;
      fiber.wait();
    }
  }

  [[noreturn]] void fail(std::string what) {
    error_ = format("Thread {} of block ({}, {}, {}): {}", current_, running.block_index.x,
                    running.block_index.y, running.block_index.z, what);
    std::string().swap(what);  // no destructor runs on this stack any more
    block_->slots[current_].fiber->wait();
    std::abort();  // a failed fiber never resumes
  }

  void block_barrier(Where where) {
    Slot& me = block_->slots[current_];
    me.where = where;
    me.state = State::at_barrier;
    if (++block_->at_barrier == count_) {
      open_barrier();
    } else {
      wait();
    }
  }

  // The last lane to arrive runs `together`, if there is one.
  Meeting& meet(Collective kind, uint32_t mask, uint64_t value, Where where,
                Together together = nullptr) {
    Slot& me = block_->slots[current_];
    Meeting& m = block_->meetings[me.thread.warp];
    const uint32_t bit = uint32_t{1} << me.thread.lane;
    if ((mask & bit) == 0) {
      fail(format("The mask at line {} does not name the calling lane.", where.line()));
    }
    if (m.arrived == 0) {
      m.kind = kind;
      m.mask = mask;
      m.where = where;
    } else if (m.kind != kind || m.mask != mask || m.where.line() != where.line()) {
      fail(format("Lanes of one warp are at the collectives of lines {} and {}.", m.where.line(),
                  where.line()));
    }
    m.values[me.thread.lane] = value;
    m.arrived |= bit;
    if (m.arrived != m.mask) {
      me.where = where;
      me.state = State::at_collective;
      wait();
      return m;
    }
    std::copy(std::begin(m.values), std::end(m.values), std::begin(m.results));
    m.result_mask = m.mask;
    m.arrived = 0;
    if (together != nullptr) {
      together(m.values);
    }
    if (kind == Collective::barrier && mask == kAllLanes) {
      ++block_->warp_barriers[me.thread.warp];
      running.warp_barriers = block_->warp_barriers[me.thread.warp];
    }
    const unsigned first = me.thread.warp * kWarp;
    for (unsigned i = first; i < std::min(first + kWarp, count_); ++i) {
      if (i != current_ && (m.mask >> (i - first) & 1) != 0) {
        release(i);
      }
    }
    return m;
  }

  void set_has_to_wait(bool value) { block_->slots[current_].has_to_wait = value; }
  void check_waited(const char* does) {
    if (block_->slots[current_].has_to_wait) {
      fail(format("It {} before it waits for the launch before (begin_kernel).", does));
    }
  }

  // Everything that the block did before its last barrier is ordered before later waits.
  void add_release(uint32_t* counter, uint32_t value) {
    check_waited(kAccesses);
    *counter += value;
    if (!block_->known.empty()) {
      Phases& phases = counters_.try_emplace(counter, block_->known.size(), 0).first->second;
      join(phases, block_->known);
      phases[place()] = block_->barriers;
    }
  }

  void wait_acquire(const uint32_t* counter, uint32_t target, Where where) {
    check_waited(kAccesses);
    Slot& me = block_->slots[current_];
    if (!reached(counter, target)) {
      me.where = where;
      me.state = State::at_counter;
      me.counter = counter;
      me.target = target;
      block_->waiting.push_back(current_);
      wait();
    }
    if (const auto found = counters_.find(counter); found != counters_.end()) {
      join(block_->acquired, found->second);
    }
  }

  void exchange_read(const void* at) {
    check_waited(kAccesses);
    Exchanges& e = exchanges_[at];
    for (const Exchanges::Access& write : e.writes) {
      require_order(write, "reads what", "wrote");
    }
    for (Exchanges::Access& read : e.reads) {
      if (read.block == block_->number) {
        const bool same_phase = read.phase == block_->barriers;
        read.by_others = same_phase && (read.by_others || read.thread != current_);
        read.phase = block_->barriers;
        read.thread = current_;
        return;
      }
    }
    e.reads.push_back({block_->number, block_->barriers, current_});
  }

  void exchange_write(const void* at) {
    check_waited(kAccesses);
    Exchanges& e = exchanges_[at];
    for (const Exchanges::Access& write : e.writes) {
      require_order(write, "overwrites what", "wrote");
    }
    for (const Exchanges::Access& read : e.reads) {
      require_order(read, "overwrites what", "read");
    }
    e.reads.clear();
    e.writes.assign(1, {block_->number, block_->barriers, current_});
  }

 private:
  // An exception must not leave the fiber, and a fiber must not switch inside a handler.
  void run_thread() {
    bool exhausted = false;
    try {
      (*kernel_)();
    } catch (const std::bad_alloc&) {
      exhausted = true;
    }
    if (exhausted) {
      error_ = "Out of memory.";  // short enough to need no allocation
      block_->slots[current_].fiber->wait();
      std::abort();  // a failed fiber never resumes
    }
  }

  void run_in_turn(uint64_t blocks) {
    running.place = 0;
    blocks_.resize(std::max<size_t>(blocks_.size(), 1));
    for (uint64_t b = 0; b < blocks && error_.empty(); ++b) {
      start(blocks_[0], reverse_ ? blocks - 1 - b : b);
      run_block();
      if (error_.empty() && blocks_[0].ended < count_) {
        fail_stuck();
      }
    }
  }

  void run_together(uint64_t blocks) {
    blocks_.resize(std::max<size_t>(blocks_.size(), blocks));
    for (uint64_t b = 0; b < blocks; ++b) {
      start(blocks_[b], b);
      blocks_[b].known.assign(blocks, 0);
      blocks_[b].acquired.assign(blocks, 0);
    }
    for (bool continues = true; continues && error_.empty();) {
      continues = false;
      for (uint64_t b = 0; b < blocks && error_.empty(); ++b) {
        const uint64_t at = reverse_ ? blocks - 1 - b : b;
        choose(blocks_[at]);
        running.place = static_cast<unsigned>(at);
        continues = run_block() || continues;
      }
    }
    for (uint64_t b = 0; b < blocks && error_.empty(); ++b) {
      if (blocks_[b].ended < count_) {
        choose(blocks_[b]);
        fail_stuck();
      }
    }
  }

  void enter(unsigned i) {
    current_ = i;
    running.thread = &block_->slots[i].thread;
    running.warp_barriers = block_->warp_barriers[block_->slots[i].thread.warp];
  }

  // The running thread waits until it is released.
  void wait() {
    const unsigned me = current_;
    block_->slots[me].fiber->wait();
    enter(me);
  }

  void release(unsigned i) {
    block_->slots[i].state = State::ready;
    block_->ready.push_back(i);
  }

  void open_barrier() {
    block_->at_barrier = 0;
    running.barriers = ++block_->barriers;
    join(block_->known, block_->acquired);
    for (unsigned k = 0; k < count_; ++k) {
      const unsigned i = reverse_ ? count_ - 1 - k : k;
      if (i == current_) {
        block_->slots[i].state = State::ready;  // it continues by itself
      } else {
        release(i);
      }
    }
  }

  // The number of the running block in the grid.
  size_t place() const { return static_cast<size_t>(block_->number - first_number_); }

  static bool reached(const uint32_t* counter, uint32_t target) {
    return static_cast<int32_t>(*counter - target) >= 0;
  }

  void require_order(const Exchanges::Access& other, const char* does, const char* did) {
    const bool same_block = other.block == block_->number;
    if (same_block && other.thread == current_ && !other.by_others) {
      return;
    }
    const size_t from = static_cast<size_t>(other.block - first_number_);
    const uint32_t ordered = same_block              ? block_->barriers
                             : block_->known.empty() ? 0
                                                     : block_->known[from];
    if (other.phase >= ordered) {
      fail(format("It {} thread {} of block {} {}, with no barrier of the grid between.", does,
                  other.thread, from, did));
    }
  }

  void choose(Block& block) {
    block_ = &block;
    running.block_index = block.index;
    running.block_number = block.number;
    running.barriers = block.barriers;
  }

  void start(Block& block, uint64_t at) {
    const dim3& grid = running.grid_dim;
    const dim3& threads = running.block_dim;
    block.index = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                   static_cast<unsigned>(at / grid.x / grid.y)};
    block.number = first_number_ + at;
    block.barriers = 0;
    block.begun = block.ended = block.at_barrier = 0;
    block.slots.resize(count_);
    for (unsigned i = 0; i < count_; ++i) {
      block.slots[i].thread = {
          {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y},
          i,
          i % kWarp,
          i / kWarp};
      block.slots[i].state = State::ready;
      block.slots[i].has_to_wait = false;
    }
    block.meetings.resize((count_ + kWarp - 1) / kWarp);
    for (Meeting& m : block.meetings) {
      m.arrived = 0;
    }
    block.warp_barriers.assign(block.meetings.size(), 0);
    block.ready.clear();
    block.next_ready = 0;
    block.waiting.clear();
    block.known.clear();
    block.acquired.clear();
    choose(block);
  }

  // Threads whose counter has reached its target continue.
  void release_waiting() {
    std::vector<unsigned> waiting;
    waiting.swap(block_->waiting);
    for (const unsigned i : waiting) {
      if (reached(block_->slots[i].counter, block_->slots[i].target)) {
        release(i);
      } else {
        block_->waiting.push_back(i);
      }
    }
  }

  // Runs the block until it ends or waits for other blocks. Returns false if no thread ran.
  bool run_block() {
    bool ran = false;
    while (error_.empty() && block_->ended < count_) {
      Fiber* fiber = nullptr;
      if (block_->next_ready == block_->ready.size() && block_->begun == count_) {
        release_waiting();
      }
      if (block_->begun < count_) {
        fiber = idle_fiber();
      } else if (block_->next_ready < block_->ready.size()) {
        const unsigned i = block_->ready[block_->next_ready++];
        if (block_->next_ready == block_->ready.size()) {
          block_->ready.clear();
          block_->next_ready = 0;
        }
        fiber = block_->slots[i].fiber;
      } else if (!block_->waiting.empty()) {
        return ran;
      } else {
        error_ = stuck();
        break;
      }
      ran = true;
      fiber_is_idle_ = false;
      fiber->resume();
      if (fiber_is_idle_) {
        idle_.push_back(fiber);
      }
    }
    if (!error_.empty()) {
      reset_fibers();
    }
    return ran;
  }

  void fail_stuck() {
    error_ = stuck();
    reset_fibers();
  }

  void reset_fibers() {
    idle_.clear();
    for (const auto& fiber : fibers_) {
      fiber->reset();
      idle_.push_back(fiber.get());
    }
  }

  Fiber* idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>([this](Fiber& fiber) { run_threads(fiber); }));
      return fibers_.back().get();
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // Describes a deadlock: all threads wait or have ended, and no thread can continue.
  std::string stuck() const {
    const std::vector<Slot>& slots = block_->slots;
    for (const Slot& s : slots) {
      const Meeting& m = block_->meetings[s.thread.warp];
      if (s.state != State::at_collective) {
        continue;
      }
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        if ((m.mask >> lane & 1) != 0 && (m.arrived >> lane & 1) == 0) {
          const unsigned other = s.thread.warp * kWarp + lane;
          const char* where = other >= count_                      ? "does not exist"
                              : slots[other].state == State::ended ? "has ended"
                                                                   : "waits elsewhere";
          return format(
              "Block ({}, {}, {}): the mask of the collective at line {} names lane {} of warp {}, "
              "which {}.",
              running.block_index.x, running.block_index.y, running.block_index.z, m.where.line(),
              lane, s.thread.warp, where);
        }
      }
    }
    for (const Slot& s : slots) {
      if (s.state == State::at_counter) {
        return format(
            "Block ({}, {}, {}): thread {} waits at line {} for a counter that stays at {} of {}.",
            running.block_index.x, running.block_index.y, running.block_index.z, s.thread.linear,
            s.where.line(), *s.counter, s.target);
      }
    }
    for (const Slot& s : slots) {
      if (s.state == State::at_barrier) {
        return format(
            "Block ({}, {}, {}): {} of {} threads reach the barrier at line {}; {} have ended.",
            running.block_index.x, running.block_index.y, running.block_index.z, block_->at_barrier,
            count_, s.where.line(), block_->ended);
      }
    }
    return "No thread can continue.";
  }

  const std::function<void()>* kernel_ = nullptr;
  std::string error_;
  bool reverse_ = true;
  bool fiber_is_idle_ = false;
  unsigned count_ = 0;      // threads of a block
  unsigned current_ = 0;    // the running thread
  Block* block_ = nullptr;  // the running block
  uint64_t first_number_ = 1;
  uint64_t next_number_ = 1;
  std::vector<Block> blocks_;
  std::map<const uint32_t*, Phases> counters_;
  std::unordered_map<const void*, Exchanges> exchanges_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

// One grid at a time, because shared memory is static.
std::mutex grid_mutex;

Scheduler& scheduler() {
  static Scheduler s;
  return s;
}

}  // namespace

std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel,
                     unsigned shared_bytes, bool together) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64) {
    return format("A block of {} x {} x {} threads is not possible.", block.x, block.y, block.z);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
      grid.z > 65535) {
    return format("A grid of {} x {} x {} blocks is not possible.", grid.x, grid.y, grid.z);
  }
  const std::lock_guard lock(grid_mutex);
  return scheduler().run(grid, block, kernel, shared_bytes, together);
}

void fail(std::string what) { scheduler().fail(std::move(what)); }

void block_barrier(Where where) { scheduler().block_barrier(where); }

uint64_t warp_exchange(Collective kind, uint32_t mask, uint64_t value, unsigned source,
                       Where where) {
  const Meeting& m = scheduler().meet(kind, mask, value, where);
  if ((m.result_mask >> source & 1) == 0) {
    fail(format("The shuffle at line {} reads lane {}, which its mask does not name.", where.line(),
                source));
  }
  return m.results[source];
}

uint32_t warp_vote(uint32_t mask, bool value, Where where) {
  const Meeting& m = scheduler().meet(Collective::vote, mask, value ? 1 : 0, where);
  uint32_t lanes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    lanes |= (m.result_mask >> lane & 1) != 0 && m.results[lane] != 0 ? uint32_t{1} << lane : 0;
  }
  return lanes;
}

void warp_together(Together together, uint64_t value, Where where) {
  (void)scheduler().meet(Collective::matrix, kAllLanes, value, where, together);
}

void require_wait() { scheduler().set_has_to_wait(true); }
void wait_for_prerequisites() { scheduler().set_has_to_wait(false); }
void launch_dependents() { scheduler().check_waited("lets the next launch start"); }
void check_waited() { scheduler().check_waited(kAccesses); }

void add_release(uint32_t* counter, uint32_t value) { scheduler().add_release(counter, value); }

void wait_acquire(const uint32_t* counter, uint32_t target, Where where) {
  scheduler().wait_acquire(counter, target, where);
}

void exchange_read(const void* at) { scheduler().exchange_read(at); }
void exchange_write(const void* at) { scheduler().exchange_write(at); }

void AccessLog::race(const char* does, unsigned other, const char* did) {
  const std::string who = other == kSeveral ? "several threads" : format("thread {}", other);
  fail(format("It {} {} {} in shared memory, with no barrier between.", does, who, did));
}

void AccessLog::unwritten() { fail("It reads shared memory that the block has not written."); }

}  // namespace bowline::detail::cuda_emu
