// The exchanges of the processes that train one model (ProcessGroup).
#pragma once

#include <vector>

#include "train/linked_sums.h"

namespace bowline::detail::train {

Place place_of(const TrainOptions& options);

// Returns the owner of each trained storage, by tie index. The storages are divided so that the
// owners have about the same number of bytes. All processes compute the same division.
std::vector<uint32_t> owners(const params::Table& table, uint32_t processes);
// Returns those of the trained storages that this process owns, ascending.
std::vector<uint32_t> owned_here(const params::Table& table, const TrainOptions& options);

// The first status that is an error.
inline Status first_error(Status first, Status second) {
  return first.ok() ? std::move(second) : std::move(first);
}

// Returns the errors of all processes as one: that of the first process that has an error.
// Errors  device_lost: a process does not answer.
Status agree_all(ProcessGroup& group, const Status& mine);
inline Status agree(ProcessGroup* group, const Status& mine) {
  return !kHasProcesses || group == nullptr || group->size() == 1 ? mine : agree_all(*group, mine);
}

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
//
// The sums are in host memory, and the processes exchange them through the ProcessGroup. If the
// devices of all processes can be linked (device::Link), the sums stay on the devices.
//
// A process takes part in every exchange, even if its own work fails: then no message of this call
// is left for a later one. The caller agrees on the results. After an error it calls unlink(),
// because a link may still hold messages.
class GradientSums {
 public:
  GradientSums() = default;
  GradientSums(const params::Table& table, const TrainOptions& options);

  // Links the devices, or decides that the sums go through the host. All processes call it together
  // before the first add(), and again when one of them is not settled. The sums are kept.
  Status settle(const params::Table& table, const std::shared_ptr<device::OpenDevice>& device);
  bool settled() const { return settled_ || place_.size == 1; }
  // The plans or the device changed.
  void unsettle() { settled_ = false; }
  // Ends the link. With `keep`, which can fail, the sums are kept.
  Status unlink(bool keep);
  // The memory of the sums on the device.
  uint64_t device_bytes() const { return linked() == nullptr ? 0 : linked()->device_bytes(); }

  // Adds the gradient rows of the first `processes` processes to the sums of the owners. `first`:
  // the sums start with them.
  Status add(const params::Table& table, uint32_t processes, bool first);
  // Writes the sums to the gradient rows of all processes.
  Status share_sums(const params::Table& table);
  // Sends the values of each trained storage from its owner to the others. Counts them as written.
  Status share_weights(params::Table& table);
  // Takes the gradient rows as the sums.
  Status load(const params::Table& table);

  Result<std::vector<float>> sums() const;
  Status set_sums(const std::vector<float>& sums);

 private:
  std::span<float> part_of(std::vector<float>& all, uint32_t rank) const {
    return std::span(all).subspan(parts_[rank].first, parts_[rank].elements);
  }
  LinkedSums* linked() const { return kHasProcesses ? linked_.get() : nullptr; }
  // Allocates the host memory, if there is none yet.
  void allocate();
  // Links the devices, if this process is ready. Returns why they are not linked.
  Status link(const params::Table& table, const std::shared_ptr<device::OpenDevice>& device,
              const Status& ready);
  Status read(const params::Table& table, std::vector<float>& to) const;

  ProcessGroup* group_ = nullptr;
  Place place_;
  std::vector<OwnedPart> parts_;  // by rank of the owner
  bool settled_ = false;
  std::unique_ptr<LinkedSums> linked_;  // null: the sums are in host memory
  std::vector<float> sums_;             // of the storages of this process
  std::vector<float> rows_;             // the gradient rows of this process
  std::vector<float> received_;
};

}  // namespace bowline::detail::train
