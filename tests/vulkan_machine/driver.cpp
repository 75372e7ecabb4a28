// A Vulkan driver for conformance runs. It extends the fake driver of tests/device, which has the
// limits of a real device, by memory and by the machine that executes shaders.
//
// The library takes the place of the Vulkan loader. Environment:
//   BOWLINE_MACHINE_PROFILE   name of a profile (vulkan_profiles.h); default: GeForce RTX 4070
//   BOWLINE_MACHINE_SUBGROUP  subgroup size; default: that of the profile
//   BOWLINE_MACHINE_LACKS     bufferDeviceAddress: the driver lacks this feature
//   BOWLINE_MACHINE_HAS       cooperativeMatrixWorkgroupScope: the driver has this feature
//   BOWLINE_MACHINE_LIE       a fault of the driver, "<pipelines>:<effect>" (kLies, kEffects)
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/fake_vulkan.h"
#include "machine.h"
#include "physical_device.h"
#include "spirv.h"

namespace bowline::detail::vulkan::machine {
namespace {

struct Memory {
  uint64_t bytes = 0;
  char* data = nullptr;
};

enum class Effect : uint8_t { none, drops, fails, loses, hangs };

struct Pipeline {
  std::unique_ptr<Module> module;
  uint32_t subgroup = 0;
  bool requires_subgroup = false;
  std::map<uint32_t, uint32_t> constants = {};
  Effect effect = Effect::none;
};

struct Buffer {
  char* data = nullptr;
};

struct Command {
  std::function<std::string()> run;  // returns the fault, or an empty text
  Effect effect = Effect::none;
};

struct {
  std::map<VkDeviceMemory, Memory> memory;
  std::map<uint64_t, uint64_t> allocations;  // last byte + 1, first byte
  std::map<VkBuffer, Buffer> buffers;
  std::map<VkShaderModule, std::vector<uint32_t>> shaders;
  std::map<VkPipeline, Pipeline> pipelines;
  std::map<VkCommandBuffer, std::vector<Command>> commands;
  std::map<VkDescriptorSet, std::vector<uint64_t>> sets;  // addresses of the buffers
  const Pipeline* bound = nullptr;
  const std::vector<uint64_t>* bound_set = nullptr;
  std::array<uint32_t, 64> push{};
  bool failed = false;
} state;

template <class Function>
Function next(VkDevice device, const char* name) {
  static const auto get = reinterpret_cast<PFN_vkGetDeviceProcAddr>(
      fake::get_proc(VK_NULL_HANDLE, "vkGetDeviceProcAddr"));
  return reinterpret_cast<Function>(get(device, name));
}
#define NEXT(name) next<PFN_##name>(VK_NULL_HANDLE, #name)

bool is_memory(uint64_t address, uint64_t bytes) {
  const auto found = state.allocations.upper_bound(address);
  return found != state.allocations.end() && found->second <= address &&
         bytes <= found->first - address;
}

// ---- faults of drivers, for the self test

struct Lie {
  std::string_view pipelines;
  bool (*is_about)(const Pipeline&);
};

bool multiplies(const Pipeline& p, Element element) {
  return std::ranges::any_of(p.module->products,
                             [&](const MatrixProduct& m) { return m.a.element == element; });
}

bool accesses(const Pipeline& p, uint32_t bytes) {
  return std::ranges::any_of(p.module->accesses, [&](const Access& access) {
    return std::ranges::any_of(access.leaves,
                               [&](const Leaf& leaf) { return leaf.bytes == bytes; });
  });
}

constexpr Lie kLies[] = {
    {"workgroup_matrices",
     [](const Pipeline& p) {
       return std::ranges::any_of(p.module->products,
                                  [](const MatrixProduct& m) { return m.a.is_of_workgroup; });
     }},
    {"f16_matrices", [](const Pipeline& p) { return multiplies(p, Element::f16); }},
    {"bf16_matrices", [](const Pipeline& p) { return multiplies(p, Element::bf16); }},
    {"16_bits", [](const Pipeline& p) { return accesses(p, 2); }},
    {"8_bits", [](const Pipeline& p) { return accesses(p, 1); }},
    {"large_workgroups", [](const Pipeline& p) { return p.module->local[0] > 128; }},
    {"large_tiles",
     [](const Pipeline& p) {
       const auto is_large = [&](uint32_t number) {
         const auto found = p.constants.find(number);
         return found != p.constants.end() && found->second == 128;
       };
       return is_large(1) && is_large(2);
     }},
    {"addresses",
     [](const Pipeline& p) {
       return std::ranges::any_of(p.module->accesses, [](const Access& access) {
         return access.storage == spirv::kPhysicalStorageBuffer;
       });
     }},
    {"subgroup_sizes", [](const Pipeline& p) { return p.requires_subgroup; }},
    {"all", [](const Pipeline&) { return true; }},
};

constexpr std::pair<std::string_view, Effect> kEffects[] = {
    {"drops", Effect::drops},  // the last workgroup does not run
    {"fails", Effect::fails},  // there is no pipeline
    {"loses", Effect::loses},  // the device is lost
    {"hangs", Effect::hangs},
};

Effect effect_on(const Pipeline& pipeline) {
  const char* const text = std::getenv("BOWLINE_MACHINE_LIE");
  if (text == nullptr || *text == '\0') {
    return Effect::none;
  }
  const std::string_view words = text;
  const size_t colon = std::min(words.find(':'), words.size());
  const auto* const lie = std::ranges::find(kLies, words.substr(0, colon), &Lie::pipelines);
  const auto* const effect =
      std::ranges::find(kEffects, words.substr(std::min(colon + 1, words.size())),
                        &std::pair<std::string_view, Effect>::first);
  if (lie == std::end(kLies) || effect == std::end(kEffects)) {
    std::fprintf(stderr, "Vulkan machine: there is no lie '%s'.\n", text);
    std::exit(2);
  }
  return lie->is_about(pipeline) ? effect->second : Effect::none;
}

// ---- memory

VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo* info,
                                               const VkAllocationCallbacks* callbacks,
                                               VkDeviceMemory* memory) {
  const VkResult result = NEXT(vkAllocateMemory)(device, info, callbacks, memory);
  if (result != VK_SUCCESS) {
    return result;
  }
  void* const data = mmap(nullptr, info->allocationSize, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  }
  constexpr uint64_t kMostPoison = uint64_t{64} << 20;  // a page that is written takes memory
  const uint64_t poisoned = std::min(info->allocationSize, kMostPoison) / sizeof(kPoison);
  std::fill_n(static_cast<uint32_t*>(data), poisoned, kPoison);
  const auto first = reinterpret_cast<uint64_t>(data);
  state.memory[*memory] = {info->allocationSize, static_cast<char*>(data)};
  state.allocations[first + info->allocationSize] = first;
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                       const VkAllocationCallbacks* callbacks) {
  const Memory m = state.memory[memory];
  if (m.data != nullptr) {
    state.allocations.erase(reinterpret_cast<uint64_t>(m.data) + m.bytes);
    munmap(m.data, m.bytes);
  }
  state.memory.erase(memory);
  NEXT(vkFreeMemory)(device, memory, callbacks);
}

VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice, VkDeviceMemory memory, VkDeviceSize offset,
                                          VkDeviceSize, VkMemoryMapFlags, void** data) {
  *data = state.memory[memory].data + offset;
  return VK_SUCCESS;
}

