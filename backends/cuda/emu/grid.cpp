#include "emu/grid.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/format.h"
#include "emu/shared.h"

#if defined(__SANITIZE_ADDRESS__)
#define BOWLINE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BOWLINE_ASAN 1
#endif
#endif
#ifdef BOWLINE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define BOWLINE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BOWLINE_TSAN 1
#endif
#endif
#ifdef BOWLINE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace bowline::detail::cuda_emu {

Running running;

namespace {

namespace context = boost::context::detail;

constexpr size_t kStackBytes = 256 << 10;  // memory-mapped, so untouched pages cost nothing
constexpr unsigned kMaxThreads = 1024;
constexpr uint32_t kAllLanes = 0xFFFFFFFF;

// A stack on which the threads of a block run one after the other.
class Fiber {
 public:
  Fiber() {
    stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) {
      std::abort();  // tests only: no memory for a stack
    }
    reset();
#ifdef BOWLINE_TSAN
    tsan_ = __tsan_create_fiber(0);
#endif
  }
  ~Fiber() {
#ifdef BOWLINE_TSAN
    __tsan_destroy_fiber(tsan_);
#endif
    munmap(stack_, kStackBytes);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Discards the stack content.
  void reset() {
#ifdef BOWLINE_ASAN
    ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);
#endif
    context_ = context::make_fcontext(static_cast<char*>(stack_) + kStackBytes, kStackBytes, entry);
  }

  // Called by the scheduler: runs the fiber until it waits.
  void resume() {
#ifdef BOWLINE_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
#endif
#ifdef BOWLINE_TSAN
    void* const self = __tsan_get_current_fiber();
    tsan_scheduler_ = self;
    __tsan_switch_to_fiber(tsan_, 0);
#endif
    context_ = context::jump_fcontext(context_, this).fctx;
#ifdef BOWLINE_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  // Called by the fiber: returns to the scheduler.
  void wait() {
#ifdef BOWLINE_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, scheduler_stack_, scheduler_bytes_);
#endif
#ifdef BOWLINE_TSAN
    __tsan_switch_to_fiber(tsan_scheduler_, 0);
#endif
    scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
#ifdef BOWLINE_ASAN
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_bytes_);
#endif
  }

 private:
  static void entry(context::transfer_t from);

  void* stack_;
  context::fcontext_t context_ = nullptr;
  context::fcontext_t scheduler_ = nullptr;
#ifdef BOWLINE_ASAN
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
#endif
#ifdef BOWLINE_TSAN
  void* tsan_ = nullptr;
  void* tsan_scheduler_ = nullptr;
#endif
};

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

enum class State : uint8_t { ready, at_barrier, at_collective, ended };

struct Slot {
  Thread thread;
  Fiber* fiber = nullptr;
  State state = State::ready;
  Where where;
};

// Runs the blocks of a grid one after the other.
class Scheduler {
 public:
  std::string run(dim3 grid, dim3 block, const std::function<void()>& kernel,
                  unsigned shared_bytes) {
    kernel_ = &kernel;
    running.shared_bytes = shared_bytes;
    error_.clear();
    reverse_ = !reverse_;
    running.block_dim = block;
    running.grid_dim = grid;
    count_ = block.x * block.y * block.z;
    slots_.resize(count_);
    meetings_.resize((count_ + kWarp - 1) / kWarp);
    warp_barriers_.resize(meetings_.size());
    for (unsigned i = 0; i < count_; ++i) {
      slots_[i].thread = {
          {i % block.x, i / block.x % block.y, i / block.x / block.y}, i, i % kWarp, i / kWarp};
    }
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    for (uint64_t b = 0; b < blocks && error_.empty(); ++b) {
      const uint64_t at = reverse_ ? blocks - 1 - b : b;
      running.block_index = {static_cast<unsigned>(at % grid.x),
                             static_cast<unsigned>(at / grid.x % grid.y),
                             static_cast<unsigned>(at / grid.x / grid.y)};
      run_block();
    }
    running.thread = nullptr;
    return error_;
  }

  // Runs on a fiber: starts the remaining threads one after the other.
  void run_threads(Fiber& fiber) {
    for (;;) {
      while (begun_ < count_) {
        const unsigned i = reverse_ ? count_ - 1 - begun_ : begun_;
        ++begun_;
        slots_[i].fiber = &fiber;
        enter(i);
        run_thread();
        slots_[current_].state = State::ended;
        ++ended_;
      }
      fiber_is_idle_ = true;
      fiber.wait();
    }
  }

  [[noreturn]] void fail(std::string what) {
    error_ = format("Thread {} of block ({}, {}, {}): {}", current_, running.block_index.x,
                    running.block_index.y, running.block_index.z, what);
    std::string().swap(what);  // no destructor runs on this stack any more
    slots_[current_].fiber->wait();
    std::abort();  // a failed fiber never resumes
  }

  void block_barrier(Where where) {
    Slot& me = slots_[current_];
    me.where = where;
    me.state = State::at_barrier;
    if (++at_barrier_ == count_) {
      open_barrier();
    } else {
      wait();
    }
  }

