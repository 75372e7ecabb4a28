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
  double timeout_seconds = 600;  ///< A process that sends nothing for so long counts as lost.
};

/// Returns the processes of a communicator. The group uses a copy of the communicator.
///
/// The caller initializes MPI before the call and finalizes MPI after the group is gone.
///
/// Errors: bad_argument: MPI is not initialized. io_error: the communicator cannot be copied.
/// Threads: the group may be used by one thread, the one that called MPI_Init().
Result<std::shared_ptr<ProcessGroup>> mpi_processes(MPI_Comm communicator,
                                                    const MpiOptions& options = {});

}  // namespace bowline

// For programs that open libbowline_mpi.so at run time, such as the command.
extern "C" {
/// Initializes MPI and stores a group of all processes in `group`, which the caller deletes.
/// Returns null, or the reason of a failure.
const char* bowline_mpi_open(double timeout_seconds, bowline::ProcessGroup** group);
/// Returns the number of processes on this machine.
int bowline_mpi_local_size(void);
/// Finalizes MPI. With an exit code other than 0, it ends all processes, with this code.
void bowline_mpi_close(int exit_code);
}

#pragma GCC visibility pop
