// A stack on which the host runs emulated threads, and switches between them.
#pragma once

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <functional>
#include <utility>

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

namespace context = boost::context::detail;

// A stack on which the threads of a block run one after the other.
class Fiber {
  static constexpr size_t kStackBytes = 256 << 10;  // untouched pages cost nothing

 public:
  // `run` must never return.
  explicit Fiber(std::function<void(Fiber&)> run) : run_(std::move(run)) {
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
  static void entry(context::transfer_t from) {
    auto* fiber = static_cast<Fiber*>(from.data);
    fiber->scheduler_ = from.fctx;
#ifdef BOWLINE_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &fiber->scheduler_stack_, &fiber->scheduler_bytes_);
#endif
    fiber->run_(*fiber);
  }

  std::function<void(Fiber&)> run_;
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

}  // namespace bowline::detail::cuda_emu
