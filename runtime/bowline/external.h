/// \file
/// Makes Bowline use objects of your program: devices of Vulkan and CUDA, memory and semaphores.
///
/// This header includes no header of Vulkan or CUDA. VkInstance, VkPhysicalDevice, VkDevice,
/// VkQueue, CUcontext and CUstream have the type void*. VkBuffer and VkSemaphore have the type
/// uint64_t. Bowline never destroys an object of the program. bowline.h does not include this
/// header.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bowline/buffer.h"
#include "bowline/device.h"
#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// A VkDevice of the program, with a queue to which Bowline submits its work. Set all members. Only
/// `lock` and `unlock` may stay empty.
///
/// Destroy the Vulkan objects only after all copies of the Device, and all models, buffers and
/// semaphores on it, are destroyed.
struct ExternalVulkan {
  /// vkGetInstanceProcAddr of the loader that made `instance`, cast to this type. Bowline casts it
  /// back to PFN_vkGetInstanceProcAddr.
  void (*get_instance_proc_addr)() = nullptr;
  void* instance = nullptr;         ///< VkInstance, created for Vulkan 1.2 or newer.
  void* physical_device = nullptr;  ///< VkPhysicalDevice of `instance`.
  void* device = nullptr;           ///< VkDevice of `physical_device`.
  void* queue = nullptr;            ///< VkQueue of `device`, created without flags.
  uint32_t queue_family = 0;        ///< Index of the family of `queue`. It must have compute.
  /// The VkDeviceCreateInfo that was passed to vkCreateDevice(), with its pNext chain.
  ///
  /// Vulkan has no call that returns the extensions and features of a VkDevice. So Bowline reads
  /// them from this struct, and uses no others. The struct may be freed after adopt_vulkan().
  /// vulkan_requirements() says what to enable.
  const void* create_info = nullptr;
  /// Lock and unlock the queue. Bowline holds the lock during each vkQueueSubmit(), and during no
  /// other call. Leave both empty if no other thread uses the queue while Bowline uses it.
  ///
  /// The functions must not throw. They must not call functions of Bowline that use this Device.
  std::function<void()> lock = {};
  std::function<void()> unlock = {};
};

/// The extensions and features to enable when the program creates a VkDevice for Bowline.
struct VulkanRequirements {
  /// Names of device extensions that the device has and Bowline can use. They are optional, but
  /// enable as many as you can. They make Bowline faster, or allow it to share memory and
  /// semaphores through file descriptors.
  std::vector<std::string> extensions = {};
  /// Names of features that must be enabled: without them, adopt_vulkan() returns unsupported. The
  /// names are members of the Vulkan structs, for example "timelineSemaphore".
  std::vector<std::string> needed_features = {};
  /// Names of optional features: the device has them, and Bowline uses them if they are enabled.
  std::vector<std::string> wanted_features = {};
  /// A chain of structs that enables all these features. Set VkDeviceCreateInfo::pNext to it.
  ///
  /// The chain begins with VkPhysicalDeviceFeatures2, so VkDeviceCreateInfo::pEnabledFeatures must
  /// be null. It also contains VkPhysicalDeviceVulkan12Features and others. If your own chain
  /// contains one of the structs, do not use this chain. Set the features in your structs instead.
  const void* features = nullptr;
  /// Owns `features`. Keep it until vkCreateDevice() has returned.
  std::shared_ptr<const void> owner = {};
};

/// Returns the extensions and features to enable in a VkDevice for adopt_vulkan(). It does not
/// create the VkDevice.
///
/// The parameters are the members of ExternalVulkan with the same names.
///
/// Errors:
/// - bad_argument: a parameter is null, or the instance does not have this device.
/// - unsupported: Bowline cannot use the device, or this build has no Vulkan. The message says why.
Result<VulkanRequirements> vulkan_requirements(void (*get_instance_proc_addr)(), void* instance,
                                               void* physical_device);

/// Makes a Device that uses the VkDevice of the program. Its DeviceInfo::name is "vulkan:external".
///
/// The call runs the self test of the device, which takes some time. With
/// DeviceOptions::cache_folder, only the first call runs the self test. Later calls read its
/// result.
///
/// If the VkDevice is lost, functions return device_lost. Then destroy the Device, and its models,
/// buffers and semaphores. Create a new VkDevice and call adopt_vulkan() again.
///
/// Errors:
/// - bad_argument: a handle is null, the instance does not have this device, or the device has no
///   such queue family.
/// - bad_argument: only one of `lock` and `unlock` is set.
/// - unsupported: a needed feature is not enabled. The message has its name.
/// - unsupported: Bowline cannot use the device, or this build has no Vulkan. The message says why.
Result<Device> adopt_vulkan(const ExternalVulkan& external, const DeviceOptions& options = {});

