#include "loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace bowline::detail::vulkan {
namespace {

// dlsym returns function pointers as object pointers, which POSIX allows.
template <typename Function>
Function as_function(void* symbol) {
  return reinterpret_cast<Function>(symbol);
}

// The loader, or the driver itself where a system has no loader.
#if defined(__APPLE__)
constexpr const char* kLibraries[] = {"libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"};
#elif defined(__ANDROID__)
constexpr const char* kLibraries[] = {"libvulkan.so"};
#else
constexpr const char* kLibraries[] = {"libvulkan.so.1", "libvulkan.so"};
#endif

void* open_library() {
  for (const char* const name : kLibraries) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library;
    }
  }
  return nullptr;
}

}  // namespace

bool has_extension(const Extensions& extensions, const char* name) {
  return std::ranges::any_of(extensions, [name](const VkExtensionProperties& e) {
    return std::strcmp(e.extensionName, name) == 0;
  });
}

Loader::~Loader() {
  if (instance_ != VK_NULL_HANDLE) {
    vkDestroyInstance(instance_, nullptr);
  }
  if (library_ != nullptr) {
    dlclose(library_);
  }
}

void Loader::leave_open() {
  instance_ = VK_NULL_HANDLE;
  library_ = nullptr;
}

const char* Loader::open() {
  if (is_open()) {
    return nullptr;
  }
  if (get_proc_ == nullptr) {
    library_ = open_library();
  }
  if (get_proc_ == nullptr && library_ == nullptr) {
#if defined(__APPLE__)
    return "Neither the Vulkan loader (libvulkan.dylib) nor MoltenVK is installed.";
#elif defined(__ANDROID__)
    return "No Vulkan loader (libvulkan.so) is installed.";
#else
    return "No Vulkan loader (libvulkan.so.1) is installed.";
#endif
  }
  if (library_ != nullptr) {
    get_proc_ = as_function<PFN_vkGetInstanceProcAddr>(dlsym(library_, "vkGetInstanceProcAddr"));
  }
  if (get_proc_ == nullptr) {
    return "The Vulkan loader has no vkGetInstanceProcAddr.";
  }
#define LOAD(name) name = reinterpret_cast<PFN_##name>(get_proc_(VK_NULL_HANDLE, #name));
  BOWLINE_VULKAN_GLOBAL_FUNCTIONS(LOAD)
#undef LOAD
  return make_instance();
}

bool Loader::has_instance_extension(const char* name) const {
  uint32_t count = 0;
  vkEnumerateInstanceExtensionProperties(nullptr, &count, nullptr);
  Extensions extensions(count);
  if (vkEnumerateInstanceExtensionProperties(nullptr, &count, extensions.data()) < 0) {
    return false;
  }
  extensions.resize(count);
  return has_extension(extensions, name);
}

const char* Loader::make_instance() {
  uint32_t version = VK_API_VERSION_1_0;
  if (vkCreateInstance == nullptr || vkEnumerateInstanceVersion == nullptr ||
      vkEnumerateInstanceExtensionProperties == nullptr ||
      vkEnumerateInstanceVersion(&version) != VK_SUCCESS || version < VK_API_VERSION_1_2) {
    return "The Vulkan loader is older than version 1.2.";
  }
  auto application = typed<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pEngineName = "bowline";
  application.apiVersion = VK_API_VERSION_1_2;
  auto info = typed<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  info.pApplicationInfo = &application;
  // Without this extension, the loader hides drivers over another API, such as MoltenVK.
  const char* const portability = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
  if (has_instance_extension(portability)) {
    info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &portability;
  }
  VkInstance instance = VK_NULL_HANDLE;
  const VkResult result = vkCreateInstance(&info, nullptr, &instance);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    return "The Vulkan loader finds no driver.";
  }
  if (result != VK_SUCCESS) {
    return "The Vulkan loader cannot create an instance.";
  }
  if (!load(instance)) {
    if (vkDestroyInstance != nullptr) {
      vkDestroyInstance(instance, nullptr);
    }
    return "The Vulkan loader lacks functions of version 1.2.";
  }
  instance_ = instance;
  return nullptr;
}

bool Loader::load(VkInstance instance) {
  bool complete = true;
#define LOAD(name)                                                 \
  name = reinterpret_cast<PFN_##name>(get_proc_(instance, #name)); \
  complete = complete && name != nullptr;
  BOWLINE_VULKAN_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
  get_matrices = reinterpret_cast<GetCooperativeMatrices>(
      get_proc_(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  get_flexible_matrices = reinterpret_cast<GetFlexibleMatrices>(
      get_proc_(instance, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV"));
  return complete;
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
