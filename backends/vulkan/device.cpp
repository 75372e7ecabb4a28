#include "device.h"

#include <algorithm>

namespace bowline::detail::vulkan {

Device::~Device() {
  if (device_ == VK_NULL_HANDLE || hung_ != nullptr) {
    return;
  }
  functions_.vkDeviceWaitIdle(device_);
  speed_.close(functions_, device_);
  if (command_pool_ != VK_NULL_HANDLE) {
    functions_.vkDestroyCommandPool(device_, command_pool_, nullptr);
  }
  if (timeline_ != VK_NULL_HANDLE) {
    functions_.vkDestroySemaphore(device_, timeline_, nullptr);
  }
  functions_.vkDestroyDevice(device_, nullptr);
}

// Enables what the kernels may use.
VkResult Device::make() {
  const float priority = 1;
  auto queue = typed<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue.queueFamilyIndex = physical_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  const auto as_bool = [](bool value) -> VkBool32 { return value ? VK_TRUE : VK_FALSE; };
  auto vulkan12 = typed<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  vulkan12.storageBuffer8BitAccess = as_bool(physical_.has_8bit_storage);
  const bool has_units = physical_.f16_unit.m != 0 || physical_.bf16_unit.m != 0;
  vulkan12.shaderFloat16 = as_bool(physical_.f16_unit.m != 0);
  vulkan12.vulkanMemoryModel = as_bool(has_units);
  vulkan12.bufferDeviceAddress = as_bool(physical_.has_buffer_addresses);
  vulkan12.timelineSemaphore = VK_TRUE;
  vulkan12.scalarBlockLayout = VK_TRUE;
  auto half = typed<VkPhysicalDevice16BitStorageFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
  half.storageBuffer16BitAccess = as_bool(physical_.has_16bit_storage);
  auto control = typed<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  control.subgroupSizeControl = VK_TRUE;
  control.computeFullSubgroups = VK_TRUE;
  auto matrices = typed<CooperativeMatrixFeatures>(kCooperativeMatrixFeaturesType);
  matrices.cooperativeMatrix = VK_TRUE;
  const bool has_workgroup_units = has_units && !physical_.workgroup_units.empty();
  auto of_workgroups = typed<CooperativeMatrix2Features>(kCooperativeMatrix2FeaturesType);
  of_workgroups.cooperativeMatrixWorkgroupScope = VK_TRUE;
  of_workgroups.cooperativeMatrixFlexibleDimensions = VK_TRUE;
  auto bf16 = typed<Bfloat16Features>(kBfloat16FeaturesType);
  bf16.shaderBFloat16Type = bf16.shaderBFloat16CooperativeMatrix = VK_TRUE;
  auto features = typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  features.features.shaderInt64 = as_bool(physical_.has_int64);
  Chain chain;
  chain.add(&vulkan12);
  chain.add(&half);
  std::vector<const char*> extensions;
  const auto use = [&](bool available, const char* extension, auto* structure) {
    if (available) {
      extensions.push_back(extension);
      chain.add(structure);
    }
  };
  use(physical_.max_subgroup != 0, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME, &control);
  use(has_units, kCooperativeMatrixExtension, &matrices);
  use(has_workgroup_units, kCooperativeMatrix2Extension, &of_workgroups);
  use(physical_.bf16_unit.m != 0, kBfloat16Extension, &bf16);
  if (physical_.has_memory_budget) {
    extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  }
  if (physical_.is_portability_subset) {
    extensions.push_back(kPortabilitySubsetExtension);
  }
  features.pNext = chain.first();
  auto info = typed<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO);
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  return loader_->vkCreateDevice(physical_.handle, &info, nullptr, &device_);
}

VkResult Device::open() {
  VkResult result = make();
  if (result != VK_SUCCESS) {
    return result;
  }
  if (!loader_->load(device_, &functions_)) {
    // Destroyed here, because a caller with a handle may call every function.
    if (functions_.vkDestroyDevice != nullptr) {
      functions_.vkDestroyDevice(device_, nullptr);
    }
    device_ = VK_NULL_HANDLE;
    return VK_ERROR_INCOMPATIBLE_DRIVER;
  }
  functions_.vkGetDeviceQueue(device_, physical_.queue_family, 0, &queue_);
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
  const VkResult result = functions_.vkQueueSubmit(queue_, 1, &info, VK_NULL_HANDLE);
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
