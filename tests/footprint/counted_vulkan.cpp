// Intercepts vkAllocateMemory and vkFreeMemory of the driver, through the functions that the
// backend looks up by name.
#include <dlfcn.h>
#include <vulkan/vulkan.h>

#include <cstring>
#include <map>
#include <mutex>

#include "footprint/counted.h"

namespace bowline::test {

Counted& counted_vulkan() {
  static Counted counted;
  return counted;
}

namespace {

PFN_vkGetInstanceProcAddr real_instance_function = nullptr;
PFN_vkGetDeviceProcAddr real_device_function = nullptr;
PFN_vkAllocateMemory real_allocate = nullptr;
PFN_vkFreeMemory real_free = nullptr;
std::mutex mutex;
std::map<VkDeviceMemory, int64_t> sizes;

VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* callbacks,
                                        VkDeviceMemory* memory) {
  const VkResult result = real_allocate(device, info, callbacks, memory);
  if (result == VK_SUCCESS) {
    const std::lock_guard lock(mutex);
    sizes[*memory] = static_cast<int64_t>(info->allocationSize);
    counted_vulkan().add(sizes[*memory]);
  }
  return result;
}

VKAPI_ATTR void VKAPI_CALL release(VkDevice device, VkDeviceMemory memory,
                                   const VkAllocationCallbacks* callbacks) {
  {
    const std::lock_guard lock(mutex);
    counted_vulkan().add(-sizes[memory]);
    sizes.erase(memory);
  }
  real_free(device, memory, callbacks);
}

template <class Real>
PFN_vkVoidFunction replace(PFN_vkVoidFunction found, Real& real, Real ours) {
  if (found == nullptr) {
    return nullptr;
  }
  real = reinterpret_cast<Real>(found);
  return reinterpret_cast<PFN_vkVoidFunction>(ours);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char* name) {
  const PFN_vkVoidFunction found = real_device_function(device, name);
  if (std::strcmp(name, "vkAllocateMemory") == 0) {
    return replace<PFN_vkAllocateMemory>(found, real_allocate, allocate);
  }
  if (std::strcmp(name, "vkFreeMemory") == 0) {
    return replace<PFN_vkFreeMemory>(found, real_free, release);
  }
  return found;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char* name) {
  const PFN_vkVoidFunction found = real_instance_function(instance, name);
  return std::strcmp(name, "vkGetDeviceProcAddr") == 0
             ? replace<PFN_vkGetDeviceProcAddr>(found, real_device_function, device_function)
             : found;
}

using Dlsym = void* (*)(void*, const char*);

Dlsym real_dlsym() {
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (void* found = dlvsym(RTLD_NEXT, "dlsym", version)) {
      return reinterpret_cast<Dlsym>(found);
    }
  }
  return nullptr;
}

}  // namespace
}  // namespace bowline::test

extern "C" void* dlsym(void* library, const char* name) noexcept {
  using namespace bowline::test;
  static const Dlsym real = real_dlsym();
  void* found = real(library, name);
  if (found == nullptr || std::strcmp(name, "vkGetInstanceProcAddr") != 0) {
    return found;
  }
  real_instance_function = reinterpret_cast<PFN_vkGetInstanceProcAddr>(found);
  return reinterpret_cast<void*>(instance_function);
}
