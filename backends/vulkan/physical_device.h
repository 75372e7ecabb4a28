// What a physical device offers: features, limits, and the kernels that fit it.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.h"
#include "loader.h"

namespace bowline::detail::vulkan {

// A product of matrices that a subgroup computes together: [m, k] times [k, n].
struct MatrixUnit {
  uint32_t m = 0, n = 0, k = 0;
};

// A product of matrices that a workgroup computes together, with sums in f32. Their sides are
// multiples of those of `multiple`.
struct WorkgroupUnit {
  DType type = DType::f16;  // of the factors
  uint32_t invocations = 0;
  MatrixUnit multiple;
};

// Values of PhysicalDevice::vendor().
constexpr uint32_t kAmd = 0x1002;
constexpr uint32_t kIntel = 0x8086;
constexpr uint32_t kNvidia = 0x10DE;

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  VkPhysicalDeviceProperties properties{};
  uint8_t pipeline_cache_uuid[VK_UUID_SIZE] = {};
  std::string driver;         // driver name and version, as reported by the driver
  std::string reason;         // why the device is unusable; empty if it is usable
  uint32_t queue_family = 0;  // the chosen family: compute, preferably without graphics
  uint32_t timestamp_bits = 0;

  // The size of subgroups, unless a kernel requires another one (nearest_subgroup).
  uint32_t subgroup_size = 0;
  uint32_t default_subgroup = 0;  // that of pipelines that require none
  uint32_t min_subgroup = 0;      // sizes that a pipeline can require; 0: it can require none
  uint32_t max_subgroup = 0;
  // Limits of a workgroup. The defaults are what Vulkan 1.2 guarantees.
  uint32_t max_invocations = 128;
  uint32_t max_shared_bytes = 16384;

  uint64_t memory_bytes = 0;          // size of the largest device-local heap
  uint64_t max_allocation_bytes = 0;  // limit of one vkAllocateMemory
  uint64_t max_buffer_bytes = 0;      // limit of one VkBuffer and its memory
  bool is_discrete = false;           // device memory is behind a bus that is slower than it
  // A submission hangs if the device finishes none in twice this time.
  uint64_t wait_limit_ns = 30'000'000'000;

  // Kernels use device addresses. Without them, they use descriptors (use_descriptors).
  bool has_buffer_addresses = true;
  uint32_t max_bound_buffers = 0;  // that a launch can use through descriptors
  bool shares_blocks = true;       // for tests: false: a block has one buffer

  bool has_int64 = false;
  bool is_int64_switched_off = false;  // the driver has it, and the self test failed with it
  bool keeps_special_values = false;   // NaN, infinities and -0 of f32, where a shader asks for it
  bool has_16bit_storage = false;
  bool has_8bit_storage = false;
  bool has_memory_budget = false;
  bool has_memory_fd = false;  // exports and imports memory as an opaque descriptor
  bool has_dma_buf = false;    // the same as a dma-buf of Linux
  bool has_semaphore_fd = false;
  bool is_portability_subset = false;  // a layer over another API
  MatrixUnit f16_unit, bf16_unit;      // with sums in f32; m is 0: the driver has none
  bool has_matrix_hardware = false;
  std::vector<WorkgroupUnit> workgroup_units;  // empty: the driver has none
  bool uses_workgroup_units = false;           // if a variant says so
  uint32_t max_matrix_side = 0;                // of the matrices of a workgroup
  uint32_t reserved_shared_bytes = 0;  // that shaders with such matrices leave to the driver

  // Fewer workgroups do not occupy the device; then smaller tiles are faster.
  uint32_t many_groups = 64;
  // The parts of the k of a product have at least so many steps. Smaller parts cost more time than
  // they save.
  uint32_t least_part = 512;
  bool has_large_tiles = true;  // products may use other tiles than the smallest

  std::string variants;           // the applied variants (variant.h)
  bool runs_gpu_kernels = false;  // for tests: a software device runs the kernels of GPUs

  // A software driver, which limits the loops of an invocation (kMaxIterations).
  bool is_software() const { return properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU; }
  // Lanes are elements of a CPU vector. A workgroup is one subgroup, without shared memory.
  bool uses_cpu_kernels() const { return is_software() && !runs_gpu_kernels; }
  // The lane-shuffle kernels are faster on this device.
  bool prefers_lanes() const { return uses_cpu_kernels() && subgroup_size <= 16 && has_int64; }
  // The matrices that kernels multiply, or null.
  const MatrixUnit* matrix_unit(DType type) const {
    const MatrixUnit& unit = type == DType::bf16 ? bf16_unit : f16_unit;
    const bool usable = type != DType::f32 && unit.m != 0;
    return usable && (has_matrix_hardware || runs_gpu_kernels) ? &unit : nullptr;
  }
  // The matrices that kernels multiply in workgroups of this size, or null.
  const WorkgroupUnit* workgroup_unit(DType type, uint32_t invocations) const;
  // The subgroup size of pipelines that use matrix units. Those of Intel need the smallest.
  uint32_t unit_subgroup() const { return nearest_subgroup(vendor() == kIntel ? 16 : 32); }
  uint32_t vendor() const { return properties.vendorID; }
  // An invocation can have more than 128 registers of 32 bits. Other GPUs have fewer, or share them
  // among so many invocations that kernels should use fewer.
  bool has_many_registers() const {
    return vendor() == kAmd || vendor() == kIntel || vendor() == kNvidia;
  }

  // The number of invocations of a workgroup that would like to have `wanted` (a power of two).
  uint32_t workgroup(uint32_t wanted) const {
    return wanted < max_invocations ? wanted : max_invocations;
  }
  // The sizes of subgroups with which the kernels work.
  static constexpr uint32_t kLeastSubgroup = 4;
  static constexpr uint32_t kMostSubgroup = 64;
  static bool works_with(uint32_t subgroup) {
    return subgroup >= kLeastSubgroup && subgroup <= kMostSubgroup;
  }
  // Kernels reach buffers through descriptors. A buffer is then not larger than the range of a
  // descriptor. Kernels with matrix units need addresses.
  void use_descriptors();
  // The subgroup size nearest to `wanted` that a pipeline can have (Grid::subgroup).
  uint32_t nearest_subgroup(uint32_t wanted) const;
};

// All devices of the instance in the loader's order, including unusable devices with their reason.
// The variable BOWLINE_VULKAN_VARIANT is applied to each of them (variant.h).
std::vector<PhysicalDevice> physical_devices(const Loader& loader);
// One device of the instance.
PhysicalDevice physical_device(const Loader& loader, VkPhysicalDevice handle);
// The devices of the instance.
std::vector<VkPhysicalDevice> handles_of_devices(const Loader& loader);
// Takes a compute queue family that the program names. Returns why it cannot be used, or an empty
// text.
std::string take_queue_family(const Loader& loader, uint32_t family, PhysicalDevice* device);

}  // namespace bowline::detail::vulkan
