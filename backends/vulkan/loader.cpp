#include "loader.h"

#include <dlfcn.h>

namespace bowline::detail::vulkan {
namespace {

// dlsym returns function pointers as object pointers, which POSIX allows.
template <typename Function>
Function as_function(void* symbol) {
  return reinterpret_cast<Function>(symbol);
}

}  // namespace

Loader::~Loader() {
  if (instance_ != VK_NULL_HANDLE) {
    vkDestroyInstance(instance_, nullptr);
  }
  if (library_ != nullptr) {
    dlclose(library_);
  }
}

const char* Loader::open() {
  if (is_open()) {
    return nullptr;
  }
  if (library_ == nullptr) {
    library_ = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  }
  if (library_ == nullptr) {
    return "No Vulkan loader (libvulkan.so.1) is installed.";
  }
  get_proc_ = as_function<PFN_vkGetInstanceProcAddr>(dlsym(library_, "vkGetInstanceProcAddr"));
  if (get_proc_ == nullptr) {
    return "The Vulkan loader has no vkGetInstanceProcAddr.";
  }
#define LOAD(name) name = reinterpret_cast<PFN_##name>(get_proc_(VK_NULL_HANDLE, #name));
  BOWLINE_VULKAN_GLOBAL_FUNCTIONS(LOAD)
#undef LOAD
  return make_instance();
}

const char* Loader::make_instance() {
  uint32_t version = VK_API_VERSION_1_0;
  if (vkCreateInstance == nullptr || vkEnumerateInstanceVersion == nullptr ||
      vkEnumerateInstanceVersion(&version) != VK_SUCCESS || version < VK_API_VERSION_1_2) {
    return "The Vulkan loader is older than version 1.2.";
  }
  auto application = typed<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pEngineName = "bowline";
  application.apiVersion = VK_API_VERSION_1_2;
  auto info = typed<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.pApplicationInfo = &application;
  VkInstance instance = VK_NULL_HANDLE;
  const VkResult result = vkCreateInstance(&info, nullptr, &instance);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return "The Vulkan loader finds no driver.";
  }
  if (result != VK_SUCCESS) {
    return "The Vulkan loader cannot create an instance.";
  }
  bool complete = true;
#define LOAD(name)                                                 \
  name = reinterpret_cast<PFN_##name>(get_proc_(instance, #name)); \
  complete = complete && name != nullptr;
  BOWLINE_VULKAN_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
  if (!complete) {
    if (vkDestroyInstance != nullptr) {
      vkDestroyInstance(instance, nullptr);
    }
    return "The Vulkan loader lacks functions of version 1.2.";
  }
  instance_ = instance;
  return nullptr;
}

bool Loader::load(VkDevice device, DeviceFunctions* functions) const {
  bool complete = true;
#define LOAD(name)                                                                    \
  functions->name = reinterpret_cast<PFN_##name>(vkGetDeviceProcAddr(device, #name)); \
  complete = complete && functions->name != nullptr;
  BOWLINE_VULKAN_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
  return complete;
}

}  // namespace bowline::detail::vulkan
