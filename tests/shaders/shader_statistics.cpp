// Compiles every pipeline that the launchers choose for the operator cases, and prints what the
// driver says about each, one JSON object per line:
//
//   shader_statistics FILTER [quick] [code]
//
// With `code`, the instructions of the GPU are part of it, if the driver shows them.
//
// Nothing runs. So a driver without hardware is enough, such as Mesa's RADV with RADV_FORCE_FAMILY.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <span>
#include <string_view>

#include "conformance/suite.h"
#include "packed_shaders.h"
#include "stream.h"
#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {
namespace {

// RADV without hardware has no timeline semaphores and cannot wait. The device is only asked to
// compile, so these calls do nothing. VK_KHR_pipeline_executable_properties is added to the
// extensions that the backend enables.
PFN_vkGetDeviceProcAddr real_function = nullptr;
PFN_vkCreateDevice real_create_device = nullptr;
PFN_vkCreateComputePipelines real_create_pipelines = nullptr;
bool prints_code = false;  // some drivers end the process if they should show their code

VkResult VKAPI_CALL create_semaphore(VkDevice, const VkSemaphoreCreateInfo*,
                                     const VkAllocationCallbacks*, VkSemaphore* semaphore) {
  *semaphore = VK_NULL_HANDLE;
  return VK_SUCCESS;
}
VkResult VKAPI_CALL wait_idle(VkDevice) { return VK_SUCCESS; }

VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache, uint32_t count,
                                     const VkComputePipelineCreateInfo* infos,
                                     const VkAllocationCallbacks* callbacks, VkPipeline* out) {
  VkComputePipelineCreateInfo info = *infos;
  info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  if (prints_code) {
    info.flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  }
  // Without the cache, which may hold pipelines without statistics.
  return real_create_pipelines(device, VK_NULL_HANDLE, count, &info, callbacks, out);
}

PFN_vkVoidFunction VKAPI_CALL function_of(VkDevice device, const char* name) {
  const PFN_vkVoidFunction found = real_function(device, name);
  const std::string_view wanted(name);
  if (wanted == "vkCreateSemaphore") {
    return reinterpret_cast<PFN_vkVoidFunction>(create_semaphore);
  }
  if (wanted == "vkDeviceWaitIdle") {
    return reinterpret_cast<PFN_vkVoidFunction>(wait_idle);
  }
  if (wanted == "vkCreateComputePipelines") {
    real_create_pipelines = reinterpret_cast<PFN_vkCreateComputePipelines>(found);
    return reinterpret_cast<PFN_vkVoidFunction>(create_pipelines);
  }
  return found;
}

VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* given,
                                  const VkAllocationCallbacks* callbacks, VkDevice* device) {
  VkDeviceCreateInfo info = *given;
  auto statistics = typed<VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
  statistics.pipelineExecutableInfo = VK_TRUE;
  statistics.pNext = const_cast<void*>(info.pNext);
  info.pNext = &statistics;
  std::vector<const char*> extensions(info.ppEnabledExtensionNames,
                                      info.ppEnabledExtensionNames + info.enabledExtensionCount);
  extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  return real_create_device(physical, &info, callbacks, device);
}

double value_of(const VkPipelineExecutableStatisticKHR& s) {
  switch (s.format) {
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR:
      return s.value.f64;
    case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
      return static_cast<double>(s.value.i64);
    default:
      return static_cast<double>(s.value.u64);
  }
}

// As a JSON member.
void print_code(const Device& device, const VkPipelineExecutableInfoKHR& info) {
  static const auto representations =
      reinterpret_cast<PFN_vkGetPipelineExecutableInternalRepresentationsKHR>(
          real_function(device.handle(), "vkGetPipelineExecutableInternalRepresentationsKHR"));
  auto all = listed<VkPipelineExecutableInternalRepresentationKHR>(
      VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR,
      [&](auto... to) { return representations(device.handle(), &info, to...); });
  std::vector<std::string> texts;
  texts.reserve(all.size());  // the driver writes to where they are
  for (VkPipelineExecutableInternalRepresentationKHR& r : all) {
    r.pData = texts.emplace_back(r.dataSize, '\0').data();
  }
  auto count = static_cast<uint32_t>(all.size());
  representations(device.handle(), &info, &count, all.data());
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::string_view(all[i].name) == "Assembly") {
      std::printf(", \"code\": \"");
      for (const char c : std::string_view(texts[i].c_str())) {
        c == '\n' ? std::printf("\\n") : std::printf("%c", c == '\t' ? ' ' : c);
      }
      std::printf("\"");
    }
  }
}

void print(const Device& device, const PipelineKey& key, VkPipeline pipeline) {
  const auto executables = reinterpret_cast<PFN_vkGetPipelineExecutablePropertiesKHR>(
      real_function(device.handle(), "vkGetPipelineExecutablePropertiesKHR"));
  const auto statistics = reinterpret_cast<PFN_vkGetPipelineExecutableStatisticsKHR>(
      real_function(device.handle(), "vkGetPipelineExecutableStatisticsKHR"));
  auto of = typed<VkPipelineInfoKHR>(VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR);
  of.pipeline = pipeline;
  uint32_t parts = 0;
  executables(device.handle(), &of, &parts, nullptr);
  std::printf("{\"shader\": \"%s\", \"constants\": [", kPackedShaders[key.shader].name);
  for (uint32_t i = 0; i < key.count; ++i) {
    std::printf("%s%" PRIu32, i == 0 ? "" : ", ", key.constants[i]);
  }
  std::printf("]");
  for (uint32_t part = 0; part < parts; ++part) {
    auto info = typed<VkPipelineExecutableInfoKHR>(VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR);
    info.pipeline = pipeline;
    info.executableIndex = part;
    const auto all = listed<VkPipelineExecutableStatisticKHR>(
        VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
        [&](auto... to) { return statistics(device.handle(), &info, to...); });
    for (const VkPipelineExecutableStatisticKHR& s : all) {
      std::printf(", \"%s\": %.0f", s.name, value_of(s));
    }
    if (prints_code) {
      print_code(device, info);
    }
  }
  std::printf("}\n");
}

