// A recorded Program: command buffers that are created once and submitted many times.
#pragma once

#include <algorithm>
#include <memory>

#include "kernel.h"

namespace bowline::detail::vulkan {

// Target time of a submission. Operating systems stop a device after 500 ms to 2 s.
constexpr double kSubmissionNs = 100e6;

// Command buffers whose estimated time stays below the limit of a submission.
struct Piece {
  VkCommandBuffer buffer = VK_NULL_HANDLE;
  double ns = 0;
};

class Stream : public device::Recording {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  uint64_t overhead_bytes() const override { return tables.allocated_bytes; }
  uint32_t launches() const override {
    return static_cast<uint32_t>(std::ranges::count_if(
        commands, [](const Command& c) { return c.kind != Command::Kind::barrier; }));
  }

  std::vector<Piece> pieces;
  std::vector<Command> commands;  // kept for timestamps
  uint32_t records = 0;
  Buffer tables;

 private:
  Device* device_;
};

// Turns the records into commands: unrolls Repeats, and adds barriers between levels.
// Errors  unsupported: an operator has no kernel. bad_argument: a slot or table is missing.
//         internal: a kernel is wrong.
Status lower(const PhysicalDevice& physical, const device::Program& program,
             std::span<const Buffer* const> slots, CommandList* list);

// Creates the command buffers of `stream` from its commands.
VkResult encode(Device& device, Pipelines& pipelines, Stream* stream);

// Runs the commands once with timestamps around every record; ns[r] is the time of record r.
VkResult clock(Device& device, Pipelines& pipelines, const Stream& stream, std::vector<double>* ns);

// Waits for all earlier commands of the queue, in the stages that this backend uses.
void full_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer);
// Makes all writes before it visible to the host.
void host_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer);

}  // namespace bowline::detail::vulkan