/// A CUDA context of the program.
///
/// Destroy the context and the stream only after all copies of the Device, and all models and
/// buffers on it, are destroyed.
struct ExternalCuda {
  /// CUcontext. Bowline makes it current during each call, and then restores the previous context
  /// of the thread.
  void* context = nullptr;
  /// (optional) CUstream of `context`. Bowline submits all its work to this stream, so it runs in
  /// order with the work of the program there. Null: Bowline creates its own stream.
  void* stream = nullptr;
};

/// Makes a Device that uses the CUDA context of the program. Its DeviceInfo::name is
/// "cuda:external".
///
/// Errors:
/// - bad_argument: the context is null or not valid.
/// - unsupported: Bowline cannot use the GPU, or this build has no CUDA. The message says why.
Result<Device> adopt_cuda(const ExternalCuda& external, const DeviceOptions& options = {});

/// Makes a DeviceBuffer that uses memory of the program on a CUDA GPU. `device` is a CUDA device,
/// from adopt_cuda() or from Device::open().
///
/// `address` is a CUdeviceptr, or a pointer from cudaMalloc() or cudaMallocManaged(), as a number.
/// The memory belongs to the context of the device. Device::open() uses the primary context of the
/// GPU, as the CUDA runtime does. The memory must stay valid until the last copy of the result is
/// destroyed. A run copies values between it and the memory of the plan.
///
/// Earlier work of the program on the memory must end before a run uses it. If the program submits
/// the work to ExternalCuda::stream, the stream ensures this.
///
/// Errors:
/// - bad_argument: the bytes are not in the memory of this GPU.
/// - unsupported: the device is not a CUDA device.
Result<DeviceBuffer> adopt_cuda_memory(const Device& device, uint64_t address, uint64_t bytes);

/// Returns the address of a buffer on a CUDA GPU, a CUdeviceptr: kernels of the program can use the
/// memory. The address is valid until the last copy of the buffer is destroyed.
///
/// While a run reads the buffer, do not write to it. While a run writes the buffer, do not use it.
///
/// Errors:
/// - unsupported: the buffer is not on a CUDA device.
Result<uint64_t> cuda_address(const DeviceBuffer& buffer);

/// A buffer of the CPU device, with the address of its memory.
struct HostBuffer {
  DeviceBuffer buffer;
  void* data = nullptr;  ///< The first byte. Valid until the last copy of `buffer` is destroyed.
};

/// Allocates a buffer of the CPU device. The program can read and write its memory without a copy,
/// through HostBuffer::data. All bytes are 0. The address is a multiple of 64.
///
/// While a run reads the buffer, do not write to it. While a run writes the buffer, do not use it.
///
/// Errors: as DeviceBuffer::create().
/// - unsupported: the program cannot address the memory of the device, for example of a GPU.
Result<HostBuffer> create_host_buffer(const Device& device, uint64_t bytes);

/// The kind of a file descriptor for memory or a semaphore.
enum class ExternalHandle : uint8_t {
  /// For the same driver and GPU only: VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT.
  opaque_fd,
  /// For memory on Linux, not for semaphores: VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT.
  dma_buf,
};

/// Makes a DeviceBuffer that uses a VkBuffer of the program. `device` must be from adopt_vulkan().
///
/// The DeviceBuffer begins at byte `offset` of the VkBuffer, and has `bytes` bytes. The VkBuffer
/// must be bound to memory. It must have the usages VK_BUFFER_USAGE_TRANSFER_SRC_BIT and
/// VK_BUFFER_USAGE_TRANSFER_DST_BIT, and belong to the queue family of the device. The VkBuffer
/// must stay valid until the last copy of the result is destroyed. A run copies values between the
/// VkBuffer and the memory of its plan, on the device.
///
/// Earlier work of the program on the VkBuffer must end before a run uses it. To ensure this,
/// submit the work to the same queue, or call DeviceSemaphore::wait_for(). Before each copy,
/// Bowline submits a barrier that covers transfers and compute shaders. If other stages wrote to
/// the VkBuffer, submit your own barrier after them.
///
/// Errors:
/// - bad_argument: the handle is 0, or `offset` is not a multiple of 4.
/// - unsupported: the device is not from adopt_vulkan().
Result<DeviceBuffer> adopt_vulkan_buffer(const Device& device, uint64_t buffer, uint64_t offset,
                                         uint64_t bytes);