// A device of the backend contract that compiles, and runs nothing. Its memory is zeros of the
// host.
class Compiler final : public device::Device {
 public:
  Compiler(vulkan::Device& device, Pipelines& pipelines)
      : device_(&device), pipelines_(&pipelines) {}

  const device::Capabilities& capabilities() const override { return capabilities_; }
  device::NodeAnswer query(const device::NodeQuery& query) const override {
    device::NodeAnswer answer;
    const Result<const Kernel*> found = device::kernel_of<Kernel>(kKernels, kBackendName, query);
    if (!found.ok()) {
      answer.reason = found.status().message();
      return answer;
    }
    const NodeView node{query, device_->physical()};
    const Kernel* kernel = found.value();
    const char* refusal = kernel->refusal != nullptr ? kernel->refusal(node) : nullptr;
    if (refusal != nullptr) {
      answer.reason = refusal;
    } else if (kernel->workspace != nullptr) {
      answer.workspace_bytes = kernel->workspace(node);
    }
    return answer;
  }
  Result<device::MemoryInfo> memory_info() override {
    return device::MemoryInfo{uint64_t{8} << 30, uint64_t{8} << 30};
  }
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind) override {
    Buffer& buffer = buffers_[next_];
    buffer.bytes = bytes;
    buffer.address = next_ << 32;
    return device::Buffer{next_++};
  }
  void free(device::Buffer buffer) override { buffers_.erase(buffer.id); }
  Status copy_in(device::Buffer, uint64_t, std::span<const std::byte>) override { return {}; }
  Status copy_out(std::span<std::byte> to, device::Buffer, uint64_t) override {
    std::ranges::fill(to, std::byte{0});
    return {};
  }
  Status copy(device::Buffer, uint64_t, device::Buffer, uint64_t, uint64_t) override { return {}; }
  Status fill(device::Buffer, uint64_t, uint64_t, std::byte) override { return {}; }
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> slots) override {
    std::vector<const Buffer*> places;
    for (const device::Buffer& slot : slots) {
      places.push_back(&buffers_[slot.id]);
    }
    CommandList list;
    BOWLINE_TRY(lower(device_->physical(), program, places, &list));
    for (const Command& command : list.commands) {
      if (command.kind == Command::Kind::dispatch && known_.insert(command.key).second) {
        VkPipeline pipeline = VK_NULL_HANDLE;
        BOWLINE_REQUIRE(pipelines_->get(command.key, &pipeline) == VK_SUCCESS,
                        "The driver does not compile {}.", kPackedShaders[command.key.shader].name);
        print(*device_, command.key, pipeline);
      }
    }
    return std::make_unique<device::Recording>();
  }
  Status submit(std::span<device::Recording* const>) override { return {}; }
  Status wait() override { return {}; }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording&) override {
    return std::vector<device::RecordTime>();
  }

 private:
  vulkan::Device* device_;
  Pipelines* pipelines_;
  device::Capabilities capabilities_;
  std::map<uint64_t, Buffer> buffers_;
  uint64_t next_ = 1;
  std::set<PipelineKey> known_;
};

int run(const std::string& filter, bool quick) {
  Loader loader;
  const char* reason = loader.open();
  std::vector<PhysicalDevice> devices =
      reason == nullptr ? physical_devices(loader) : std::vector<PhysicalDevice>();
  if (devices.empty() || !devices[0].reason.empty()) {
    std::fprintf(stderr, "%s\n",
                 reason != nullptr ? reason
                 : devices.empty() ? "There is no Vulkan device."
                                   : devices[0].reason.c_str());
    return 77;
  }
  real_create_device = loader.vkCreateDevice;
  loader.vkCreateDevice = create_device;
  devices[0].timestamp_bits = 0;  // a driver without its GPU cannot record commands
  real_function = loader.vkGetDeviceProcAddr;
  loader.vkGetDeviceProcAddr = function_of;
  vulkan::Device device(loader, devices[0]);
  Pipelines pipelines(device);
  if (device.open() != VK_SUCCESS || pipelines.open("") != VK_SUCCESS) {
    std::fprintf(stderr, "The device cannot be opened.\n");
    return 1;
  }
  std::printf("{\"device\": \"%s\", \"driver\": \"%s\"}\n", devices[0].properties.deviceName,
              devices[0].driver.c_str());
  DeviceInfo info;
  info.name = "vulkan:0";
  const auto open = std::make_shared<device::OpenDevice>(
      std::move(info), std::make_unique<Compiler>(device, pipelines), 0);
  conformance::Options options;
  options.filter = filter;
  options.quick = quick;
  // The results are zeros, so the cases fail. Only the pipelines matter.
  const auto report = conformance::run("ops", open, options);
  return report.ok() ? 0 : 1;
}

}  // namespace
}  // namespace bowline::detail::vulkan

int main(int count, char** arguments) {
  const std::span<char*> all(arguments, static_cast<size_t>(count));
  const auto has = [&](std::string_view word) { return std::ranges::find(all, word) != all.end(); };
  bowline::detail::vulkan::prints_code = has("code");
  return bowline::detail::vulkan::run(count > 1 ? arguments[1] : "*", has("quick"));
}
