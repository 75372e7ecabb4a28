// Compute pipelines, created on first use, one per (shader variant, specialization constants).
//
// All shaders share one layout: 128 bytes of push constants with the addresses of the operands. If
// the device has no addresses, one descriptor set with an array of storage buffers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device.h"

namespace bowline::detail::vulkan {

constexpr uint32_t kPushBytes = 128;  // the minimum that every device supports
constexpr uint32_t kMaxConstants = 10;

// Specialization constants by number. Constant 0 is the x size of the workgroup.
struct PipelineKey {
  uint32_t shader = 0;
  uint32_t count = 0;
  uint32_t constants[kMaxConstants] = {};
  uint32_t subgroup = 0;  // required size; 0: that of the device
  uint32_t buffers = 0;   // in the descriptor set; 0: kernels use addresses
  bool operator<(const PipelineKey& other) const;
};

class Pipelines {
 public:
  explicit Pipelines(Device& device) : device_(&device) {}
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // Reads the cache of an earlier process from `folder`; an empty folder disables the cache. A
  // damaged file is ignored.
  VkResult open(const std::string& folder);
  // Returns the pipeline, which is created on first use.
  VkResult get(const PipelineKey& key, VkPipeline* pipeline);
  // Writes the cache if pipelines were created since, through a temporary file and a rename. A
  // failure costs only time.
  void save();

  VkPipelineLayout layout() const { return layout_; }
  VkDescriptorSetLayout set_layout() const { return set_layout_; }
  size_t count() const { return pipelines_.size(); }

 private:
  // The code of a pipeline, with its switches resolved and accesses that the device supports.
  std::vector<uint32_t> code(const PipelineKey& key) const;
  VkResult make_set_layout();

  Device* device_;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;  // null: kernels use addresses
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::string path_;
  bool dirty_ = false;
  std::map<PipelineKey, VkPipeline> pipelines_;
};

}  // namespace bowline::detail::vulkan
