/// \file
/// bowline::mpi: a ProcessGroup over MPI.
///
///     MPI_Init(&argc, &argv);
///     BOWLINE_TRY_ASSIGN(options.processes, mpi_processes(MPI_COMM_WORLD));
///     BOWLINE_TRY_ASSIGN(Trainer trainer, Trainer::create(model, device, options));
///
/// Build with the CMake target bowline::mpi, and start with `mpirun -n 4 program`.
#pragma once

#include <mpi.h>

#include <memory>

#include "bowline/processes.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Options of mpi_processes().
struct MpiOptions {
  /// A process counts as lost if another one waits for its bytes for this time. exchange() then
  /// returns device_lost.
  double timeout_seconds = 600;
};

/// Returns a group of the processes of a communicator. It uses a copy of the communicator.
///
/// Call MPI_Init() before. Call MPI_Finalize() after the last pointer to the group is destroyed.
/// The Trainer has one, too.
///
/// Errors: bad_argument: MPI is not initialized. io_error: the communicator cannot be copied.
/// Threads: only the thread that called MPI_Init() may use the group, and so the Trainer.
Result<std::shared_ptr<ProcessGroup>> mpi_processes(MPI_Comm communicator,
                                                    const MpiOptions& options = {});

}  // namespace bowline

// For programs that open libbowline_mpi.so at run time, such as the command bowline.
extern "C" {
/// Initializes MPI and stores a group of all processes in `group`, which the caller deletes.
/// Returns null if it succeeds, or else why it failed: a text that is valid until the next call.
const char* bowline_mpi_open(double timeout_seconds, bowline::ProcessGroup** group);
/// Returns the number of processes on this machine.
int bowline_mpi_local_size(void);
/// Returns the number of this process among those of this machine. The first is 0.
int bowline_mpi_local_rank(void);
/// With 0, finalizes MPI. With another exit code, ends all processes with this code.
void bowline_mpi_close(int exit_code);
}

#pragma GCC visibility pop
