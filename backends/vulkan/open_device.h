// An opened Vulkan device that implements the backend contract.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "device/external.h"
#include "self_test.h"
#include "stream.h"

namespace bowline::detail::vulkan {

class OpenVulkan final : public device::Device {
 public:
  // Errors  unsupported: the loader, the device or a feature is missing; the message has the
  // reason. For tests: `hide` changes features of the device, and `driver` replaces the loader.
  static Result<std::unique_ptr<device::Device>> open(int index, const DeviceOptions& options,
                                                      void (*hide)(PhysicalDevice&) = nullptr,
                                                      PFN_vkGetInstanceProcAddr driver = nullptr);
  // Opens a device of the program, and describes it.
  static Result<std::unique_ptr<device::Device>> adopt(const ExternalVulkan& external,
                                                       const DeviceOptions& options,
                                                       DeviceInfo* info);
  ~OpenVulkan() override;

  const device::Capabilities& capabilities() const override { return capabilities_; }
  Result<std::vector<std::string>> self_test() override;
  device::NodeAnswer query(const device::NodeQuery& node) const override;
  Result<device::MemoryInfo> memory_info() override;
  Result<device::Buffer> allocate(uint64_t bytes, device::MemoryKind kind) override;
  void free(device::Buffer buffer) override;
  Result<device::Buffer> import_memory(const device::MemoryImport& memory) override;
  Result<std::pair<int, uint64_t>> export_memory(device::Buffer buffer) override;
  Result<uint64_t> import_semaphore(const device::SemaphoreImport& semaphore) override;
  Result<int> export_semaphore(uint64_t semaphore) override;
  void free_semaphore(uint64_t semaphore) override;
  Status wait_semaphore(uint64_t semaphore, uint64_t value) override;
  Status signal_semaphore(uint64_t semaphore, uint64_t value) override;
  Status copy_in(device::Buffer to, uint64_t offset, std::span<const std::byte> from) override;
  Status copy_out(std::span<std::byte> to, device::Buffer from, uint64_t offset) override;
  Status copy(device::Buffer to, uint64_t to_offset, device::Buffer from, uint64_t from_offset,
              uint64_t bytes) override;
  Status fill(device::Buffer to, uint64_t offset, uint64_t bytes, std::byte value) override;
  Result<std::unique_ptr<device::Recording>> record(
      const device::Program& program, std::span<const device::Buffer> buffers) override;
  // record(), with kernels that fit `physical`. It has the features of this device.
  Result<std::unique_ptr<device::Recording>> record_for(const PhysicalDevice& physical,
                                                        const device::Program& program,
                                                        std::span<const device::Buffer> buffers);
  const PhysicalDevice& physical() const { return device_->physical(); }
  Status submit(std::span<device::Recording* const> recordings) override;
  Status wait() override;
  void set_stop(const std::atomic<bool>* asked, size_t recordings) override {
    asked_ = asked;
    stoppable_ = recordings;
  }
  Result<std::vector<device::RecordTime>> timestamps(device::Recording& recording) override;
  void trim() override;

 private:
  explicit OpenVulkan(PFN_vkGetInstanceProcAddr driver) : loader_(driver) {}

  // start(), without the variants that failed an earlier self test.
  Status start_first(PhysicalDevice physical, const DeviceOptions& options);
  Result<Buffer> shared_buffer(const device::MemoryImport& memory);
  Result<SharedSemaphore> shared_semaphore(const device::SemaphoreImport& wanted);
  Result<SharedSemaphore> find_semaphore(uint64_t number) const;
  void destroy_semaphore(const SharedSemaphore& semaphore);
  // Makes the logical device, with the features of `physical` that are not switched off.
  Status start(const PhysicalDevice& physical);
  // Makes device_. A driver may refuse features that it lists: they are switched off.
  VkResult make_device(const PhysicalDevice& physical);
  // Ends the logical device. start() can make another one.
  void stop();
  // Repeats the self test with fewer and fewer variants, until nothing fails.
  Status find_variants_that_fail();
  // Converts a result to a Status, and remembers a lost device.
  Status check(VkResult result, std::string_view doing, uint64_t bytes = 0);
  Status check_alive() const;
  // For VK_TIMEOUT: names the nodes that do not end.
  Status hung(std::string_view doing) const;
  Result<Buffer*> find(device::Buffer buffer, uint64_t offset, uint64_t bytes);
  Status find_out_staging();
  // Runs the commands that `write` records into the copy command buffer, and waits for them.
  template <class Write>
  VkResult run_now(const Write& write);
  VkResult copy_now(const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
                    uint64_t bytes);
  // Calls step(done, bytes) for parts of `all` bytes that fit into the staging buffer.
  template <class Step>
  VkResult in_stages(uint64_t all, const Step& step);
  VkResult staged_in(const Buffer& to, uint64_t offset, std::span<const std::byte> from);
  VkResult staged_out(std::span<std::byte> to, const Buffer& from, uint64_t offset);

  // Destroyed in reverse order.
  Loader loader_;
  std::optional<ProgramDevice> program_;
  std::unique_ptr<vulkan::Device> device_;
  std::unique_ptr<Pipelines> pipelines_;
  VkCommandBuffer copies_ = VK_NULL_HANDLE;
  Buffer staging_;
  std::unordered_map<uint64_t, Buffer> buffers_;
  // On discrete GPUs: device memory behind the io buffers, for the kernels (twin.h).
  std::unordered_map<uint64_t, Buffer> twins_;
  std::unordered_map<uint64_t, SharedSemaphore> semaphores_;
  uint64_t next_id_ = 1;
  device::Capabilities capabilities_;
  std::string cache_folder_;
  PhysicalDevice with_all_variants_;                      // before anything is switched off
  std::vector<SwitchedOff> refused_;                      // variants whose features are refused
  std::optional<std::vector<SwitchedOff>> switched_off_;  // the result of the self test
  const std::atomic<bool>* asked_ = nullptr;
  size_t stoppable_ = 0;
  bool stages_all_ = false;
  bool lost_ = false;
  bool has_hung_ = false;
};

// Backend::require().
Status requirements_of(const ExternalVulkan& external, VulkanRequirements* out);

}  // namespace bowline::detail::vulkan