  // The last lane to arrive runs `together`, if there is one.
  Meeting& meet(Collective kind, uint32_t mask, uint64_t value, Where where,
                Together together = nullptr) {
    Slot& me = slots_[current_];
    Meeting& m = meetings_[me.thread.warp];
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
      ++warp_barriers_[me.thread.warp];
      running.warp_barriers = warp_barriers_[me.thread.warp];
    }
    const unsigned first = me.thread.warp * kWarp;
    for (unsigned i = first; i < std::min(first + kWarp, count_); ++i) {
      if (i != current_ && (m.mask >> (i - first) & 1) != 0) {
        release(i);
      }
    }
    return m;
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
      slots_[current_].fiber->wait();
      std::abort();  // a failed fiber never resumes
    }
  }

  void enter(unsigned i) {
    current_ = i;
    running.thread = &slots_[i].thread;
    running.warp_barriers = warp_barriers_[slots_[i].thread.warp];
  }

  // The running thread waits until it is released.
  void wait() {
    const unsigned me = current_;
    slots_[me].fiber->wait();
    enter(me);
  }

  void release(unsigned i) {
    slots_[i].state = State::ready;
    ready_.push_back(i);
  }

  void open_barrier() {
    at_barrier_ = 0;
    ++running.barriers;
    for (unsigned k = 0; k < count_; ++k) {
      const unsigned i = reverse_ ? count_ - 1 - k : k;
      if (i == current_) {
        slots_[i].state = State::ready;  // it continues by itself
      } else {
        release(i);
      }
    }
  }

  void run_block() {
    ++running.block_number;
    running.barriers = 0;
    begun_ = ended_ = at_barrier_ = 0;
    ready_.clear();
    next_ready_ = 0;
    for (Slot& s : slots_) {
      s.state = State::ready;
    }
    for (Meeting& m : meetings_) {
      m.arrived = 0;
    }
    std::fill(warp_barriers_.begin(), warp_barriers_.end(), 0);
    while (error_.empty() && ended_ < count_) {
      Fiber* fiber = nullptr;
      if (begun_ < count_) {
        fiber = idle_fiber();
      } else if (next_ready_ < ready_.size()) {
        const unsigned i = ready_[next_ready_++];
        if (next_ready_ == ready_.size()) {
          ready_.clear();
          next_ready_ = 0;
        }
        fiber = slots_[i].fiber;
      } else {
        error_ = stuck();
        break;
      }
      fiber_is_idle_ = false;
      fiber->resume();
      if (fiber_is_idle_) {
        idle_.push_back(fiber);
      }
    }
    if (!error_.empty()) {
      idle_.clear();
      for (const auto& fiber : fibers_) {
        fiber->reset();
        idle_.push_back(fiber.get());
      }
    }
  }

  Fiber* idle_fiber() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      return fibers_.back().get();
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }

  // Describes a deadlock: all threads wait or have ended, and no thread can continue.
  std::string stuck() const {
    for (const Slot& s : slots_) {
      const Meeting& m = meetings_[s.thread.warp];
      if (s.state != State::at_collective) {
        continue;
      }
      for (unsigned lane = 0; lane < kWarp; ++lane) {
        if ((m.mask >> lane & 1) != 0 && (m.arrived >> lane & 1) == 0) {
          const unsigned other = s.thread.warp * kWarp + lane;
          const char* where = other >= count_                       ? "does not exist"
                              : slots_[other].state == State::ended ? "has ended"
                                                                    : "waits elsewhere";
          return format(
              "Block ({}, {}, {}): the mask of the collective at line {} names lane {} of warp {}, "
              "which {}.",
              running.block_index.x, running.block_index.y, running.block_index.z, m.where.line(),
              lane, s.thread.warp, where);
        }
      }
    }
    for (const Slot& s : slots_) {
      if (s.state == State::at_barrier) {
        return format(
            "Block ({}, {}, {}): {} of {} threads reach the barrier at line {}; {} have ended.",
            running.block_index.x, running.block_index.y, running.block_index.z, at_barrier_,
            count_, s.where.line(), ended_);
      }
    }
    return "No thread can continue.";
  }

  const std::function<void()>* kernel_ = nullptr;
  std::string error_;
  bool reverse_ = true;
  bool fiber_is_idle_ = false;
  unsigned count_ = 0;
  unsigned begun_ = 0;
  unsigned ended_ = 0;
  unsigned at_barrier_ = 0;
  unsigned current_ = 0;
  std::vector<Slot> slots_;
  std::vector<Meeting> meetings_;        // by warp
  std::vector<uint32_t> warp_barriers_;  // by warp
  std::vector<unsigned> ready_;
  size_t next_ready_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
};

// One grid at a time, because shared memory is static.
std::mutex grid_mutex;

Scheduler& scheduler() {
  static Scheduler s;
  return s;
}

void Fiber::entry(context::transfer_t from) {
  auto* fiber = static_cast<Fiber*>(from.data);
  fiber->scheduler_ = from.fctx;
#ifdef BOWLINE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber->scheduler_stack_, &fiber->scheduler_bytes_);
#endif
  scheduler().run_threads(*fiber);
}

}  // namespace

std::string run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel,
                     unsigned shared_bytes) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > 64) {
    return format("A block of {} x {} x {} threads is not possible.", block.x, block.y, block.z);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > 65535 ||
      grid.z > 65535) {
    return format("A grid of {} x {} x {} blocks is not possible.", grid.x, grid.y, grid.z);
  }
  const std::lock_guard lock(grid_mutex);
  return scheduler().run(grid, block, kernel, shared_bytes);
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

void AccessLog::race(const char* does, unsigned other, const char* did) {
  const std::string who = other == kSeveral ? "several threads" : format("thread {}", other);
  fail(format("It {} {} {} in shared memory, with no barrier between.", does, who, did));
}

void AccessLog::unwritten() { fail("It reads shared memory that the block has not written."); }

}  // namespace bowline::detail::cuda_emu
