#include "device.h"

#include <algorithm>

#include "base/boundary.h"
#include "device_features.h"

namespace bowline::detail::vulkan {

Device::~Device() {
  if (device_ == VK_NULL_HANDLE || hung_ != nullptr) {
    return;
  }
  wait_idle();
  if (hung_ != nullptr) {
    return;
  }
  speed_.close(functions_, device_);
  if (command_pool_ != VK_NULL_HANDLE) {
    functions_.vkDestroyCommandPool(device_, command_pool_, nullptr);
  }
  if (timeline_ != VK_NULL_HANDLE) {
    functions_.vkDestroySemaphore(device_, timeline_, nullptr);
  }
  if (program_ == nullptr) {
    functions_.vkDestroyDevice(device_, nullptr);
  }
}

void Device::wait_idle() {
  if (program_ == nullptr) {
    functions_.vkDeviceWaitIdle(device_);
  } else if (timeline_ != VK_NULL_HANDLE) {
    // vkDeviceWaitIdle() would need the locks of all queues of the program.
    (void)wait_all();
  }
}

VkResult Device::make() {
  const float priority = 1;
  auto queue = typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue.queueFamilyIndex = physical_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  const DeviceFeatures features(physical_);
  auto info = typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = features.first();
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(features.extensions().size());
  info.ppEnabledExtensionNames = features.extensions().data();
  return loader_->vkCreateDevice(physical_.handle, &info, nullptr, &device_);
}

VkResult Device::open() {
  VkResult result = VK_SUCCESS;
  if (program_ != nullptr) {
    device_ = program_->device;
  } else {
    result = make();
  }
  if (result != VK_SUCCESS) {
    return result;
  }
  if (!loader_->load(device_, &functions_)) {
    // Destroyed here, because a caller with a handle may call every function.
    if (functions_.vkDestroyDevice != nullptr && program_ == nullptr) {
      functions_.vkDestroyDevice(device_, nullptr);
    }
    device_ = VK_NULL_HANDLE;
    return VK_ERROR_INCOMPATIBLE_DRIVER;
  }
  load_shared();
  if (program_ != nullptr) {
    queue_ = program_->queue;
  } else {
    functions_.vkGetDeviceQueue(device_, physical_.queue_family, 0, &queue_);
  }
  auto pool = typed<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = physical_.queue_family;
  result = functions_.vkCreateCommandPool(device_, &pool, nullptr, &command_pool_);
  if (result != VK_SUCCESS) {
    return result;
  }
  auto type = typed<VkSemaphoreTypeCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  auto semaphore = typed<VkSemaphoreCreateInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO);
  semaphore.pNext = &type;
  result = functions_.vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_);
  return result == VK_SUCCESS ? speed_.open(functions_, physical_, device_, command_pool_) : result;
}

void Device::load_shared() {
  const auto load = [&]<class F>(bool has, F& function, const char* name) {
    function = has ? reinterpret_cast<F>(loader_->vkGetDeviceProcAddr(device_, name)) : nullptr;
  };
  load(physical_.has_memory_fd, functions_.vkGetMemoryFdKHR, "vkGetMemoryFdKHR");
  load(physical_.has_memory_fd, functions_.vkGetMemoryFdPropertiesKHR,
       "vkGetMemoryFdPropertiesKHR");
  load(physical_.has_semaphore_fd, functions_.vkGetSemaphoreFdKHR, "vkGetSemaphoreFdKHR");
  load(physical_.has_semaphore_fd, functions_.vkImportSemaphoreFdKHR, "vkImportSemaphoreFdKHR");
}

VkResult Device::queue_submit(const VkSubmitInfo& info) {
  const bool locks = program_ != nullptr && program_->lock != nullptr;
  bool is_locked = !locks;
  if (locks) {
    ignoring_exceptions([&] {
      program_->lock();
      is_locked = true;
    });
  }
  if (!is_locked) {
    return VK_ERROR_UNKNOWN;
  }
  const VkResult result = functions_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE);
  if (locks) {
    ignoring_exceptions([&] { program_->unlock(); });
  }
  return result;
}

VkResult Device::submit_semaphore(const SharedSemaphore& semaphore, uint64_t value, bool waits) {
  const uint64_t next = submitted_ + 1;
  const VkPipelineStageFlags stages = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  const VkSemaphore signals[] = {timeline_, semaphore.handle};
  const uint64_t values[] = {next, value};  // binary semaphores ignore theirs
  auto timeline =
      typed<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  auto info = typed<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.pNext = &timeline;
  info.signalSemaphoreCount = timeline.signalSemaphoreValueCount = waits ? 1 : 2;
  info.pSignalSemaphores = signals;
  timeline.pSignalSemaphoreValues = values;
  if (waits) {
    info.waitSemaphoreCount = timeline.waitSemaphoreValueCount = 1;
    info.pWaitSemaphores = &semaphore.handle;
    info.pWaitDstStageMask = &stages;
    timeline.pWaitSemaphoreValues = &value;
  }
  const VkResult result = queue_submit(info);
  if (result == VK_SUCCESS) {
    submitted_ = next;
    latest_[next % latest_.size()] = {};
  }
  return result;
}

VkResult Device::submit(const VkCommandBuffer* buffers, uint32_t count, const Submitted& work,
                        uint64_t* value) {
  std::array<VkCommandBuffer, kMostBuffers + 2> all;
  const Speed::Pair* const timed = speed_.pair_for(work.estimated_ns);
  uint32_t used = 0;
  if (timed != nullptr) {
    all[used++] = timed->begin;
  }
  std::copy_n(buffers, count, all.begin() + used);
  used += count;
  if (timed != nullptr) {
    all[used++] = timed->end;
  }
  const uint64_t next = submitted_ + 1;
  auto timeline =
      typed<VkTimelineSemaphoreSubmitInfo>(VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &next;
  auto info = typed<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.pNext = &timeline;
  info.commandBufferCount = used;
  info.pCommandBuffers = all.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  const VkResult result = queue_submit(info);
  if (result == VK_SUCCESS) {
    submitted_ = next;
    latest_[next % latest_.size()] = work;
    speed_.submitted(next);
    *value = next;
  }
  return result;
}

VkResult Device::wait(uint64_t value) {
  if (value <= ended_) {
    return VK_SUCCESS;
  }
  auto info = typed<VkSemaphoreWaitInfo>(VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO);
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &value;
  uint64_t seen = UINT64_MAX;
  for (;;) {
    VkResult result = functions_.vkWaitSemaphores(device_, &info, physical_.wait_limit_ns);
    uint64_t reached = value;
    if (result == VK_TIMEOUT) {
      result = functions_.vkGetSemaphoreCounterValue(device_, timeline_, &reached);
    }
    if (result != VK_SUCCESS) {
      return result;
    }
    if (reached >= value) {
      ended_ = reached;
      speed_.read(functions_, device_, reached);
      return VK_SUCCESS;
    }
    if (reached == seen) {
      hung_ = &latest_[(reached + 1) % latest_.size()];
      return VK_TIMEOUT;
    }
    seen = reached;
  }
}

}  // namespace bowline::detail::vulkan
