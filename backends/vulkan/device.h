// The opened logical device.
//
// This layer uses VkResult; backend.cpp converts results to a Status (vk_status.h).
#pragma once

#include <array>
#include <functional>

#include "buffer.h"
#include "generated/ops.h"
#include "physical_device.h"
#include "speed.h"

namespace bowline::detail::vulkan {

// What a submission runs, for messages: nodes, or copies of the host (no operators).
struct Submitted {
  uint32_t first_node = 0;
  uint32_t last_node = 0;
  Op first_op = Op::Invalid;
  Op last_op = Op::Invalid;
  double estimated_ns = 0;
};

// A logical device of the program, and the lock of its queue. The lock may be empty.
struct ProgramDevice {
  VkDevice device = VK_NULL_HANDLE;
  VkQueue queue = VK_NULL_HANDLE;
  std::function<void()> lock;
  std::function<void()> unlock;
};

// A semaphore that orders work of this backend and of others.
struct SharedSemaphore {
  VkSemaphore handle = VK_NULL_HANDLE;
  bool is_timeline = false;
  bool of_program = false;
  bool is_exportable = false;
};

// The logical device with its compute queue and the timeline semaphore that counts its submissions.
class Device {
 public:
  // `program`: (optional) the device of the program. It is not destroyed.
  Device(const Loader& loader, const PhysicalDevice& physical,
         const ProgramDevice* program = nullptr)
      : loader_(&loader), physical_(physical), program_(program) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  VkResult open();

  const DeviceFunctions& call() const { return functions_; }
  const Loader& loader() const { return *loader_; }
  const PhysicalDevice& physical() const { return physical_; }
  VkDevice handle() const { return device_; }
  VkQueue queue() const { return queue_; }
  VkCommandPool command_pool() const { return command_pool_; }

  // Submits command buffers as one batch, at most kMostBuffers. When they are done, the timeline
  // has the value `value`.
  static constexpr uint32_t kMostBuffers = 16;
  VkResult submit(const VkCommandBuffer* buffers, uint32_t count, const Submitted& work,
                  uint64_t* value);
  // Lets later submissions wait for the semaphore, or signals it after earlier ones.
  VkResult submit_semaphore(const SharedSemaphore& semaphore, uint64_t value, bool waits);
  // Waits for all submissions of this object. A lost or hanging device ends the wait.
  void wait_idle();
  // Waits until the timeline reaches `value`. Returns VK_TIMEOUT if the device finished no
  // submission for a long time (PhysicalDevice::wait_limit_ns). Then hung() has the submission, and
  // nothing of this device is ever destroyed, because that would wait, too.
  VkResult wait(uint64_t value);
  // The value of the latest submission.
  uint64_t submitted() const { return submitted_; }
  VkResult wait_all() { return wait(submitted_); }
  const Submitted* hung() const { return hung_; }

  // Sets PhysicalDevice::wait_limit_ns.
  void limit_waits(uint64_t ns) { physical_.wait_limit_ns = ns; }

  // Of memory.h; empty if the device has buffer addresses.
  std::vector<Block>& blocks() { return blocks_; }

  // Measured time per estimated time of earlier submissions.
  double slowness() const { return speed_.factor(); }

 private:
  VkResult make();
  void load_shared();
  VkResult queue_submit(const VkSubmitInfo& info);

  const Loader* loader_;
  PhysicalDevice physical_;
  const ProgramDevice* program_;
  DeviceFunctions functions_{};
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool command_pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  uint64_t submitted_ = 0;
  uint64_t ended_ = 0;                // the submissions up to this one have ended
  std::array<Submitted, 64> latest_;  // the submission `value` at value % 64
  const Submitted* hung_ = nullptr;
  Speed speed_;
  std::vector<Block> blocks_;
};

}  // namespace bowline::detail::vulkan
