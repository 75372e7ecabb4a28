/// \file
/// ProcessGroup: the processes that train one model together.
///
/// Each process has the whole model and computes the gradients of its share of the micro-batches.
/// The Trainer sums the gradients of all processes. So all processes have the same weights after
/// each step. The Trainer uses a ProcessGroup to send bytes to the other processes. bowline::mpi
/// implements ProcessGroup with MPI (bowline_mpi.h).
///
/// If each process has its own CUDA GPU and NCCL (libnccl.so.2) is installed, gradients and weights
/// go directly from GPU to GPU. The ProcessGroup is still needed: through it, the processes compare
/// their options and report errors. DeviceOptions::log gets a message that says which way is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Sends bytes between the processes that train one model.
///
/// To implement it, override rank(), size() and exchange(). The Trainer calls exchange() in the
/// thread that calls the Trainer. It makes the same calls in all processes, in the same order.
///
/// Threads: one thread at a time. An implementation can be stricter: mpi_processes() allows only
/// the thread that called MPI_Init().
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  /// Returns the number of this process. The first process is 0.
  virtual uint32_t rank() const = 0;
  /// Returns the number of processes.
  virtual uint32_t size() const = 0;

  /// Sends `to[r]` to process r, and receives `from[r]` from process r.
  ///
  /// Returns when all bytes have arrived and the caller may reuse the memory of `to`. Both lists
  /// have one entry per process. The entries of this process are ignored. Empty entries are neither
  /// sent nor received. The size of `from[r]` must be the size that process r sends.
  ///
  /// Errors: device_lost: another process does not answer. The message names the process. End all
  /// processes, and start them again from the last checkpoint.
  virtual Status exchange(std::span<const std::span<const std::byte>> to,
                          std::span<const std::span<std::byte>> from) = 0;

  /// Returns the time in seconds after which a process that does not answer counts as lost. The
  /// Trainer also uses it for GPUs that exchange gradients directly.
  virtual double timeout_seconds() const { return 600; }
};

}  // namespace bowline

#pragma GCC visibility pop
