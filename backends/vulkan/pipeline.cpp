#include "pipeline.h"

#include <algorithm>
#include <tuple>

#include "bindings.h"
#include "cache_file.h"
#include "float_controls.h"
#include "packed_shaders.h"
#include "shader_code.h"
#include "spirv.h"
#include "vulkan_shaders.h"
#include "word_elements.h"

namespace bowline::detail::vulkan {
namespace {

// True if a module has an operation or a builtin of subgroups.
bool uses_subgroups(std::span<const uint32_t> module) {
  bool uses = false;
  spirv::for_each_instruction(module, [&](spirv::Instruction i) {
    uses = uses || (spirv::operation(i) == spirv::kCapability && i[1] >= spirv::kGroupNonUniform &&
                    i[1] <= spirv::kGroupNonUniformQuad);
  });
  return uses;
}

}  // namespace

bool PipelineKey::operator<(const PipelineKey& other) const {
  const auto all = [](const PipelineKey& key) {
    return std::tie(key.shader, key.subgroup, key.buffers);
  };
  if (all(*this) != all(other)) {
    return all(*this) < all(other);
  }
  return std::lexicographical_compare(constants, constants + count, other.constants,
                                      other.constants + other.count);
}

Pipelines::~Pipelines() {
  if (device_->hung() != nullptr) {
    return;
  }
  const DeviceFunctions& vk = device_->call();
  for (auto& entry : pipelines_) {
    vk.vkDestroyPipeline(device_->handle(), entry.second, nullptr);
  }
  if (cache_ != VK_NULL_HANDLE) {
    vk.vkDestroyPipelineCache(device_->handle(), cache_, nullptr);
  }
  if (layout_ != VK_NULL_HANDLE) {
    vk.vkDestroyPipelineLayout(device_->handle(), layout_, nullptr);
  }
  if (set_layout_ != VK_NULL_HANDLE) {
    vk.vkDestroyDescriptorSetLayout(device_->handle(), set_layout_, nullptr);
  }
}

VkResult Pipelines::open(const std::string& folder) {
  std::vector<std::byte> bytes;
  if (!folder.empty()) {
    path_ = cache_path(folder, cache_key(device_->physical()), ".cache");
    bytes = read_cache(path_);
  }
  auto cache = typed<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  cache.initialDataSize = bytes.size();
  cache.pInitialData = bytes.data();
  const DeviceFunctions& vk = device_->call();
  VkResult result = vk.vkCreatePipelineCache(device_->handle(), &cache, nullptr, &cache_);
  if (result != VK_SUCCESS) {
    return result;
  }
  if (!device_->physical().has_buffer_addresses) {
    result = make_set_layout();
    if (result != VK_SUCCESS) {
      return result;
    }
  }
  VkPushConstantRange range{};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kPushBytes;
  auto layout = typed<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  layout.setLayoutCount = set_layout_ == VK_NULL_HANDLE ? 0 : 1;
  layout.pSetLayouts = &set_layout_;
  return vk.vkCreatePipelineLayout(device_->handle(), &layout, nullptr, &layout_);
}

VkResult Pipelines::make_set_layout() {
  VkDescriptorSetLayoutBinding buffers{};
  buffers.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  buffers.descriptorCount = device_->physical().max_bound_buffers;
  buffers.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  auto info =
      typed<VkDescriptorSetLayoutCreateInfo>(VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO);
  info.bindingCount = 1;
  info.pBindings = &buffers;
  return device_->call().vkCreateDescriptorSetLayout(device_->handle(), &info, nullptr,
                                                     &set_layout_);
}

std::vector<uint32_t> Pipelines::code(const PipelineKey& key) const {
  const PhysicalDevice& physical = device_->physical();
  const LackingAccess lacking{!physical.has_16bit_storage, !physical.has_8bit_storage};
  std::vector<uint32_t> words = elements_in_words(
      chosen_cases(shader_module(key.shader), {key.constants, key.count}), lacking);
  if (key.buffers != 0) {
    words = with_bindings(words, key.buffers);
  }
  return physical.keeps_special_values ? with_special_values(words) : words;
}

VkResult Pipelines::get(const PipelineKey& key, VkPipeline* pipeline) {
  const auto found = pipelines_.find(key);
  if (found != pipelines_.end()) {
    *pipeline = found->second;
    return VK_SUCCESS;
  }
  if (kPackedShaders[key.shader].words == 0) {
    return VK_ERROR_FEATURE_NOT_PRESENT;
  }
  VkSpecializationMapEntry entries[kMaxConstants];
  for (uint32_t i = 0; i < key.count; ++i) {
    entries[i] = {i, static_cast<uint32_t>(i * sizeof(uint32_t)), sizeof(uint32_t)};
  }
  VkSpecializationInfo special{};
  special.mapEntryCount = key.count;
  special.pMapEntries = entries;
  special.dataSize = key.count * sizeof(uint32_t);
  special.pData = key.constants;
  const PhysicalDevice& physical = device_->physical();
  auto subgroup = typed<VkPipelineShaderStageRequiredSubgroupSizeCreateInfo>(
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO);
  subgroup.requiredSubgroupSize = key.subgroup == 0 ? physical.subgroup_size : key.subgroup;
  auto info = typed<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.flags = VK_PIPELINE_CREATE_DISPATCH_BASE_BIT;  // long dispatches run in several parts
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  const std::vector<uint32_t> words = code(key);
  if (physical.max_subgroup != 0 && uses_subgroups(words)) {
    // Such a kernel relies on whole subgroups, so the driver must not choose another size. For the
    // others, the driver knows best.
    info.stage.pNext = &subgroup;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = layout_;
  auto module = typed<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  module.codeSize = words.size() * sizeof(uint32_t);
  module.pCode = words.data();
  const DeviceFunctions& vk = device_->call();
  VkResult result =
      vk.vkCreateShaderModule(device_->handle(), &module, nullptr, &info.stage.module);
  if (result != VK_SUCCESS) {
    return result;
  }
  result = vk.vkCreateComputePipelines(device_->handle(), cache_, 1, &info, nullptr, pipeline);
  vk.vkDestroyShaderModule(device_->handle(), info.stage.module, nullptr);
  if (result == VK_SUCCESS) {
    pipelines_.emplace(key, *pipeline);
    dirty_ = true;
  }
  return result;
}

void Pipelines::save() {
  if (!dirty_ || path_.empty() || cache_ == VK_NULL_HANDLE) {
    return;
  }
  size_t bytes = 0;
  const DeviceFunctions& vk = device_->call();
  vk.vkGetPipelineCacheData(device_->handle(), cache_, &bytes, nullptr);
  std::vector<std::byte> data(bytes);
  if (vk.vkGetPipelineCacheData(device_->handle(), cache_, &bytes, data.data()) != VK_SUCCESS) {
    return;
  }
  dirty_ = !write_cache(path_, std::span(data).first(bytes));
}

}  // namespace bowline::detail::vulkan
