#include "query.h"

#include <algorithm>

namespace bowline::detail::vulkan {
namespace {

const char* too_large(const NodeView& node) {
  const auto exceeds = [](const device::Operand& o) { return o.shape.elements() > INT32_MAX; };
  if (std::ranges::any_of(node.query.inputs, exceeds) ||
      std::ranges::any_of(node.query.outputs, exceeds)) {
    return "A tensor has more than 2^31 - 1 elements; the kernels index with 32 bits.";
  }
  return nullptr;
}

// Forced variants have other kernels, so they have other choices.
device::TuningKey tuning_key(const PhysicalDevice& physical) {
  const std::string_view name = physical.properties.deviceName;
  return {physical.variants.empty() ? format("Vulkan {}", name)
                                    : format("Vulkan {}, variants {}", name, physical.variants),
          format("{}, version {}, subgroups of {}", physical.driver,
                 physical.properties.driverVersion, physical.subgroup_size)};
}

}  // namespace

device::Capabilities capabilities_of(const PhysicalDevice& physical) {
  device::Capabilities out;
  out.alignment = kAlignment;
  out.max_buffer_bytes = physical.max_buffer_bytes;
  out.host_memory = physical.is_software();
  // Shaders do not require DenormPreserve, which few drivers offer.
  out.denormals = false;
  out.tuning = tuning_key(physical);
  return out;
}

device::NodeAnswer answer_to(const device::NodeQuery& query, const PhysicalDevice& physical) {
  device::NodeAnswer answer;
  const Result<const Kernel*> found = device::kernel_of<Kernel>(kKernels, kBackendName, query);
  if (!found.ok()) {
    answer.reason = found.status().message();
    return answer;
  }
  const Kernel* kernel = found.value();
  const NodeView node{query, physical};
  const char* refusal = too_large(node);
  if (refusal == nullptr && kernel->refusal != nullptr) {
    refusal = kernel->refusal(node);
  }
  if (refusal != nullptr) {
    answer.reason = refusal;
    return answer;
  }
  answer.workspace_bytes = kernel->workspace == nullptr ? 0 : kernel->workspace(node);
  answer.accumulates = kernel->accumulates == nullptr ? 0 : kernel->accumulates(node);
  answer.candidates = kernel->candidates == nullptr ? 0 : kernel->candidates(node);
  return answer;
}

}  // namespace bowline::detail::vulkan