/// Allocates a buffer that another process or API can import. Only for Vulkan devices. To pass it
/// on, call export_memory().
///
/// Errors: as DeviceBuffer::create().
/// - unsupported: the device cannot export such memory.
Result<DeviceBuffer> create_exportable(const Device& device, uint64_t bytes, ExternalHandle kind);

/// A file descriptor for the device memory of a buffer.
struct ExportedMemory {
  /// The owner of this struct must close it, or pass it to import_memory().
  int fd = -1;
  uint64_t allocation_bytes = 0;  ///< Size of the whole allocation.
  uint64_t bytes = 0;             ///< Size of the buffer, which begins at offset 0.
};

/// Returns a new file descriptor for a buffer from create_exportable(). The caller owns it.
///
/// Errors:
/// - bad_argument: the buffer is not from create_exportable().
Result<ExportedMemory> export_memory(const DeviceBuffer& buffer);

/// Makes a DeviceBuffer of memory from another process or API. Only for Vulkan devices.
///
/// If the call succeeds, the library owns `memory.fd`. If it fails, the caller still owns it.
/// Memory of the kind opaque_fd must come from the same driver and GPU.
///
/// Errors:
/// - bad_argument: the descriptor is not valid, or the buffer does not fit into the allocation.
/// - unsupported: the device cannot import such memory.
Result<DeviceBuffer> import_memory(const Device& device, const ExportedMemory& memory,
                                   ExternalHandle kind);

/// A semaphore of a Vulkan device. It orders the work of Bowline and the work of the program.
///
/// The parameter `timeline` says whether it is a timeline semaphore or a binary semaphore.
///
/// Threads: any thread may call the functions.
class DeviceSemaphore {
 public:
  /// Uses a VkSemaphore of the program. The VkSemaphore must stay valid until the last copy of the
  /// result is destroyed. `device` must be from adopt_vulkan().
  ///
  /// Errors:
  /// - bad_argument: the handle is 0.
  /// - unsupported: the device is not from adopt_vulkan().
  static Result<DeviceSemaphore> adopt_vulkan(const Device& device, uint64_t semaphore,
                                              bool timeline);
  /// Creates a semaphore that another process or API can import. To pass it on, call export_fd().
  ///
  /// Errors:
  /// - unsupported: the device cannot export semaphores.
  static Result<DeviceSemaphore> create_exportable(const Device& device, bool timeline);
  /// Imports a semaphore from an opaque file descriptor. If it succeeds, the library owns `fd`. If
  /// it fails, the caller still owns `fd`.
  ///
  /// Errors:
  /// - bad_argument: the descriptor is not valid.
  /// - unsupported: the device cannot import semaphores.
  static Result<DeviceSemaphore> import_fd(const Device& device, int fd, bool timeline);

  ~DeviceSemaphore();
  DeviceSemaphore(const DeviceSemaphore&);
  DeviceSemaphore& operator=(const DeviceSemaphore&);
  DeviceSemaphore(DeviceSemaphore&&) noexcept;
  DeviceSemaphore& operator=(DeviceSemaphore&&) noexcept;

  /// Returns a new file descriptor for a semaphore from create_exportable(). The caller owns it.
  ///
  /// Errors:
  /// - bad_argument: the semaphore is not from create_exportable().
  Result<int> export_fd() const;

  /// Makes all later work of the device wait until the semaphore is signaled. With a timeline
  /// semaphore, the work waits until the semaphore has at least `value`. The call itself does not
  /// wait.
  ///
  /// Submit the signal before this call or from another thread, because later calls on the device
  /// wait for the signal. If it does not come within 60 s, these calls return device_lost.
  ///
  /// Errors:
  /// - device_lost: the device was lost.
  Status wait_for(uint64_t value = 0) const;
  /// Signals the semaphore after all earlier work of the device. A timeline semaphore is set to
  /// `value`, which must be larger than its current value.
  ///
  /// Errors: as wait_for().
  /// - bad_argument: `value` is not larger than the current value of the timeline semaphore.
  Status signal(uint64_t value = 0) const;

 private:
  struct State;
  explicit DeviceSemaphore(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
