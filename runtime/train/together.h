// The exchanges of the processes that train one model (ProcessGroup).
#pragma once

#include <vector>

#include "params/table.h"

namespace bowline::detail::train {

// The number of this process and the number of processes. Without a group there is one.
struct Place {
  uint32_t rank = 0;
  uint32_t size = 1;
};
Place place_of(const TrainOptions& options);

// Returns the owner of each trained storage, by tie index. The storages are divided so that the
// owners have about the same number of bytes. All processes compute the same division.
std::vector<uint32_t> owners(const params::Table& table, uint32_t processes);
// Returns those of the trained storages that this process owns, ascending.
std::vector<uint32_t> owned_here(const params::Table& table, const TrainOptions& options);

// Returns the errors of all processes as one: that of the first process that has an error.
// Errors  device_lost: a process does not answer.
Status agree(ProcessGroup* group, const Status& mine);

// Checks that all processes have the same value for each item: (what it is, the value).
// Errors  bad_argument: the message names the process and the first item that differs.
using Items = std::vector<std::pair<std::string, std::string>>;
Status require_same(ProcessGroup& group, const Items& items);

// Sends the parts of each process to all others. `parts[r]` has the size of what process r sends;
// that of this process is its own part.
Status share(ProcessGroup& group, std::span<const std::span<std::byte>> parts);

// Sums gradient rows over micro-batches and processes.
//
// Each storage has an owner. In a round, each process sends its gradient of a storage to the owner,
// which adds the gradients in the order of the processes, that is, of the micro-batches.
class GradientSums {
 public:
  GradientSums() = default;
  GradientSums(const params::Table& table, const TrainOptions& options);

  // Adds the gradient rows of the first `processes` processes to the sums of the owners. `first`:
  // the sums start with them.
  Status add(const params::Table& table, uint32_t processes, bool first);
  // Writes the sums to the gradient rows of all processes.
  Status share_sums(const params::Table& table);
  // Sends the values of each trained storage from its owner to the others. Counts them as written.
  Status share_weights(params::Table& table);
  // Takes the gradient rows as the sums.
  Status load(const params::Table& table);

  const std::vector<float>& sums() const { return sums_; }
  void set_sums(const std::vector<float>& sums) { sums_ = sums; }

 private:
  // A storage in the order of the buffers: by owner, then by tie index.
  struct Item {
    uint32_t tie = 0;
    uint64_t elements = 0;
  };
  // The items of an owner, and their place in a buffer of all gradients.
  struct Part {
    std::vector<Item> items;
    uint64_t first = 0;
    uint64_t elements = 0;
  };

  std::span<float> part_of(std::vector<float>& all, uint32_t rank) const {
    return std::span(all).subspan(parts_[rank].first, parts_[rank].elements);
  }
  Status read(const params::Table& table, std::vector<float>& to) const;

  ProcessGroup* group_ = nullptr;
  Place place_;
  std::vector<Part> parts_;  // by rank of the owner
  std::vector<float> sums_;  // of the storages of this process
  std::vector<float> rows_;  // the gradient rows of this process
  std::vector<float> received_;
};

}  // namespace bowline::detail::train
