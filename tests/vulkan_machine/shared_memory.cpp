#include "shared_memory.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "module.h"

namespace bowline::detail::vulkan::machine {
namespace {

constexpr uint32_t kCellBytes = 2;

std::string who(uint32_t lane) {
  return lane >= kMatrixLoad ? "an operation on matrices" : format("lane {}", lane);
}

}  // namespace

SharedMemory::SharedMemory(uint32_t bytes)
    : bytes_((bytes + 3) / 4 * 4), cells_(bytes_.size() / kCellBytes) {}

void SharedMemory::poison() {
  for (size_t at = 0; at < bytes_.size(); at += sizeof(kPoison)) {
    std::memcpy(bytes_.data() + at, &kPoison, sizeof(kPoison));
  }
  std::ranges::fill(cells_, Cell());
}

size_t SharedMemory::cell_of(const void* address) const {
  return static_cast<size_t>(static_cast<const char*>(address) - bytes_.data()) / kCellBytes;
}

bool SharedMemory::conflicts(const Access& earlier, const Moment& now) {
  if (!earlier.exists || earlier.moment.workgroup_barriers != now.workgroup_barriers) {
    return false;
  }
  // Barriers of a subgroup do not order operations of a whole workgroup.
  if (earlier.by_subgroups || earlier.moment.subgroup != now.subgroup ||
      now.subgroup == kAnySubgroup) {
    return true;
  }
  return earlier.moment.subgroup_barriers == now.subgroup_barriers &&
         (earlier.by_several || earlier.moment.lane != now.lane);
}

std::string SharedMemory::reads(const void* address, uint32_t bytes, const Moment& now) {
  for (size_t i = cell_of(address), n = (bytes + kCellBytes - 1) / kCellBytes; n > 0; --n, ++i) {
    Cell& cell = cells_[i];
    if (!cell.write.exists) {
      return format("{} reads byte {} of shared memory, which nobody wrote", who(now.lane),
                    i * kCellBytes);
    }
    if (conflicts(cell.write, now)) {
      return format("{} reads byte {} of shared memory, which {} wrote, without a barrier",
                    who(now.lane), i * kCellBytes, who(cell.write.moment.lane));
    }
    Access& read = cell.read;
    const bool same = read.exists && read.moment.workgroup_barriers == now.workgroup_barriers;
    const bool same_subgroup = same && read.moment.subgroup == now.subgroup;
    read.by_subgroups = same && (read.by_subgroups || !same_subgroup);
    read.by_several = same_subgroup && read.moment.subgroup_barriers == now.subgroup_barriers &&
                      (read.by_several || read.moment.lane != now.lane);
    read.exists = true;
    read.moment = now;
  }
  return {};
}

std::string SharedMemory::writes(const void* address, uint32_t bytes, const Moment& now) {
  for (size_t i = cell_of(address), n = (bytes + kCellBytes - 1) / kCellBytes; n > 0; --n, ++i) {
    Cell& cell = cells_[i];
    for (const auto& [access, verb] : {std::pair(&cell.write, "wrote"), {&cell.read, "read"}}) {
      if (conflicts(*access, now)) {
        return format("{} writes byte {} of shared memory, which {} {}, without a barrier",
                      who(now.lane), i * kCellBytes, who(access->moment.lane), verb);
      }
    }
    cell.write.exists = true;
    cell.write.moment = now;
  }
  return {};
}

}  // namespace bowline::detail::vulkan::machine
