/// \file
/// Objects of the program that Bowline uses: devices of Vulkan and CUDA, and their memory.
///
/// This header needs no header of Vulkan or CUDA. VkInstance, VkPhysicalDevice, VkDevice, VkQueue,
/// CUcontext and CUstream have the type void*. VkBuffer and VkSemaphore have the type uint64_t.
/// Bowline never destroys an object of the program. bowline.h does not include this header.
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

/// A VkDevice of the program, with a queue that Bowline may submit to. Set all members. Only `lock`
/// and `unlock` may stay empty.
///
/// The objects must stay valid until the last copy of the Device, its models, its buffers and its
/// semaphores are destroyed.
struct ExternalVulkan {
  /// vkGetInstanceProcAddr of the loader that made `instance`, cast to this type. Bowline casts it
  /// back to PFN_vkGetInstanceProcAddr.
  void (*get_instance_proc_addr)() = nullptr;
  void* instance = nullptr;         ///< VkInstance, made for version 1.2 or newer.
  void* physical_device = nullptr;  ///< VkPhysicalDevice of `instance`.
  void* device = nullptr;           ///< VkDevice of `physical_device`.
  void* queue = nullptr;            ///< VkQueue of `device`, made without flags.
  uint32_t queue_family = 0;        ///< Family of `queue`. It must have compute.
  /// The VkDeviceCreateInfo that was passed to vkCreateDevice(), with its pNext chain.
  ///
  /// Vulkan has no call that tells which extensions and features a VkDevice enables. Bowline reads
  /// them from this struct, and uses no others. adopt_vulkan() keeps no pointer to the struct.
  /// vulkan_requirements() says what to enable.
  const void* create_info = nullptr;
  /// Locks and unlocks the queue. Bowline holds the lock during each vkQueueSubmit(), and during no
  /// other call. Leave both empty if no other thread uses the queue while Bowline does.
  ///
  /// They must not throw. They must not call functions of Bowline that use this Device.
  std::function<void()> lock = {};
  std::function<void()> unlock = {};
};

/// What a program enables when it makes a VkDevice for Bowline.
struct VulkanRequirements {
  /// Names of device extensions that the device has and Bowline uses. Enable all that you can. They
  /// make Bowline faster, or allow memory and semaphores behind file descriptors.
  std::vector<std::string> extensions = {};
  /// Features that adopt_vulkan() needs: if one is not enabled, it returns unsupported. The names
  /// are members of the Vulkan structs, for example "timelineSemaphore".
  std::vector<std::string> needed_features = {};
  /// Names of features that the device has, and that Bowline uses if they are enabled.
  std::vector<std::string> wanted_features = {};
  /// The first struct of a chain that enables all these features: VkDeviceCreateInfo::pNext.
  ///
  /// It begins with VkPhysicalDeviceFeatures2, so VkDeviceCreateInfo::pEnabledFeatures must be
  /// null. It has VkPhysicalDeviceVulkan12Features. If your own chain has one of these structs, do
  /// not use this chain: set the members with the names above in your struct.
  const void* features = nullptr;
  std::shared_ptr<const void> owner = {};  ///< Owns `features`. Keep it until vkCreateDevice().
};

/// Returns what to enable in a VkDevice for adopt_vulkan(). It makes no device.
///
/// The parameters are as the members of ExternalVulkan.
///
/// Errors:
/// - bad_argument: a parameter is null, or the instance does not have this device.
/// - unsupported: Bowline cannot use the device, or this build has no Vulkan. The message says why.
Result<VulkanRequirements> vulkan_requirements(void (*get_instance_proc_addr)(), void* instance,
                                               void* physical_device);

/// Opens the VkDevice of the program. DeviceInfo::name of the result is "vulkan:external".
///
/// Opening runs the self test of the device, which takes some time. With
/// DeviceOptions::cache_folder, only the first opening runs it; later ones read its result.
///
/// If the device is lost, functions return device_lost. The program then destroys all objects of
/// this Device, makes a new VkDevice, and adopts it.
///
/// Errors:
/// - bad_argument: a handle is null, the instance does not have this device, or the device has no
///   such queue family. Or only one of `lock` and `unlock` is set.
/// - unsupported: a needed feature is not enabled. The message has its name.
/// - unsupported: Bowline cannot use the device, or this build has no Vulkan. The message says why.
Result<Device> adopt_vulkan(const ExternalVulkan& external, const DeviceOptions& options = {});

/// A CUDA context of the program.
///
/// The context and the stream must stay valid until the last copy of the Device, its models, and
/// its buffers are destroyed.
struct ExternalCuda {
  /// CUcontext. Bowline makes it current during each call, and then restores the context that the
  /// thread had.
  void* context = nullptr;
  /// (optional) CUstream of `context`. Bowline submits all work to it, in order with the work of
  /// the program. Null: Bowline makes its own stream.
  void* stream = nullptr;
};

/// Opens a CUDA device in a context of the program. DeviceInfo::name of the result is
/// "cuda:external".
///
/// Errors:
/// - bad_argument: the context is null or not valid.
/// - unsupported: Bowline cannot use the GPU, or this build has no CUDA. The message says why.
Result<Device> adopt_cuda(const ExternalCuda& external, const DeviceOptions& options = {});