VKAPI_ATTR VkResult VKAPI_CALL bind_memory(VkDevice, VkBuffer buffer, VkDeviceMemory memory,
                                           VkDeviceSize offset) {
  state.buffers[buffer].data = state.memory[memory].data + offset;
  return VK_SUCCESS;
}

VKAPI_ATTR VkDeviceAddress VKAPI_CALL address_of(VkDevice, const VkBufferDeviceAddressInfo* info) {
  return reinterpret_cast<VkDeviceAddress>(state.buffers[info->buffer].data);
}

// ---- pipelines

// True if the driver lists the products of matrices of workgroups, and the module leaves it the
// shared memory that it needs.
bool can_multiply(const Module& module) {
  return std::ranges::all_of(module.products, [&](const MatrixProduct& product) {
    const auto fits = [&](const FlexibleMatrixProperties& p) {
      const Component type = product.a.element == Element::f16 ? Component::f16 : Component::bf16;
      return p.a == type && p.invocations == module.local[0] && product.a.rows % p.m == 0 &&
             product.b.columns % p.n == 0 && product.a.columns % p.k == 0;
    };
    const uint32_t largest = std::max({product.a.rows, product.a.columns, product.b.columns});
    return !product.a.is_of_workgroup ||
           (largest <= fake::kMostMatrixSide &&
            module.shared_bytes + fake::kReservedSharedBytes <=
                fake::driver().profile.shared_bytes &&
            std::ranges::any_of(fake::driver().flexible_matrices, fits));
  });
}

