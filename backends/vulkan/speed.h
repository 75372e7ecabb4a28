// Measures how long submissions take, with timestamps of the device.
//
// The estimated rates of dispatch.cpp can be wrong by much more than a factor of two, above all on
// integrated GPUs. The measured factor corrects the cuts of later recordings, which changes no
// result.
#pragma once

#include <array>

#include "physical_device.h"

namespace bowline::detail::vulkan {

class Speed {
 public:
  // Makes the command buffers that write timestamps. Without timestamps, factor() stays 1.
  VkResult open(const DeviceFunctions& vk, const PhysicalDevice& physical, VkDevice device,
                VkCommandPool pool);
  void close(const DeviceFunctions& vk, VkDevice device);

  // A pair of command buffers to put around a submission, or null: it is not measured.
  struct Pair {
    VkCommandBuffer begin = VK_NULL_HANDLE;
    VkCommandBuffer end = VK_NULL_HANDLE;
  };
  const Pair* pair_for(double estimated_ns);
  // The last pair belongs to submission `value`.
  void submitted(uint64_t value);
  // Reads the times of the submissions up to `done`, which have ended.
  void read(const DeviceFunctions& vk, VkDevice device, uint64_t done);
  // Measured time per estimated time, from 1/8 to 64: each part of a recording costs some time,
  // too.
  double factor() const;

 private:
  struct Slot {
    Pair pair;
    uint64_t value = 0;  // 0: free
    double estimated_ns = 0;
  };
  std::array<Slot, 8> slots_;
  Slot* last_ = nullptr;
  VkQueryPool queries_ = VK_NULL_HANDLE;
  double period_ns_ = 0;
  uint64_t valid_ticks_ = 0;  // mask
  uint64_t asked_ = 0;        // for pairs
  double measured_ns_ = 0;    // sums in which older submissions count less
  double estimated_ns_ = 0;
};

}  // namespace bowline::detail::vulkan
