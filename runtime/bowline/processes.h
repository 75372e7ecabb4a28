/// \file
/// ProcessGroup: the processes that train one model together.
///
/// Each process has the whole model and computes the gradients of its share of the micro-batches.
/// The Trainer sums the gradients of all processes. So all processes have the same weights after
/// each step. A ProcessGroup sends the bytes. bowline::mpi has one over MPI (bowline_mpi.h).
///
/// If each process has a CUDA GPU of its own, and NCCL (libnccl.so.2) is installed, gradients and
/// weights go directly between the GPUs. A ProcessGroup is still needed: the processes compare
/// their runs and report errors through it. The log callback of a device says which way is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Sends bytes between the processes that train one model.
///
/// The Trainer calls exchange() in the thread that calls the Trainer. It makes the same calls in
/// all processes, in the same order.
///
/// Threads: one thread at a time. A group can be stricter.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  /// Returns the number of this process. The first process is 0.
  virtual uint32_t rank() const = 0;
  /// Returns the number of processes.
  virtual uint32_t size() const = 0;

  /// Sends `to[r]` to process r, and receives `from[r]` from process r.
  ///
  /// Returns when all bytes have arrived, and the memory of `to` may be reused. Both lists have
  /// size() entries. The entries of this process are ignored. Empty entries are neither sent nor
  /// received. The size of `from[r]` must be the size that process r sends.
  ///
  /// Errors: device_lost: another process does not answer. The message names it. End all processes,
  /// and start them again from the last checkpoint.
  virtual Status exchange(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) = 0;

  /// Returns the time in seconds after which a process counts as lost. It also holds for GPUs that
  /// exchange gradients without exchange().
  virtual double timeout_seconds() const { return 600; }
};

}  // namespace bowline

#pragma GCC visibility pop