VKAPI_ATTR VkResult VKAPI_CALL create_shader(VkDevice device, const VkShaderModuleCreateInfo* info,
                                             const VkAllocationCallbacks* callbacks,
                                             VkShaderModule* shader) {
  const VkResult result = NEXT(vkCreateShaderModule)(device, info, callbacks, shader);
  state.shaders[*shader].assign(info->pCode, info->pCode + info->codeSize / sizeof(uint32_t));
  return result;
}

VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache,
                                                uint32_t count,
                                                const VkComputePipelineCreateInfo* info,
                                                const VkAllocationCallbacks* callbacks,
                                                VkPipeline* pipeline) {
  const VkResult result =
      NEXT(vkCreateComputePipelines)(device, cache, count, info, callbacks, pipeline);
  const VkSpecializationInfo& special = *info->stage.pSpecializationInfo;
  std::map<uint32_t, uint32_t> constants;
  for (uint32_t i = 0; i < special.mapEntryCount; ++i) {
    const VkSpecializationMapEntry& entry = special.pMapEntries[i];
    std::memcpy(&constants[entry.constantID],
                static_cast<const char*>(special.pData) + entry.offset, entry.size);
  }
  Pipeline& p = state.pipelines[*pipeline];
  p.subgroup = fake::driver().profile.subgroup.size;
  const auto* const next = static_cast<const VkBaseInStructure*>(info->stage.pNext);
  if (next != nullptr &&
      next->sType == VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO) {
    p.subgroup = reinterpret_cast<const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo*>(next)
                     ->requiredSubgroupSize;
    p.requires_subgroup = true;
  }
  p.module = std::make_unique<Module>(decode(state.shaders[info->stage.module], constants));
  p.constants = std::move(constants);
  if (!can_multiply(*p.module)) {
    fake::driver().faults.emplace_back("a product of matrices that the driver does not list");
  }
  p.effect = effect_on(p);
  return p.effect == Effect::fails ? VK_ERROR_UNKNOWN : result;
}

// ---- commands

VKAPI_ATTR VkResult VKAPI_CALL begin(VkCommandBuffer buffer, const VkCommandBufferBeginInfo*) {
  state.commands[buffer].clear();
  state.bound_set = nullptr;
  return VK_SUCCESS;
}

VKAPI_ATTR void VKAPI_CALL free_buffers(VkDevice, VkCommandPool, uint32_t count,
                                        const VkCommandBuffer* buffers) {
  for (uint32_t i = 0; i < count; ++i) {
    state.commands.erase(buffers[i]);
  }
}

VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer, VkPipelineBindPoint,
                                         VkPipeline pipeline) {
  state.bound = &state.pipelines[pipeline];
}

