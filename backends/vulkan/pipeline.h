// Compute pipelines, made when first used, one per (shader variant, specialization constants).
//
// All shaders share one layout: no descriptor sets, 128 bytes of push constants with the operands'
// addresses.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device.h"

namespace bowline::detail::vulkan {

constexpr uint32_t kPushBytes = 128;  // every device has at least these
constexpr uint32_t kMaxConstants = 7;

// Specialization constants by number; constant 0 is the workgroup's size in x.
struct PipelineKey {
  uint32_t shader = 0;
  uint32_t count = 0;
  uint32_t constants[kMaxConstants] = {};
  bool operator<(const PipelineKey& other) const;
};

class Pipelines {
 public:
  explicit Pipelines(Device& device) : device_(&device) {}
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // Reads the cache of an earlier process from `folder` (empty: none is kept); a damaged file is
  // ignored.
  VkResult open(const std::string& folder);
  // The pipeline; made now if it is new.
  VkResult get(const PipelineKey& key, VkPipeline* pipeline);
  // Writes the cache if pipelines were made since: a temporary file, then a rename. Failures lose
  // only time.
  void save();

  VkPipelineLayout layout() const { return layout_; }
  size_t count() const { return pipelines_.size(); }

 private:
  // The code of one pipeline, with its switches decided and elements that the device can access.
  VkResult module(const PipelineKey& key, VkShaderModule* module) const;

  Device* device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::string path_;
  bool dirty_ = false;
  std::map<PipelineKey, VkPipeline> pipelines_;
};

}  // namespace bowline::detail::vulkan
