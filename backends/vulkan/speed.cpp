#include "speed.h"

#include <algorithm>

namespace bowline::detail::vulkan {
namespace {

// Shorter submissions measure the latency of the driver.
constexpr double kShortestNs = 1e6;

// Two more command buffers slow a submission down. So, after the first submissions, only one of
// this many is measured.
constexpr uint64_t kMeasureOneOf = 16;

VkResult record_timestamp(const DeviceFunctions& vk, VkCommandBuffer buffer, VkQueryPool queries,
                          uint32_t query) {
  auto info = typed<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  const VkResult result = vk.vkBeginCommandBuffer(buffer, &info);
  if (result != VK_SUCCESS) {
    return result;
  }
  vk.vkCmdResetQueryPool(buffer, queries, query, 1);
  // Written when all earlier commands have ended.
  vk.vkCmdWriteTimestamp(buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries, query);
  return vk.vkEndCommandBuffer(buffer);
}

}  // namespace

double Speed::factor() const {
  return estimated_ns_ == 0 ? 1 : std::clamp(measured_ns_ / estimated_ns_, 1.0 / 8, 64.0);
}

VkResult Speed::open(const DeviceFunctions& vk, const PhysicalDevice& physical, VkDevice device,
                     VkCommandPool pool) {
  if (physical.timestamp_bits == 0) {
    return VK_SUCCESS;
  }
  period_ns_ = physical.properties.limits.timestampPeriod;
  valid_ticks_ = UINT64_MAX >> (64 - std::min(physical.timestamp_bits, 64u));
  auto info = typed<VkQueryPoolCreateInfo>(VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO);
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = 2 * static_cast<uint32_t>(slots_.size());
  VkResult result = vk.vkCreateQueryPool(device, &info, nullptr, &queries_);
  auto allocate =
      typed<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  allocate.commandPool = pool;
  allocate.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  allocate.commandBufferCount = 1;
  uint32_t query = 0;
  for (Slot& slot : slots_) {
    for (VkCommandBuffer* const buffer : {&slot.pair.begin, &slot.pair.end}) {
      if (result == VK_SUCCESS) {
        result = vk.vkAllocateCommandBuffers(device, &allocate, buffer);
      }
      if (result == VK_SUCCESS) {
        result = record_timestamp(vk, *buffer, queries_, query++);
      }
    }
  }
  return result;
}

void Speed::close(const DeviceFunctions& vk, VkDevice device) {
  if (queries_ != VK_NULL_HANDLE) {
    vk.vkDestroyQueryPool(device, queries_, nullptr);
  }
}

const Speed::Pair* Speed::pair_for(double estimated_ns) {
  const auto free = std::ranges::find(slots_, 0u, &Slot::value);
  last_ = nullptr;
  if (queries_ == VK_NULL_HANDLE || free == slots_.end() || estimated_ns < kShortestNs) {
    return nullptr;
  }
  if (++asked_ > kMeasureOneOf && asked_ % kMeasureOneOf != 0) {
    return nullptr;
  }
  last_ = &*free;
  last_->estimated_ns = estimated_ns;
  return &last_->pair;
}

void Speed::submitted(uint64_t value) {
  if (last_ != nullptr) {
    last_->value = value;
  }
}

void Speed::read(const DeviceFunctions& vk, VkDevice device, uint64_t done) {
  for (Slot& slot : slots_) {
    if (slot.value == 0 || slot.value > done) {
      continue;
    }
    slot.value = 0;
    uint64_t ticks[2] = {};
    const auto first = 2 * static_cast<uint32_t>(&slot - slots_.data());
    if (vk.vkGetQueryPoolResults(device, queries_, first, 2, sizeof(ticks), ticks, sizeof(ticks[0]),
                                 VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
      continue;
    }
    const double ns = static_cast<double>((ticks[1] - ticks[0]) & valid_ticks_) * period_ns_;
    measured_ns_ = measured_ns_ / 2 + ns;
    estimated_ns_ = estimated_ns_ / 2 + slot.estimated_ns;
  }
}

}  // namespace bowline::detail::vulkan
