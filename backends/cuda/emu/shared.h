// Shared memory that records its accesses.
//
// `__shared__ Shared<float[32][33]> tile;` is a plain array in CUDA. Here, each element remembers
// its last accesses. If two threads access an element and one of them writes, a barrier of the
// block must separate the accesses, or a barrier of the warp if both threads are in the same warp.
// Atomic increments need no barrier between each other. Between them and other accesses, only a
// barrier of the block counts.
#pragma once

#include <type_traits>

#include "emu/grid.h"

namespace bowline::detail::cuda_emu {

// Accesses to one element since its first write by the block.
class AccessLog {
 public:
  void read() {
    if (block_ != running.block_number) {
      unwritten();
    }
    const unsigned me = running.thread->linear;
    if (writer_ != me && write_barriers_ == running.barriers &&
        !ordered_in_warp(writer_, write_warp_barriers_)) {
      race("reads what", writer_, "wrote");
    }
    if (reads_ == Reads::none || read_barriers_ != running.barriers) {
      reads_ = Reads::one;
    } else if (reader_ != me) {
      const bool same_warp = reader_ / kWarp == me / kWarp && reads_ != Reads::warps;
      reads_ = same_warp ? Reads::warp : Reads::warps;
    }
    reader_ = me;
    read_barriers_ = running.barriers;
    read_warp_barriers_ = running.warp_barriers;
  }

  // A read by several lanes of the running warp at once.
  void read_by_warp() {
    if (block_ != running.block_number) {
      unwritten();
    }
    if (write_barriers_ == running.barriers && !ordered_in_warp(writer_, write_warp_barriers_)) {
      race("reads what", writer_, "wrote");
    }
    const unsigned me = running.thread->linear;
    const bool first = reads_ == Reads::none || read_barriers_ != running.barriers;
    const bool same_warp = first || (reader_ / kWarp == me / kWarp && reads_ != Reads::warps);
    reads_ = same_warp ? Reads::warp : Reads::warps;
    reader_ = me;
    read_barriers_ = running.barriers;
    read_warp_barriers_ = running.warp_barriers;
  }

  void write() {
    const unsigned me = running.thread->linear;
    if (block_ == running.block_number) {
      if (writer_ != me && write_barriers_ == running.barriers &&
          !ordered_in_warp(writer_, write_warp_barriers_)) {
        race("overwrites what", writer_, "wrote");
      }
      const bool read_since = reads_ != Reads::none && read_barriers_ == running.barriers;
      const bool only_mine = reads_ == Reads::one && reader_ == me;
      if (read_since && !only_mine &&
          (reads_ == Reads::warps || !ordered_in_warp(reader_, read_warp_barriers_))) {
        race("overwrites what", reader_, "read");
      }
    }
    block_ = running.block_number;
    writer_ = me;
    write_barriers_ = running.barriers;
    write_warp_barriers_ = running.warp_barriers;
    reads_ = Reads::none;
    increments_ = false;
  }

  void increment() {
    const bool follows_write =
        block_ == running.block_number && write_barriers_ == running.barriers;
    if (follows_write && increments_ && reads_ == Reads::none) {
      writer_ = writer_ == running.thread->linear ? writer_ : kSeveral;
      return;
    }
    read();
    write();
    increments_ = !follows_write;
  }

 private:
  static constexpr unsigned kSeveral = static_cast<unsigned>(-1);

  // The readers since the last write, in the phase of read_barriers_.
  enum class Reads : uint8_t { none, one, warp, warps };

  static bool ordered_in_warp(unsigned other, uint32_t warp_barriers) {
    return other / kWarp == running.thread->warp && warp_barriers != running.warp_barriers;
  }
  [[noreturn]] static void race(const char* does, unsigned other, const char* did);
  [[noreturn]] static void unwritten();

  uint64_t block_ = 0;
  uint32_t write_barriers_ = 0;
  uint32_t write_warp_barriers_ = 0;
  uint32_t read_barriers_ = 0;
  uint32_t read_warp_barriers_ = 0;
  unsigned writer_ = 0;
  unsigned reader_ = 0;
  Reads reads_ = Reads::none;
  bool increments_ = false;  // the last writes are atomic increments
};

// An element of shared memory.
template <class T>
class Tracked {
 public:
  operator T() const {  // NOLINT: implicit, because it replaces a T
    log_.read();
    return value_;
  }
  Tracked& operator=(T value) {
    log_.write();
    value_ = value;
    return *this;
  }
  Tracked& operator=(const Tracked& other) { return *this = static_cast<T>(other); }
  Tracked& operator+=(T value) { return *this = static_cast<T>(*this) + value; }
  // Returns the old value. After `most` comes 0.
  T increment(T most) {
    log_.increment();
    const T old = value_;
    value_ = old >= most ? 0 : old + 1;
    return old;
  }

 private:
  T value_;
  mutable AccessLog log_;
};

inline unsigned atomicInc(Tracked<unsigned>* at, unsigned most) { return at->increment(most); }

template <class T>
struct SharedType {
  using type = Tracked<T>;
};
template <class T, std::size_t N>
struct SharedType<T[N]> {
  using type = typename SharedType<T>::type[N];
};
template <class T>
using Shared = typename SharedType<T>::type;

}  // namespace bowline::detail::cuda_emu