/// A buffer in memory of the process.
struct HostBuffer {
  DeviceBuffer buffer;
  void* data = nullptr;  ///< The first byte. Valid until the last copy of `buffer` is destroyed.
};

/// Allocates memory of the CPU device that the program also reads and writes itself, without a
/// copy. All bytes are 0. The address is a multiple of 64.
///
/// While a run reads the buffer, do not write to it. While a run writes the buffer, do not use it.
///
/// Errors: as DeviceBuffer::create().
/// - unsupported: the program cannot address the memory of the device. Only "cpu" has such memory.
Result<HostBuffer> create_host_buffer(const Device& device, uint64_t bytes);

/// The kind of a file descriptor for memory or a semaphore.
enum class ExternalHandle : uint8_t {
  opaque_fd,  ///< Between drivers of the same kind: VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT.
  dma_buf,    ///< Memory on Linux, no semaphores: VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT.
};

/// Uses a VkBuffer of the program. `device` is from adopt_vulkan().
///
/// The DeviceBuffer begins at `offset` in the VkBuffer, and has `bytes` bytes. The VkBuffer must be
/// bound to memory. It must have the usages VK_BUFFER_USAGE_TRANSFER_SRC_BIT and
/// VK_BUFFER_USAGE_TRANSFER_DST_BIT, and belong to the queue family of the device. The VkBuffer
/// must stay valid until the last copy of the result is destroyed. A run copies between it and the
/// memory of the plan, on the device.
///
/// The program must order its earlier work on the buffer before the run. Submit that work to the
/// same queue, or call DeviceSemaphore::wait_for(). Bowline submits a barrier for transfers and
/// compute shaders before each copy. After the work of other stages, submit your own barrier.
///
/// Errors:
/// - bad_argument: the handle is 0, or `offset` is not a multiple of 4.
/// - unsupported: the device is not from adopt_vulkan().
Result<DeviceBuffer> adopt_vulkan_buffer(const Device& device, uint64_t buffer, uint64_t offset,
                                         uint64_t bytes);

/// Allocates memory that another process or API can import. Only for Vulkan devices.
///
/// Errors: as DeviceBuffer::create().
/// - unsupported: the device cannot export such memory.
Result<DeviceBuffer> create_exportable(const Device& device, uint64_t bytes, ExternalHandle kind);

/// A file descriptor of device memory with a buffer. Who has the struct owns the descriptor.
struct ExportedMemory {
  int fd = -1;
  uint64_t allocation_bytes = 0;  ///< Size of the whole allocation.
  uint64_t bytes = 0;             ///< Size of the buffer, which begins at offset 0.
};

/// Returns a new file descriptor of a buffer from create_exportable().
///
/// Errors:
/// - bad_argument: the buffer is not from create_exportable().
Result<ExportedMemory> export_memory(const DeviceBuffer& buffer);

/// Imports memory of another process or API. Only for Vulkan devices.
///
/// If it succeeds, the library owns `memory.fd`; else the caller still does. Memory of the kind
/// opaque_fd must come from the same driver and GPU.
///
/// Errors:
/// - bad_argument: the descriptor is not valid, or the buffer does not fit into the allocation.
/// - unsupported: the device cannot import such memory.
Result<DeviceBuffer> import_memory(const Device& device, const ExportedMemory& memory,
                                   ExternalHandle kind);

/// A semaphore of a Vulkan device, which orders work of Bowline and of the program.
///
/// Threads: any thread may call the functions.
class DeviceSemaphore {
 public:
  /// Uses a VkSemaphore of the program. The VkSemaphore must stay valid until the last copy of the
  /// result is destroyed. `device` is from adopt_vulkan().
  ///
  /// Errors:
  /// - bad_argument: the handle is 0.
  /// - unsupported: the device is not from adopt_vulkan().
  static Result<DeviceSemaphore> adopt_vulkan(const Device& device, uint64_t semaphore,
                                              bool timeline);
  /// Makes a semaphore that another process or API can import as an opaque descriptor.
  ///
  /// Errors:
  /// - unsupported: the device cannot export semaphores.
  static Result<DeviceSemaphore> create_exportable(const Device& device, bool timeline);
  /// Imports a semaphore as an opaque descriptor. If it succeeds, the library owns `fd`.
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

  /// Returns a new file descriptor of a semaphore from create_exportable(). The caller closes it.
  ///
  /// Errors:
  /// - bad_argument: the semaphore is not from create_exportable().
  Result<int> export_fd() const;

  /// Lets all later work of the device wait for the semaphore, on the device. `value` is for
  /// timelines. The call itself does not wait.
  ///
  /// Submit the signal before, or from another thread: later calls on the device wait for it. If it
  /// does not come within 60 s, these calls return device_lost.
  ///
  /// Errors:
  /// - device_lost: the device was lost.
  Status wait_for(uint64_t value = 0) const;
  /// Signals the semaphore after all earlier work of the device. `value` is for timelines, and must
  /// be larger than the current value.
  ///
  /// Errors: as wait_for().
  Status signal(uint64_t value = 0) const;

 private:
  struct State;
  explicit DeviceSemaphore(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace bowline

#pragma GCC visibility pop