VKAPI_ATTR void VKAPI_CALL update_sets(VkDevice device, uint32_t count,
                                       const VkWriteDescriptorSet* writes, uint32_t copies,
                                       const VkCopyDescriptorSet* copy) {
  NEXT(vkUpdateDescriptorSets)(device, count, writes, copies, copy);
  for (const VkWriteDescriptorSet& write : std::span(writes, count)) {
    std::vector<uint64_t>& set = state.sets[write.dstSet];
    set.clear();
    for (const VkDescriptorBufferInfo& info : std::span(write.pBufferInfo, write.descriptorCount)) {
      set.push_back(reinterpret_cast<uint64_t>(state.buffers[info.buffer].data) + info.offset);
    }
  }
}

VKAPI_ATTR void VKAPI_CALL bind_sets(VkCommandBuffer, VkPipelineBindPoint, VkPipelineLayout,
                                     uint32_t, uint32_t, const VkDescriptorSet* sets, uint32_t,
                                     const uint32_t*) {
  state.bound_set = &state.sets[*sets];
}

VKAPI_ATTR void VKAPI_CALL push_constants(VkCommandBuffer, VkPipelineLayout, VkShaderStageFlags,
                                          uint32_t offset, uint32_t size, const void* values) {
  std::memcpy(reinterpret_cast<char*>(state.push.data()) + offset, values, size);
}

VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer buffer, uint32_t x0, uint32_t y0, uint32_t z0,
                                    uint32_t x, uint32_t y, uint32_t z) {
  NEXT(vkCmdDispatchBase)(buffer, x0, y0, z0, x, y, z);
  Dispatch d;
  d.module = state.bound->module.get();
  d.subgroup = state.bound->subgroup;
  d.base = {x0, y0, z0};
  d.groups = {x, y, z};
  d.push = state.push;
  if (state.bound_set != nullptr) {
    d.buffers = *state.bound_set;
  }
  const Effect effect = state.bound->effect;
  if (effect == Effect::drops) {
    --d.groups[0];
  }
  state.commands[buffer].push_back({[d] { return run(d, is_memory); }, effect});
}

VKAPI_ATTR void VKAPI_CALL copy_buffer(VkCommandBuffer buffer, VkBuffer from, VkBuffer to,
                                       uint32_t count, const VkBufferCopy* regions) {
  NEXT(vkCmdCopyBuffer)(buffer, from, to, count, regions);
  for (uint32_t i = 0; i < count; ++i) {
    const char* const source = state.buffers[from].data + regions[i].srcOffset;
    char* const target = state.buffers[to].data + regions[i].dstOffset;
    state.commands[buffer].push_back({[source, target, bytes = regions[i].size] {
      std::memmove(target, source, bytes);
      return std::string();
    }});
  }
}

VKAPI_ATTR void VKAPI_CALL fill_buffer(VkCommandBuffer buffer, VkBuffer to, VkDeviceSize offset,
                                       VkDeviceSize bytes, uint32_t word) {
  char* const target = state.buffers[to].data + offset;
  state.commands[buffer].push_back({[target, bytes, word] {
    std::fill_n(reinterpret_cast<uint32_t*>(target), bytes / sizeof(word), word);
    return std::string();
  }});
}

VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo* info,
                                      VkFence fence) {
  fake::driver().hangs = false;
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t k = 0; k < info[i].commandBufferCount; ++k) {
      for (const Command& command : state.commands[info[i].pCommandBuffers[k]]) {
        if (command.effect == Effect::loses) {
          return VK_ERROR_DEVICE_LOST;
        }
        fake::driver().hangs = fake::driver().hangs || command.effect == Effect::hangs;
        if (const std::string fault = command.run(); !fault.empty()) {
          std::fprintf(stderr, "Vulkan machine: %s\n", fault.c_str());
          state.failed = true;
          return VK_ERROR_DEVICE_LOST;
        }
      }
    }
  }
  for (const std::string& fault : fake::driver().faults) {
    std::fprintf(stderr, "Vulkan machine: %s\n", fault.c_str());
    state.failed = true;
  }
  return state.failed ? VK_ERROR_DEVICE_LOST : NEXT(vkQueueSubmit)(queue, count, info, fence);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_proc(VkDevice device, const char* name) {
  const std::string_view wanted = name;
#define OWN(function, own)                                \
  if (wanted == #function) {                              \
    const PFN_##function checked = own;                   \
    return reinterpret_cast<PFN_vkVoidFunction>(checked); \
  }
  OWN(vkAllocateMemory, allocate_memory)
  OWN(vkFreeMemory, free_memory)
  OWN(vkMapMemory, map_memory)
  OWN(vkBindBufferMemory, bind_memory)
  OWN(vkGetBufferDeviceAddress, address_of)
  OWN(vkCreateShaderModule, create_shader)
  OWN(vkCreateComputePipelines, create_pipelines)
  OWN(vkBeginCommandBuffer, begin)
  OWN(vkFreeCommandBuffers, free_buffers)
  OWN(vkCmdBindPipeline, bind_pipeline)
  OWN(vkUpdateDescriptorSets, update_sets)
  OWN(vkCmdBindDescriptorSets, bind_sets)
  OWN(vkCmdPushConstants, push_constants)
  OWN(vkCmdDispatchBase, dispatch)
  OWN(vkCmdCopyBuffer, copy_buffer)
  OWN(vkCmdFillBuffer, fill_buffer)
  OWN(vkQueueSubmit, submit)
  return next<PFN_vkVoidFunction>(device, name);
}

// The profile that the environment names.
void choose_profile() {
  const char* const name = std::getenv("BOWLINE_MACHINE_PROFILE");
  const char* const size = std::getenv("BOWLINE_MACHINE_SUBGROUP");
  const std::string_view wanted = name == nullptr ? "GeForce RTX 4070" : name;
  const auto* const found =
      std::ranges::find(profiles::kProfiles, wanted, &profiles::Profile::name);
  if (found == std::end(profiles::kProfiles)) {
    std::fprintf(stderr, "Vulkan machine: no profile is named '%s'.\n", name);
    std::exit(2);
  }
  profiles::Profile profile = *found;
  if (size != nullptr) {
    const auto lanes = static_cast<uint32_t>(std::strtoul(size, nullptr, 10));
    profile.subgroup = {lanes, lanes, lanes};
  }
  fake::reset(profile);
  if (const char* const lacks = std::getenv("BOWLINE_MACHINE_LACKS"); lacks != nullptr) {
    fake::driver().has_addresses = std::string_view(lacks) != "bufferDeviceAddress";
  }
  if (const char* const has = std::getenv("BOWLINE_MACHINE_HAS");
      has != nullptr && std::string_view(has) == "cooperativeMatrixWorkgroupScope") {
    fake::add_workgroup_matrices();
  }
  for (const Component type : {Component::f16, Component::bf16}) {
    auto matrices = typed<CooperativeMatrixProperties>(kCooperativeMatrixType);
    matrices.m = profile.vendor == kIntel ? 8 : 16;
    matrices.n = matrices.k = 16;
    matrices.a = matrices.b = type;
    matrices.c = matrices.result = Component::f32;
    matrices.scope = kScopeSubgroup;
    fake::driver().matrices.push_back(matrices);
  }
}

}  // namespace
}  // namespace bowline::detail::vulkan::machine

extern "C" __attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
vkGetInstanceProcAddr(VkInstance instance, const char* name) {
  using namespace bowline::detail::vulkan;
  static const bool chosen = (machine::choose_profile(), true);
  static_cast<void>(chosen);
  if (std::string_view(name) == "vkGetDeviceProcAddr") {
    return reinterpret_cast<PFN_vkVoidFunction>(machine::get_device_proc);
  }
  return fake::get_proc(instance, name);
}
