// The processes that mpirun started. They train one model together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

class Processes {
 public:
  // Joins the other processes if mpirun started this one. Else it is alone.
  // Errors  unsupported: this installation has no libbowline_mpi.so.
  static Result<Processes> join(double timeout_seconds);

  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  uint32_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  uint32_t size() const { return group_ == nullptr ? 1 : group_->size(); }
  bool is_first() const { return rank() == 0; }
  // The CPU threads of this process if the user gives no number. 0: one per core.
  int threads() const;
  // The device of this process, if the user names `name` for all: see device_of_process().
  std::string device(const std::string& name) const;

  // Returns the error of any process in all.
  Status agree(const Status& mine) const;
  // Returns the value of each process.
  Result<std::vector<uint64_t>> all(uint64_t mine) const;
  // Copies the bytes of process 0 to the others.
  Status share_first(std::span<std::byte> bytes) const;

  // Ends the use of MPI. `together`: all processes end with this code. If not, the others are
  // ended.
  void leave(int exit_code, bool together);

 private:
  std::shared_ptr<ProcessGroup> group_;
  int local_size_ = 1;
  int local_rank_ = 0;
  void (*close_)(int) = nullptr;
};

}  // namespace bowline::command
