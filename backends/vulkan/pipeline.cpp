#include "pipeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "base/atomic_file.h"
#include "float_controls.h"
#include "packed_shaders.h"
#include "shader_code.h"
#include "spirv.h"
#include "vulkan_shaders.h"
#include "word_elements.h"

namespace bowline::detail::vulkan {
namespace {

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t hash) {  // FNV-1a
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ p[i]) * 0x100000001b3u;
  }
  return hash;
}

// The name contains everything on which the contents depend: the driver and the shaders.
std::string cache_path(const std::string& folder, const PhysicalDevice& physical) {
  uint64_t hash = 0xcbf29ce484222325u;
  hash = hash_bytes(physical.pipeline_cache_uuid, VK_UUID_SIZE, hash);
  hash = hash_bytes(&physical.properties.driverVersion, sizeof(uint32_t), hash);
  hash = hash_bytes(&physical.subgroup_size, sizeof(uint32_t), hash);
  hash = hash_bytes(kPackedWords, kPackedBytes, hash);
  char name[48];
  std::snprintf(name, sizeof(name), "/vulkan-%016llx.cache", static_cast<unsigned long long>(hash));
  return folder + name;
}

constexpr uint64_t kLargestCache = 256u << 20;

// Empty if no regular file exists. With O_NONBLOCK, opening a pipe does not wait for its writer.
std::vector<char> read_file(const std::string& path) {
  std::vector<char> bytes;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
      static_cast<uint64_t>(status.st_size) < kLargestCache) {
    bytes.resize(static_cast<size_t>(status.st_size));
    if (::read(fd, bytes.data(), bytes.size()) != status.st_size) {
      bytes.clear();
    }
  }
  if (fd >= 0) {
    ::close(fd);
  }
  return bytes;
}

// Bowline's own envelope: drivers check the header of their data, but not all check its contents.
struct CacheHeader {
  char magic[8] = {'b', 'w', 'l', 'n', 'v', 'k', 'p', '1'};
  uint64_t bytes = 0;
  uint64_t hash = 0;
};

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
  if (std::tie(shader, subgroup) != std::tie(other.shader, other.subgroup)) {
    return std::tie(shader, subgroup) < std::tie(other.shader, other.subgroup);
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
}

VkResult Pipelines::open(const std::string& folder) {
  std::vector<char> bytes;
  if (!folder.empty()) {
    path_ = cache_path(folder, device_->physical());
    bytes = read_file(path_);
  }
  CacheHeader header;
  auto cache = typed<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  if (bytes.size() > sizeof(header)) {
    const CacheHeader expected;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const char* data = bytes.data() + sizeof(header);
    const size_t size = bytes.size() - sizeof(header);
    if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) == 0 &&
        header.bytes == size && header.hash == hash_bytes(data, size, 0)) {
      cache.initialDataSize = size;
      cache.pInitialData = data;
    }
  }
  const DeviceFunctions& vk = device_->call();
  VkResult result = vk.vkCreatePipelineCache(device_->handle(), &cache, nullptr, &cache_);
  if (result != VK_SUCCESS) {
    return result;
  }
  VkPushConstantRange range{};
  range.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  range.size = kPushBytes;
  auto layout = typed<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  return vk.vkCreatePipelineLayout(device_->handle(), &layout, nullptr, &layout_);
}

std::vector<uint32_t> Pipelines::code(const PipelineKey& key) const {
  const PhysicalDevice& physical = device_->physical();
  const LackingAccess lacking{!physical.has_16bit_storage, !physical.has_8bit_storage};
  std::vector<uint32_t> words = elements_in_words(
      chosen_cases(shader_module(key.shader), {key.constants, key.count}), lacking);
  return physical.keeps_special_values ? with_special_values(words) : words;
}

VkResult Pipelines::get(const PipelineKey& key, VkPipeline* pipeline) {
  const auto found = pipelines_.find(key);
  if (found != pipelines_.end()) {
    *pipeline = found->second;
    return VK_SUCCESS;
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
  std::vector<char> data(bytes);
  if (vk.vkGetPipelineCacheData(device_->handle(), cache_, &bytes, data.data()) != VK_SUCCESS) {
    return;
  }
  CacheHeader header;
  header.bytes = bytes;
  header.hash = hash_bytes(data.data(), bytes, 0);
  const auto file = AtomicFile::create(path_, sizeof(header) + bytes, real_file_system());
  dirty_ = !file.ok() || !file.value()->write(std::as_bytes(std::span(&header, 1))).ok() ||
           !file.value()->write(std::as_bytes(std::span(data))).ok() ||
           !file.value()->commit().ok();
}

}  // namespace bowline::detail::vulkan
