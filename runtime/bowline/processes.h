/// \file
/// ProcessGroup: the processes that train one model together.
///
/// Each process has the whole model and computes the gradients of its share of the micro-batches.
/// The Trainer sums the gradients of all processes, so that all have the same weights after each
/// step. The library does not depend on a way to send bytes: a ProcessGroup supplies it.
/// bowline::mpi has one for OpenMPI (bowline_mpi.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Sends bytes between the processes that train one model.
///
/// Threads: one thread at a time. A process calls functions of a group in the same order as all
/// others.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  /// Returns the number of this process. The first process is 0.
  virtual uint32_t rank() const = 0;
  /// Returns the number of processes.
  virtual uint32_t size() const = 0;

  /// Sends `to[r]` to process r, and receives `from[r]` from process r.
  ///
  /// Both lists have size() entries. The entries of this process are ignored. Empty entries are
  /// neither sent nor received. The size of `from[r]` must be the size that process r sends.
  ///
  /// Errors: device_lost: a process does not answer. The message names it. End this process, then
  /// resume from the last checkpoint.
  virtual Status exchange(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) = 0;
};

}  // namespace bowline

#pragma GCC visibility pop
