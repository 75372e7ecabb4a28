// A Vulkan driver that has the limits of a profile and computes nothing.
//
// It checks what a real driver would trip over: sizes of allocations, buffers, descriptors,
// workgroups and dispatches, required subgroup sizes, and device addresses where it has none.
// Memory is mapped, but costs only the pages that are touched. There is one driver per process;
// reset() starts again.
#pragma once

#include <vulkan/vulkan_core.h>

#include <string>
#include <vector>

#include "newer.h"
#include "vulkan_profiles.h"

namespace bowline::detail::vulkan::fake {

// What submissions ran, and how often the host waited.
struct Run {
  uint64_t dispatches = 0;
  uint64_t copies = 0;
  uint64_t barriers = 0;
  uint64_t buffers = 0;
  uint64_t submissions = 0;
  uint64_t waits = 0;
};

struct Driver {
  profiles::Profile profile{};
  std::vector<std::string> faults;     // what the profile does not allow
  double slowness = 0;                 // not 0: timestamps that are this many ms apart
  VkSubgroupFeatureFlags lacking = 0;  // subgroup operations
  // Why a logical device cannot be made, VK_SUCCESS if it can. Null: it always can.
  VkResult (*refuses)(const VkDeviceCreateInfo& info) = nullptr;
  bool hangs = false;       // submissions do not end
  uint64_t submitted = 0;   // signal operations
  uint64_t dispatches = 0;  // recorded
  uint64_t copies = 0;      // recorded
  Run run;                  // of all submissions
  // All that was recorded: "dispatch", "copy", and barriers with their stages ("compute>host").
  std::vector<std::string> recorded;
  uint64_t required_subgroups = 0;     // pipelines that require a size
  uint64_t free_subgroups = 0;         // pipelines that require none
  std::vector<uint32_t> memory_types;  // of the allocations
  // What VK_KHR_cooperative_matrix lists; empty: the driver has no such extension.
  std::vector<CooperativeMatrixProperties> matrices = {};
  // What VK_NV_cooperative_matrix2 lists; empty: the driver has no such extension.
  std::vector<FlexibleMatrixProperties> flexible_matrices = {};
  bool has_workgroup_scope = true;        // its feature cooperativeMatrixWorkgroupScope
  bool has_addresses = true;              // the feature bufferDeviceAddress
  bool has_mixed_dots = false;            // fast dot products of signed and unsigned bytes
  uint64_t matrix_modules = 0;            // modules that use VK_KHR_cooperative_matrix
  uint64_t workgroup_matrix_modules = 0;  // of these, modules with matrices of workgroups
};

// The limits of matrices of workgroups, if the driver has them.
constexpr uint32_t kMostMatrixInvocations = 256;
constexpr uint32_t kMostMatrixSide = 256;
constexpr uint32_t kReservedSharedBytes = 8192;

Driver& driver();
void reset(const profiles::Profile& profile);
// The driver has VK_NV_cooperative_matrix2 for f16 and bf16, and workgroups of 128 and 256, with
// the sizes of NVIDIA's driver: ggml-org/llama.cpp#16086.
void add_workgroup_matrices();
// For Loader and OpenVulkan::open().
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_proc(VkInstance instance, const char* name);

}  // namespace bowline::detail::vulkan::fake
