#include "device_features.h"

#include <cstring>

#include "base/format.h"

namespace bowline::detail::vulkan {

DeviceFeatures::DeviceFeatures(const PhysicalDevice& physical)
    : vulkan12_(typed<VkPhysicalDeviceVulkan12Features>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES)),
      half_(typed<VkPhysicalDevice16BitStorageFeatures>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)),
      control_(typed<VkPhysicalDeviceSubgroupSizeControlFeatures>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES)),
      matrices_(typed<CooperativeMatrixFeatures>(kCooperativeMatrixFeaturesType)),
      of_workgroups_(typed<CooperativeMatrix2Features>(kCooperativeMatrix2FeaturesType)),
      bf16_(typed<Bfloat16Features>(kBfloat16FeaturesType)),
      features_(typed<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)) {
  const auto enable = [&](VkBool32& feature, bool has, const char* name) {
    feature = has ? VK_TRUE : VK_FALSE;
    if (has) {
      wanted_.emplace_back(name);
    }
  };
  const bool has_units = physical.f16_unit.m != 0 || physical.bf16_unit.m != 0;
  const bool has_workgroup_units = has_units && !physical.workgroup_units.empty();
  const bool has_bf16 = physical.bf16_unit.m != 0;
  const bool has_control = physical.max_subgroup != 0;
  vulkan12_.timelineSemaphore = VK_TRUE;
  vulkan12_.scalarBlockLayout = VK_TRUE;
  needed_ = {"timelineSemaphore", "scalarBlockLayout"};
  enable(vulkan12_.bufferDeviceAddress, physical.has_buffer_addresses, "bufferDeviceAddress");
  enable(vulkan12_.storageBuffer8BitAccess, physical.has_8bit_storage, "storageBuffer8BitAccess");
  enable(half_.storageBuffer16BitAccess, physical.has_16bit_storage, "storageBuffer16BitAccess");
  enable(features_.features.shaderInt64, physical.has_int64, "shaderInt64");
  enable(vulkan12_.shaderFloat16, physical.f16_unit.m != 0, "shaderFloat16");
  enable(vulkan12_.vulkanMemoryModel, has_units, "vulkanMemoryModel");
  enable(control_.subgroupSizeControl, has_control, "subgroupSizeControl");
  enable(control_.computeFullSubgroups, has_control, "computeFullSubgroups");
  enable(matrices_.cooperativeMatrix, has_units, "cooperativeMatrix");
  enable(of_workgroups_.cooperativeMatrixWorkgroupScope, has_workgroup_units,
         "cooperativeMatrixWorkgroupScope");
  enable(of_workgroups_.cooperativeMatrixFlexibleDimensions, has_workgroup_units,
         "cooperativeMatrixFlexibleDimensions");
  enable(bf16_.shaderBFloat16Type, has_bf16, "shaderBFloat16Type");
  enable(bf16_.shaderBFloat16CooperativeMatrix, has_bf16, "shaderBFloat16CooperativeMatrix");
  Chain chain;
  chain.add(&vulkan12_);
  chain.add(&half_);
  const auto use = [&](bool has, const char* extension, auto* structure) {
    if (has) {
      extensions_.push_back(extension);
      chain.add(structure);
    }
  };
  use(has_control, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME, &control_);
  use(has_units, kCooperativeMatrixExtension, &matrices_);
  use(has_workgroup_units, kCooperativeMatrix2Extension, &of_workgroups_);
  use(has_bf16, kBfloat16Extension, &bf16_);
  const auto add = [&](bool has, const char* extension) {
    if (has) {
      extensions_.push_back(extension);
    }
  };
  add(physical.has_memory_budget, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  add(physical.has_memory_fd, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  add(physical.has_dma_buf, VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME);
  add(physical.has_semaphore_fd, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  add(physical.is_portability_subset, kPortabilitySubsetExtension);
  features_.pNext = chain.first();
}

namespace {

// The features that a VkDeviceCreateInfo enables, whichever struct has them.
struct Enabled {
  bool timeline_semaphore = false;
  bool scalar_block_layout = false;
  bool buffer_addresses = false;
  bool storage_8bit = false;
  bool storage_16bit = false;
  bool int64 = false;
  bool float16 = false;
  bool memory_model = false;
  bool size_control = false;
  bool full_subgroups = false;
  bool matrices = false;
  bool workgroup_matrices = false;
  bool bf16 = false;

  void add(const VkBaseInStructure& structure);
};

void Enabled::add(const VkBaseInStructure& structure) {
  const auto set = [](bool& feature, VkBool32 value) { feature = feature || value == VK_TRUE; };
  const auto as = [&]<class T>(const T*) -> const T& {
    return reinterpret_cast<const T&>(structure);
  };
#define BOWLINE_AS(type) as(static_cast<const type*>(nullptr))
  switch (static_cast<int64_t>(structure.sType)) {
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2:
      set(int64, BOWLINE_AS(VkPhysicalDeviceFeatures2).features.shaderInt64);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES:
      set(storage_16bit, BOWLINE_AS(VkPhysicalDeviceVulkan11Features).storageBuffer16BitAccess);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES: {
      const auto& f = BOWLINE_AS(VkPhysicalDeviceVulkan12Features);
      set(timeline_semaphore, f.timelineSemaphore);
      set(scalar_block_layout, f.scalarBlockLayout);
      set(buffer_addresses, f.bufferDeviceAddress);
      set(storage_8bit, f.storageBuffer8BitAccess);
      set(float16, f.shaderFloat16);
      set(memory_model, f.vulkanMemoryModel);
      break;
    }
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES: {
      const auto& f = BOWLINE_AS(VkPhysicalDeviceVulkan13Features);
      set(size_control, f.subgroupSizeControl);
      set(full_subgroups, f.computeFullSubgroups);
      break;
    }
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES:
      set(timeline_semaphore,
          BOWLINE_AS(VkPhysicalDeviceTimelineSemaphoreFeatures).timelineSemaphore);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SCALAR_BLOCK_LAYOUT_FEATURES:
      set(scalar_block_layout,
          BOWLINE_AS(VkPhysicalDeviceScalarBlockLayoutFeatures).scalarBlockLayout);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES:
      set(buffer_addresses,
          BOWLINE_AS(VkPhysicalDeviceBufferDeviceAddressFeatures).bufferDeviceAddress);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES:
      set(storage_8bit, BOWLINE_AS(VkPhysicalDevice8BitStorageFeatures).storageBuffer8BitAccess);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES:
      set(storage_16bit, BOWLINE_AS(VkPhysicalDevice16BitStorageFeatures).storageBuffer16BitAccess);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES:
      set(float16, BOWLINE_AS(VkPhysicalDeviceShaderFloat16Int8Features).shaderFloat16);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES:
      set(memory_model, BOWLINE_AS(VkPhysicalDeviceVulkanMemoryModelFeatures).vulkanMemoryModel);
      break;
    case VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES: {
      const auto& f = BOWLINE_AS(VkPhysicalDeviceSubgroupSizeControlFeatures);
      set(size_control, f.subgroupSizeControl);
      set(full_subgroups, f.computeFullSubgroups);
      break;
    }
    case kCooperativeMatrixFeaturesType:
      set(matrices, BOWLINE_AS(CooperativeMatrixFeatures).cooperativeMatrix);
      break;
    case kCooperativeMatrix2FeaturesType: {
      const auto& f = BOWLINE_AS(CooperativeMatrix2Features);
      set(workgroup_matrices,
          f.cooperativeMatrixWorkgroupScope & f.cooperativeMatrixFlexibleDimensions);
      break;
    }
    case kBfloat16FeaturesType: {
      const auto& f = BOWLINE_AS(Bfloat16Features);
      set(bf16, f.shaderBFloat16Type & f.shaderBFloat16CooperativeMatrix);
      break;
    }
    default:
      break;
  }
#undef BOWLINE_AS
}

bool enables(const VkDeviceCreateInfo& info, const char* extension) {
  for (uint32_t i = 0; i < info.enabledExtensionCount; ++i) {
    if (std::strcmp(info.ppEnabledExtensionNames[i], extension) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string restrict_to(const VkDeviceCreateInfo& info, PhysicalDevice* physical) {
  Enabled enabled;
  enabled.int64 = info.pEnabledFeatures != nullptr && info.pEnabledFeatures->shaderInt64 == VK_TRUE;
  for (const auto* s = static_cast<const VkBaseInStructure*>(info.pNext); s != nullptr;
       s = s->pNext) {
    enabled.add(*s);
  }
  if (!enabled.timeline_semaphore) {
    return "timelineSemaphore";
  }
  if (!enabled.scalar_block_layout) {
    return "scalarBlockLayout";
  }
  // The results of the self test and of tune() depend on what is missing.
  const auto without = [&](bool had, bool is_enabled, std::string_view name) {
    if (had && !is_enabled) {
      physical->variants +=
          format("{}not enabled: {}", physical->variants.empty() ? "" : ", ", name);
    }
    return had && !is_enabled;
  };
  if (without(physical->has_int64, enabled.int64, "shaderInt64")) {
    physical->has_int64 = false;
  }
  if (without(physical->has_16bit_storage, enabled.storage_16bit, "storageBuffer16BitAccess")) {
    physical->has_16bit_storage = false;
  }
  if (without(physical->has_8bit_storage, enabled.storage_8bit, "storageBuffer8BitAccess")) {
    physical->has_8bit_storage = false;
  }
  const bool controls = enabled.size_control && enabled.full_subgroups;
  if (without(physical->max_subgroup != 0, controls, "subgroupSizeControl")) {
    physical->min_subgroup = physical->max_subgroup = 0;
    physical->subgroup_size = physical->default_subgroup;
  }
  const bool units =
      enabled.matrices && enabled.memory_model && enables(info, kCooperativeMatrixExtension);
  if (without(physical->f16_unit.m != 0, units && enabled.float16, "cooperativeMatrix")) {
    physical->f16_unit = {};
  }
  if (without(physical->bf16_unit.m != 0,
              units && enabled.bf16 && enables(info, kBfloat16Extension),
              "shaderBFloat16CooperativeMatrix")) {
    physical->bf16_unit = {};
  }
  if (without(!physical->workgroup_units.empty(),
              enabled.workgroup_matrices && enables(info, kCooperativeMatrix2Extension),
              "cooperativeMatrixWorkgroupScope")) {
    physical->workgroup_units.clear();
  }
  if (without(physical->has_buffer_addresses, enabled.buffer_addresses, "bufferDeviceAddress")) {
    physical->use_descriptors();
  }
  physical->has_memory_budget =
      physical->has_memory_budget && enables(info, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  physical->has_memory_fd =
      physical->has_memory_fd && enables(info, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
  physical->has_dma_buf = physical->has_memory_fd && physical->has_dma_buf &&
                          enables(info, VK_EXT_EXTERNAL_MEMORY_DMA_BUF_EXTENSION_NAME);
  physical->has_semaphore_fd =
      physical->has_semaphore_fd && enables(info, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
  return {};
}

}  // namespace bowline::detail::vulkan
