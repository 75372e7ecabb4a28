// The Vulkan loader, opened at run time, and the functions that this backend uses.
//
// The library does not link libvulkan. A machine without libvulkan lists the backend with a reason.
#pragma once

#include <vector>

#include "newer.h"

namespace bowline::detail::vulkan {

#define BOWLINE_VULKAN_GLOBAL_FUNCTIONS(X)  \
  X(vkCreateInstance)                       \
  X(vkEnumerateInstanceExtensionProperties) \
  X(vkEnumerateInstanceVersion)

#define BOWLINE_VULKAN_INSTANCE_FUNCTIONS(X)        \
  X(vkDestroyInstance)                              \
  X(vkEnumeratePhysicalDevices)                     \
  X(vkGetPhysicalDeviceProperties)                  \
  X(vkGetPhysicalDeviceProperties2)                 \
  X(vkGetPhysicalDeviceFeatures2)                   \
  X(vkGetPhysicalDeviceMemoryProperties2)           \
  X(vkGetPhysicalDeviceQueueFamilyProperties)       \
  X(vkEnumerateDeviceExtensionProperties)           \
  X(vkGetPhysicalDeviceExternalBufferProperties)    \
  X(vkGetPhysicalDeviceExternalSemaphoreProperties) \
  X(vkCreateDevice)                                 \
  X(vkGetDeviceProcAddr)

#define BOWLINE_VULKAN_DEVICE_FUNCTIONS(X) \
  X(vkDestroyDevice)                       \
  X(vkGetDeviceQueue)                      \
  X(vkQueueSubmit)                         \
  X(vkDeviceWaitIdle)                      \
  X(vkAllocateMemory)                      \
  X(vkFreeMemory)                          \
  X(vkMapMemory)                           \
  X(vkCreateBuffer)                        \
  X(vkDestroyBuffer)                       \
  X(vkGetBufferMemoryRequirements)         \
  X(vkBindBufferMemory)                    \
  X(vkGetBufferDeviceAddress)              \
  X(vkCreateShaderModule)                  \
  X(vkDestroyShaderModule)                 \
  X(vkCreateDescriptorSetLayout)           \
  X(vkDestroyDescriptorSetLayout)          \
  X(vkCreateDescriptorPool)                \
  X(vkDestroyDescriptorPool)               \
  X(vkAllocateDescriptorSets)              \
  X(vkUpdateDescriptorSets)                \
  X(vkCreatePipelineLayout)                \
  X(vkDestroyPipelineLayout)               \
  X(vkCreatePipelineCache)                 \
  X(vkDestroyPipelineCache)                \
  X(vkGetPipelineCacheData)                \
  X(vkCreateComputePipelines)              \
  X(vkDestroyPipeline)                     \
  X(vkCreateCommandPool)                   \
  X(vkDestroyCommandPool)                  \
  X(vkAllocateCommandBuffers)              \
  X(vkFreeCommandBuffers)                  \
  X(vkBeginCommandBuffer)                  \
  X(vkEndCommandBuffer)                    \
  X(vkCmdBindPipeline)                     \
  X(vkCmdBindDescriptorSets)               \
  X(vkCmdPushConstants)                    \
  X(vkCmdDispatchBase)                     \
  X(vkCmdPipelineBarrier)                  \
  X(vkCmdCopyBuffer)                       \
  X(vkCmdFillBuffer)                       \
  X(vkCmdResetQueryPool)                   \
  X(vkCmdWriteTimestamp)                   \
  X(vkCreateQueryPool)                     \
  X(vkDestroyQueryPool)                    \
  X(vkGetQueryPoolResults)                 \
  X(vkCreateSemaphore)                     \
  X(vkDestroySemaphore)                    \
  X(vkWaitSemaphores)                      \
  X(vkGetSemaphoreCounterValue)

// A structure of the API with its type; all other members are 0.
template <class T>
T typed(VkStructureType type) {
  T structure{};
  structure.sType = type;
  return structure;
}

// A list of structures of this type, which a driver fills in two calls: call(&count, nullptr)
// counts, call(&count, array) fills. Empty if one fails.
template <class T, class F>
std::vector<T> listed(VkStructureType type, F&& call) {
  uint32_t count = 0;
  if (call(&count, static_cast<T*>(nullptr)) != VK_SUCCESS) {
    return {};
  }
  std::vector<T> all(count, typed<T>(type));
  if (call(&count, all.data()) < 0) {
    return {};
  }
  all.resize(count);
  return all;
}

using Extensions = std::vector<VkExtensionProperties>;
bool has_extension(const Extensions& extensions, const char* name);

// A chain of extension structures (pNext). A structure joins only where the driver knows it.
class Chain {
 public:
  template <class T>
  void add(T* structure, bool known = true) {
    if (known) {
      structure->pNext = first_;
      first_ = structure;
    }
  }
  void* first() const { return first_; }

 private:
  void* first_ = nullptr;
};

#define BOWLINE_VULKAN_MEMBER(name) PFN_##name name = nullptr;

// Loaded through the device, so calls skip the loader's dispatch.
struct DeviceFunctions {
  BOWLINE_VULKAN_DEVICE_FUNCTIONS(BOWLINE_VULKAN_MEMBER)
  // Null where the device has no such extension.
  PFN_vkGetMemoryFdKHR vkGetMemoryFdKHR = nullptr;
  PFN_vkGetMemoryFdPropertiesKHR vkGetMemoryFdPropertiesKHR = nullptr;
  PFN_vkGetSemaphoreFdKHR vkGetSemaphoreFdKHR = nullptr;
  PFN_vkImportSemaphoreFdKHR vkImportSemaphoreFdKHR = nullptr;
};

// The open library, its global functions, and one instance with its functions.
class Loader {
 public:
  Loader() = default;
  // For tests: a driver without a library, or a layer over one.
  explicit Loader(PFN_vkGetInstanceProcAddr driver) : get_proc_(driver) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Opens the library and creates an instance of Vulkan 1.2. Returns null, or the reason for the
  // failure as static text.
  const char* open();
  // Takes an instance of the program, which it never destroys. Returns as open().
  const char* adopt(PFN_vkGetInstanceProcAddr get_proc, VkInstance instance);
  // The driver still runs a submission that hangs: it is neither closed nor unloaded.
  void leave_open();
  bool is_open() const { return instance_ != VK_NULL_HANDLE; }

  VkInstance instance() const { return instance_ != VK_NULL_HANDLE ? instance_ : of_program_; }
  // Loads the functions of `device`. Returns false if the driver lacks one of them.
  bool load(VkDevice device, DeviceFunctions* functions) const;

  BOWLINE_VULKAN_GLOBAL_FUNCTIONS(BOWLINE_VULKAN_MEMBER)
  BOWLINE_VULKAN_INSTANCE_FUNCTIONS(BOWLINE_VULKAN_MEMBER)
  // Null: no driver has VK_KHR_cooperative_matrix, or VK_NV_cooperative_matrix2.
  GetCooperativeMatrices get_matrices = nullptr;
  GetFlexibleMatrices get_flexible_matrices = nullptr;

 private:
  bool has_instance_extension(const char* name) const;
  const char* make_instance();
  // Loads the functions of an instance. Returns false if one is missing.
  bool load(VkInstance instance);

  void* library_ = nullptr;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkInstance of_program_ = VK_NULL_HANDLE;  // instead of instance_
  PFN_vkGetInstanceProcAddr get_proc_ = nullptr;
};

#undef BOWLINE_VULKAN_MEMBER

}  // namespace bowline::detail::vulkan
