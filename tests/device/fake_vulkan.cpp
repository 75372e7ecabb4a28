#include "fake_vulkan.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <tuple>
#include <type_traits>

#include "base/status.h"
#include "loader.h"
#include "spirv.h"

namespace bowline::detail::vulkan::fake {
namespace {

constexpr uint32_t kMostSubgroups = 32;  // maxComputeWorkgroupSubgroups
// What Vulkan guarantees: maxPerStageDescriptorStorageBuffers and maxStorageBufferRange.
constexpr uint32_t kMostDescriptors = 4;
constexpr uint32_t kMostRange = 1u << 27;

struct Memory {
  uint64_t bytes = 0;
  void* mapped = nullptr;
};

struct {
  Driver driver;
  uintptr_t handles = 0;
  std::map<VkBuffer, uint64_t> buffers;
  std::map<VkDeviceMemory, Memory> memory;
  uint64_t counter = 0;  // of the timeline semaphore
  uint64_t waited = 0;   // the value of it that the program has seen
  std::map<VkCommandBuffer, Run> contents;
  std::map<VkCommandBuffer, uint64_t> running;  // the value at which a buffer has ended
  uint64_t ticks = 0;
  bool lists_portability = false;
  bool enables_workgroup_matrices = false;
} state;

template <class Handle>
Handle make_handle() {
  return reinterpret_cast<Handle>(state.handles += 64);
}

void fault(std::string what) { state.driver.faults.push_back(std::move(what)); }

const profiles::Profile& profile() { return state.driver.profile; }

// What a function does that has no other definition: it succeeds. If its last parameter is the
// address of a handle, there is a new handle.
template <class Function>
struct Default;
template <class R, class... A>
struct Default<R(VKAPI_PTR*)(A...)> {
  static VKAPI_ATTR R VKAPI_CALL call(A... all) {
    if constexpr (sizeof...(A) > 0) {
      auto last = std::get<sizeof...(A) - 1>(std::tuple(all...));
      using Last = decltype(last);
      if constexpr (std::is_pointer_v<Last>) {
        using Object = std::remove_pointer_t<Last>;
        if constexpr (std::is_pointer_v<Object> && !std::is_const_v<Object>) {
          *last = make_handle<Object>();
        }
      }
    }
    return R();
  }
};

// Calls found(structure) if the chain has a structure of this type.
template <class T, class Found>
void find_in_chain(const void* first, VkStructureType type, const Found& found) {
  for (auto* s = static_cast<const VkBaseInStructure*>(first); s != nullptr; s = s->pNext) {
    if (s->sType == type) {
      found(*reinterpret_cast<T*>(const_cast<VkBaseInStructure*>(s)));
    }
  }
}

VkBool32 as_bool(bool b) { return b ? VK_TRUE : VK_FALSE; }

VKAPI_ATTR VkResult VKAPI_CALL enumerate_version(uint32_t* version) {
  *version = VK_API_VERSION_1_3;
  return VK_SUCCESS;
}

// Apple devices are behind another API: the loader lists them only if it is asked to.
bool is_portability() { return profile().vendor == profiles::kApple; }

VkResult list(const std::vector<const char*>& names, uint32_t* count, VkExtensionProperties* out) {
  *count = static_cast<uint32_t>(names.size());
  for (size_t i = 0; out != nullptr && i < names.size(); ++i) {
    out[i] = {};
    std::strncpy(out[i].extensionName, names[i], sizeof(out[i].extensionName) - 1);
  }
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL instance_extensions(const char*, uint32_t* count,
                                                   VkExtensionProperties* out) {
  return list({VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME}, count, out);
}

VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                               const VkAllocationCallbacks*, VkInstance* instance) {
  state.lists_portability = (info->flags & VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR) != 0 &&
                            info->enabledExtensionCount == 1;
  *instance = make_handle<VkInstance>();
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice, const VkDeviceCreateInfo* info,
                                             const VkAllocationCallbacks*, VkDevice* device) {
  if (state.driver.refuses != nullptr) {
    if (const VkResult result = state.driver.refuses(*info); result != VK_SUCCESS) {
      return result;
    }
  }
  const std::span names(info->ppEnabledExtensionNames, info->enabledExtensionCount);
  const auto enables = [&](std::string_view extension) {
    return std::ranges::any_of(names, [&](const char* name) { return name == extension; });
  };
  if (enables(kPortabilitySubsetExtension) != is_portability()) {
    fault("VK_KHR_portability_subset has to be enabled where it is listed");
  }
  state.enables_workgroup_matrices = false;
  find_in_chain<const CooperativeMatrix2Features>(
      info->pNext, kCooperativeMatrix2FeaturesType, [&](const auto& s) {
        state.enables_workgroup_matrices = enables(kCooperativeMatrix2Extension) &&
                                           s.cooperativeMatrixWorkgroupScope == VK_TRUE &&
                                           s.cooperativeMatrixFlexibleDimensions == VK_TRUE;
      });
  *device = make_handle<VkDevice>();
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL enumerate_devices(VkInstance, uint32_t* count,
                                                 VkPhysicalDevice* devices) {
  *count = is_portability() && !state.lists_portability ? 0 : 1;
  if (devices != nullptr && *count == 1) {
    *devices = make_handle<VkPhysicalDevice>();
  }
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL properties_of(VkPhysicalDevice, VkPhysicalDeviceProperties* p) {
  *p = {};
  std::strncpy(p->deviceName, profile().name, sizeof(p->deviceName) - 1);
  p->apiVersion = profile().api;
  p->vendorID = profile().vendor;
  p->deviceType = profile().type;
  p->limits.maxComputeSharedMemorySize = profile().shared_bytes;
  p->limits.maxComputeWorkGroupInvocations = profile().invocations;
  std::ranges::fill(p->limits.maxComputeWorkGroupSize, profile().invocations);
  p->limits.timestampPeriod = 1;
  // What every device has.
  p->limits.maxPerStageDescriptorStorageBuffers = kMostDescriptors;
  p->limits.maxDescriptorSetStorageBuffers = 24;
  p->limits.maxStorageBufferRange = kMostRange;
}

VKAPI_ATTR void VKAPI_CALL properties2_of(VkPhysicalDevice device, VkPhysicalDeviceProperties2* p) {
  properties_of(device, &p->properties);
  find_in_chain<VkPhysicalDeviceSubgroupProperties>(
      p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, [](auto& s) {
        s.subgroupSize = profile().subgroup.size;
        s.supportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
        s.supportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                VK_SUBGROUP_FEATURE_BALLOT_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
        s.supportedOperations &= ~state.driver.lacking;
      });
  find_in_chain<VkPhysicalDeviceSubgroupSizeControlProperties>(
      p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES, [](auto& s) {
        s.minSubgroupSize = profile().subgroup.min;
        s.maxSubgroupSize = profile().subgroup.max;
        s.maxComputeWorkgroupSubgroups = kMostSubgroups;
        s.requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT;
      });
  find_in_chain<VkPhysicalDeviceMaintenance3Properties>(
      p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
      [](auto& s) { s.maxMemoryAllocationSize = profile().max_allocation; });
  find_in_chain<VkPhysicalDeviceMaintenance4Properties>(
      p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES,
      [](auto& s) { s.maxBufferSize = profile().max_buffer; });
  find_in_chain<VkPhysicalDeviceShaderIntegerDotProductProperties>(
      p->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES,
      [](auto& s) {
        s.integerDotProduct4x8BitPackedMixedSignednessAccelerated =
            as_bool(state.driver.has_mixed_dots);
      });
  find_in_chain<CooperativeMatrix2Properties>(
      p->pNext, kCooperativeMatrix2PropertiesType, [](auto& s) {
        s.cooperativeMatrixWorkgroupScopeMaxWorkgroupSize = kMostMatrixInvocations;
        s.cooperativeMatrixFlexibleDimensionsMaxDimension = kMostMatrixSide;
        s.cooperativeMatrixWorkgroupScopeReservedSharedMemory = kReservedSharedBytes;
      });
}

VKAPI_ATTR void VKAPI_CALL features2_of(VkPhysicalDevice, VkPhysicalDeviceFeatures2* f) {
  f->features.shaderInt64 = as_bool(profile().int64);
  find_in_chain<VkPhysicalDeviceVulkan12Features>(
      f->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, [&](auto& s) {
        s.bufferDeviceAddress = as_bool(state.driver.has_addresses);
        s.timelineSemaphore = s.scalarBlockLayout = VK_TRUE;
        s.storageBuffer8BitAccess = as_bool(profile().storage8);
        s.vulkanMemoryModel = s.shaderFloat16 = as_bool(!state.driver.matrices.empty());
      });
  find_in_chain<VkPhysicalDevice16BitStorageFeatures>(
      f->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
      [&](auto& s) { s.storageBuffer16BitAccess = as_bool(profile().storage16); });
  find_in_chain<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      f->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
      [](auto& s) { s.subgroupSizeControl = s.computeFullSubgroups = VK_TRUE; });
  find_in_chain<CooperativeMatrixFeatures>(f->pNext, kCooperativeMatrixFeaturesType,
                                           [](auto& s) { s.cooperativeMatrix = VK_TRUE; });
  find_in_chain<CooperativeMatrix2Features>(f->pNext, kCooperativeMatrix2FeaturesType, [](auto& s) {
    s.cooperativeMatrixWorkgroupScope = as_bool(state.driver.has_workgroup_scope);
    s.cooperativeMatrixFlexibleDimensions = VK_TRUE;
  });
  find_in_chain<Bfloat16Features>(f->pNext, kBfloat16FeaturesType, [](auto& s) {
    s.shaderBFloat16Type = s.shaderBFloat16CooperativeMatrix = VK_TRUE;
  });
}

VKAPI_ATTR VkResult VKAPI_CALL matrices_of(VkPhysicalDevice, uint32_t* count,
                                           CooperativeMatrixProperties* out) {
  *count = static_cast<uint32_t>(state.driver.matrices.size());
  if (out != nullptr) {
    std::ranges::copy(state.driver.matrices, out);
  }
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL flexible_matrices_of(VkPhysicalDevice, uint32_t* count,
                                                    FlexibleMatrixProperties* out) {
  *count = static_cast<uint32_t>(state.driver.flexible_matrices.size());
  if (out != nullptr) {
    std::ranges::copy(state.driver.flexible_matrices, out);
  }
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL device_extensions(VkPhysicalDevice, const char*, uint32_t* count,
                                                 VkExtensionProperties* out) {
  std::vector<const char*> names;
  if (profile().subgroup.max != 0) {
    names.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  }
  if (profile().max_buffer != 0) {
    names.push_back(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  }
  if (!state.driver.matrices.empty()) {
    names.insert(names.end(), {kCooperativeMatrixExtension, kBfloat16Extension,
                               VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME});
  }
  if (!state.driver.flexible_matrices.empty()) {
    names.push_back(kCooperativeMatrix2Extension);
  }
  if (is_portability()) {
    names.push_back(kPortabilitySubsetExtension);
  }
  return list(names, count, out);
}

// Type 0 is device-local. Without another heap, the host sees it; else type 1 is for the host.
VKAPI_ATTR void VKAPI_CALL memory_of(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2* out) {
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                          VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  VkPhysicalDeviceMemoryProperties& m = out->memoryProperties;
  const bool two = profile().host_bytes != 0;
  m = {};
  m.memoryHeapCount = m.memoryTypeCount = two ? 2 : 1;
  m.memoryHeaps[0] = {profile().local_bytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  m.memoryHeaps[1] = {profile().host_bytes, 0};
  m.memoryTypes[0] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | (two ? 0 : kHost), 0};
  m.memoryTypes[1] = {kHost, 1};
}

VKAPI_ATTR void VKAPI_CALL queues_of(VkPhysicalDevice, uint32_t* count,
                                     VkQueueFamilyProperties* out) {
  *count = 1;
  if (out != nullptr) {
    *out = {VK_QUEUE_COMPUTE_BIT, 1, 64, {1, 1, 1}};
  }
}

VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice, const VkBufferCreateInfo* info,
                                             const VkAllocationCallbacks*, VkBuffer* buffer) {
  if (profile().max_buffer != 0 && info->size > profile().max_buffer) {
    fault(format("a buffer of {} bytes", info->size));
  }
  if (!state.driver.has_addresses &&
      (info->usage & VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) != 0) {
    fault("a buffer with an address");
  }
  *buffer = make_handle<VkBuffer>();
  state.buffers[*buffer] = info->size;
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL requirements_of(VkDevice, VkBuffer buffer, VkMemoryRequirements* out) {
  *out = {state.buffers[buffer], 64, profile().host_bytes != 0 ? 3u : 1u};
}

VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice, const VkMemoryAllocateInfo* info,
                                               const VkAllocationCallbacks*,
                                               VkDeviceMemory* memory) {
  if (info->allocationSize > profile().max_allocation) {
    fault(format("an allocation of {} bytes", info->allocationSize));
  }
  state.driver.memory_types.push_back(info->memoryTypeIndex);
  *memory = make_handle<VkDeviceMemory>();
  state.memory[*memory] = {info->allocationSize, nullptr};
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice, VkDeviceMemory memory, VkDeviceSize,
                                          VkDeviceSize, VkMemoryMapFlags, void** data) {
  Memory& m = state.memory[memory];
  m.mapped = mmap(nullptr, m.bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *data = m.mapped;
  return m.mapped == MAP_FAILED ? VK_ERROR_MEMORY_MAP_FAILED : VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice, VkDeviceMemory memory,
                                       const VkAllocationCallbacks*) {
  const Memory& m = state.memory[memory];
  if (m.mapped != nullptr) {
    munmap(m.mapped, m.bytes);
  }
  state.memory.erase(memory);
}

VKAPI_ATTR VkDeviceAddress VKAPI_CALL address_of(VkDevice, const VkBufferDeviceAddressInfo* info) {
  return reinterpret_cast<uintptr_t>(info->buffer) << 32;
}

VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice, const VkShaderModuleCreateInfo* info,
                                             const VkAllocationCallbacks*, VkShaderModule* module) {
  std::map<uint32_t, uint32_t> constants;
  bool has_workgroup_matrices = false;
  spirv::for_each_instruction(
      {info->pCode, info->codeSize / sizeof(uint32_t)}, [&](spirv::Instruction i) {
        constexpr uint32_t kTypeMatrix = 4456;
        if (spirv::operation(i) == spirv::kConstant) {
          constants[i[2]] = i[3];
        } else if (spirv::operation(i) == kTypeMatrix) {
          has_workgroup_matrices = has_workgroup_matrices || constants[i[3]] == kScopeWorkgroup;
        }
        const uint32_t capability = spirv::operation(i) == spirv::kCapability ? i[1] : 0;
        state.driver.matrix_modules += capability == spirv::kCooperativeMatrix;
        if (capability == spirv::kPhysicalStorageBufferAddresses && !state.driver.has_addresses) {
          fault("a shader that uses addresses");
        }
      });
  state.driver.workgroup_matrix_modules += has_workgroup_matrices ? 1 : 0;
  if (has_workgroup_matrices && !state.enables_workgroup_matrices) {
    fault("a shader with matrices of workgroups, whose features are not enabled");
  }
  *module = make_handle<VkShaderModule>();
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice, VkPipelineCache, uint32_t,
                                                const VkComputePipelineCreateInfo* info,
                                                const VkAllocationCallbacks*,
                                                VkPipeline* pipeline) {
  uint32_t local = 0;
  std::memcpy(&local, info->stage.pSpecializationInfo->pData, sizeof(local));
  if (local > profile().invocations) {
    fault(format("a workgroup of {} invocations", local));
  }
  bool requires_size = false;
  find_in_chain<VkPipelineShaderStageRequiredSubgroupSizeCreateInfo>(
      info->stage.pNext, VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      [&](auto& s) {
        requires_size = true;
        const uint32_t size = s.requiredSubgroupSize;
        if (size < profile().subgroup.min || size > profile().subgroup.max || local % size != 0 ||
            local > size * kMostSubgroups) {
          fault(format("subgroups of {} in a workgroup of {}", size, local));
        }
      });
  ++(requires_size ? state.driver.required_subgroups : state.driver.free_subgroups);
  *pipeline = make_handle<VkPipeline>();
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL create_set_layout(VkDevice,
                                                 const VkDescriptorSetLayoutCreateInfo* info,
                                                 const VkAllocationCallbacks*,
                                                 VkDescriptorSetLayout* layout) {
  if (info->pBindings->descriptorCount > kMostDescriptors) {
    fault(format("{} descriptors", info->pBindings->descriptorCount));
  }
  *layout = make_handle<VkDescriptorSetLayout>();
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL allocate_sets(VkDevice, const VkDescriptorSetAllocateInfo* info,
                                             VkDescriptorSet* sets) {
  std::generate_n(sets, info->descriptorSetCount, make_handle<VkDescriptorSet>);
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL update_sets(VkDevice, uint32_t count, const VkWriteDescriptorSet* writes,
                                       uint32_t, const VkCopyDescriptorSet*) {
  for (const VkWriteDescriptorSet& write : std::span(writes, count)) {
    for (const VkDescriptorBufferInfo& b : std::span(write.pBufferInfo, write.descriptorCount)) {
      const auto found = state.buffers.find(b.buffer);
      if (found == state.buffers.end() || found->second > kMostRange) {
        fault("a descriptor of no buffer, or of one that is too large");
      }
    }
  }
}

VKAPI_ATTR VkResult VKAPI_CALL begin_commands(VkCommandBuffer buffer,
                                              const VkCommandBufferBeginInfo*) {
  state.contents[buffer] = {};
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer buffer, uint32_t, uint32_t y0, uint32_t,
                                    uint32_t x, uint32_t y, uint32_t) {
  ++state.driver.dispatches;
  ++state.contents[buffer].dispatches;
  state.driver.recorded.push_back("dispatch");
  if (x > 65535 || y0 + y > 65535) {
    fault(format("{} times {} workgroups", x, y0 + y));
  }
}

VKAPI_ATTR void VKAPI_CALL copy_buffer(VkCommandBuffer buffer, VkBuffer from, VkBuffer to,
                                       uint32_t count, const VkBufferCopy* regions) {
  state.driver.copies += count;
  state.contents[buffer].copies += count;
  state.driver.recorded.push_back("copy");
  for (uint32_t i = 0; i < count; ++i) {
    if (regions[i].srcOffset + regions[i].size > state.buffers[from] ||
        regions[i].dstOffset + regions[i].size > state.buffers[to]) {
      fault(format("a copy of {} bytes past the end of a buffer", regions[i].size));
    }
  }
}

std::string stages(VkPipelineStageFlags flags) {
  std::string out;
  for (const auto& [flag, name] : {std::pair(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, "compute"),
                                   {VK_PIPELINE_STAGE_TRANSFER_BIT, "transfer"},
                                   {VK_PIPELINE_STAGE_HOST_BIT, "host"}}) {
    if ((flags & static_cast<VkPipelineStageFlags>(flag)) != 0) {
      out += (out.empty() ? "" : "+") + std::string(name);
    }
  }
  return out;
}

VKAPI_ATTR void VKAPI_CALL barrier(VkCommandBuffer buffer, VkPipelineStageFlags from,
                                   VkPipelineStageFlags to, VkDependencyFlags, uint32_t,
                                   const VkMemoryBarrier*, uint32_t, const VkBufferMemoryBarrier*,
                                   uint32_t, const VkImageMemoryBarrier*) {
  ++state.contents[buffer].barriers;
  state.driver.recorded.push_back(stages(from) + ">" + stages(to));
}

VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue, uint32_t, const VkSubmitInfo* info, VkFence) {
  ++state.driver.submitted;
  ++state.driver.run.submissions;
  uint64_t end = 0;
  find_in_chain<VkTimelineSemaphoreSubmitInfo>(
      info->pNext, VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, [&](auto& s) {
        end = s.pSignalSemaphoreValues[0];
        state.counter = state.driver.hangs ? state.counter : end;
      });
  for (const VkCommandBuffer buffer : std::span(info->pCommandBuffers, info->commandBufferCount)) {
    uint64_t& value = state.running[buffer];
    if (value > state.waited) {
      fault("a command buffer is submitted while it runs");
    }
    value = end;
    const Run& content = state.contents[buffer];
    state.driver.run.dispatches += content.dispatches;
    state.driver.run.copies += content.copies;
    state.driver.run.barriers += content.barriers;
    ++state.driver.run.buffers;
  }
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(VkDevice, const VkSemaphoreWaitInfo* info,
                                               uint64_t) {
  ++state.driver.run.waits;
  const bool reached = state.counter >= info->pValues[0];
  state.waited = std::max(state.waited, reached ? info->pValues[0] : 0);
  return reached ? VK_SUCCESS : VK_TIMEOUT;
}

VKAPI_ATTR VkResult VKAPI_CALL counter_value(VkDevice, VkSemaphore, uint64_t* value) {
  *value = state.counter;
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL query_results(VkDevice, VkQueryPool, uint32_t, uint32_t count,
                                             size_t, void* data, VkDeviceSize, VkQueryResultFlags) {
  for (uint32_t i = 0; i < count; ++i) {
    state.ticks += static_cast<uint64_t>(state.driver.slowness * 1e6);
    std::memcpy(static_cast<char*>(data) + i * sizeof(uint64_t), &state.ticks, sizeof(uint64_t));
  }
  return VK_SUCCESS;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice, const char* name) {
  const std::string_view wanted = name;
#define OWN(function, own)                                \
  if (wanted == #function) {                              \
    const PFN_##function checked = own;                   \
    return reinterpret_cast<PFN_vkVoidFunction>(checked); \
  }
  OWN(vkCreateBuffer, create_buffer)
  OWN(vkGetBufferMemoryRequirements, requirements_of)
  OWN(vkAllocateMemory, allocate_memory)
  OWN(vkMapMemory, map_memory)
  OWN(vkFreeMemory, free_memory)
  OWN(vkGetBufferDeviceAddress, address_of)
  OWN(vkCreateShaderModule, create_module)
  OWN(vkCreateComputePipelines, create_pipelines)
  OWN(vkCreateDescriptorSetLayout, create_set_layout)
  OWN(vkAllocateDescriptorSets, allocate_sets)
  OWN(vkUpdateDescriptorSets, update_sets)
  OWN(vkCmdDispatchBase, dispatch)
  OWN(vkBeginCommandBuffer, begin_commands)
  OWN(vkCmdCopyBuffer, copy_buffer)
  OWN(vkCmdPipelineBarrier, barrier)
  OWN(vkQueueSubmit, queue_submit)
  OWN(vkWaitSemaphores, wait_semaphores)
  OWN(vkGetSemaphoreCounterValue, counter_value)
  OWN(vkGetQueryPoolResults, query_results)
#define DEFAULT(function)                                                        \
  if (wanted == #function) {                                                     \
    return reinterpret_cast<PFN_vkVoidFunction>(&Default<PFN_##function>::call); \
  }
  BOWLINE_VULKAN_DEVICE_FUNCTIONS(DEFAULT)
  return nullptr;
}

}  // namespace

Driver& driver() { return state.driver; }

void reset(const profiles::Profile& profile) {
  state = {};
  state.driver.profile = profile;
}

void add_workgroup_matrices() {
  for (const Component type : {Component::f16, Component::bf16}) {
    for (const uint32_t invocations : {128u, kMostMatrixInvocations}) {
      auto matrices = typed<FlexibleMatrixProperties>(kFlexibleMatrixType);
      matrices.m = 32;
      matrices.n = invocations == kMostMatrixInvocations ? 32 : 16;
      matrices.k = 16;
      matrices.a = matrices.b = type;
      matrices.c = matrices.result = Component::f32;
      matrices.scope = kScopeWorkgroup;
      matrices.invocations = invocations;
      state.driver.flexible_matrices.push_back(matrices);
    }
  }
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_proc(VkInstance, const char* name) {
  const std::string_view wanted = name;
  OWN(vkCreateInstance, create_instance)
  OWN(vkCreateDevice, create_device)
  OWN(vkEnumerateInstanceVersion, enumerate_version)
  OWN(vkEnumerateInstanceExtensionProperties, instance_extensions)
  OWN(vkEnumeratePhysicalDevices, enumerate_devices)
  OWN(vkGetPhysicalDeviceProperties, properties_of)
  OWN(vkGetPhysicalDeviceProperties2, properties2_of)
  OWN(vkGetPhysicalDeviceFeatures2, features2_of)
  OWN(vkGetPhysicalDeviceMemoryProperties2, memory_of)
  OWN(vkGetPhysicalDeviceQueueFamilyProperties, queues_of)
  OWN(vkEnumerateDeviceExtensionProperties, device_extensions)
  OWN(vkGetDeviceProcAddr, get_device_proc)
  if (wanted == "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV") {
    const GetFlexibleMatrices own = flexible_matrices_of;
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  if (wanted == "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") {
    const GetCooperativeMatrices own = matrices_of;
    return reinterpret_cast<PFN_vkVoidFunction>(own);
  }
  BOWLINE_VULKAN_GLOBAL_FUNCTIONS(DEFAULT)
  BOWLINE_VULKAN_INSTANCE_FUNCTIONS(DEFAULT)
#undef OWN
#undef DEFAULT
  return nullptr;
}

}  // namespace bowline::detail::vulkan::fake
