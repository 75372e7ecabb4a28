// A recorded Program: command buffers that are created once and submitted many times.
#pragma once

#include <algorithm>
#include <memory>

#include "kernel.h"

namespace bowline::detail::vulkan {

// Target time of a submission. Operating systems stop a device after 500 ms to 2 s. A run that is
// cancelled finishes two submissions.
constexpr double kSubmissionNs = 50e6;

// Command buffers whose estimated time stays below the limit of a submission.
struct Piece {
  VkCommandBuffer buffer = VK_NULL_HANDLE;
  double ns = 0;       // before the correction by Device::slowness()
  uint32_t first = 0;  // records
  uint32_t last = 0;
};

struct Node {
  uint32_t number = 0;
  Op op = Op::Invalid;
};

// Recording::launches().
inline uint32_t launches_of(std::span<const Command> commands) {
  return static_cast<uint32_t>(std::ranges::count_if(
      commands, [](const Command& c) { return c.kind != Command::Kind::barrier; }));
}

class Stream : public device::Recording {
 public:
  explicit Stream(Device& device) : device_(&device) {}
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  uint64_t overhead_bytes() const override { return tables.allocated_bytes; }
  uint32_t launches() const override { return launches_of(commands); }

  // What a submission of pieces runs. Its time is not set.
  Submitted work_of(const Piece& first, const Piece& last) const;

  std::vector<Piece> pieces;
  double slowness = 1;            // of the device when the pieces were cut
  uint64_t submitted = 0;         // the latest submission that runs a piece (Device::submitted())
  std::vector<Command> commands;  // kept for timestamps
  std::vector<Node> nodes;        // of the records
  Buffer tables;
  std::vector<VkDescriptorSet> sets;  // of Command::set; empty: kernels use addresses
  VkDescriptorPool set_pool = VK_NULL_HANDLE;

 private:
  Device* device_;
};

// Turns the records into commands: unrolls Repeats, and adds barriers between levels.
// Errors  unsupported: an operator has no kernel. bad_argument: a slot or table is missing.
//         internal: a kernel is wrong.
Status lower(const PhysicalDevice& physical, const device::Program& program,
             std::span<const Buffer* const> slots, CommandList* list);

// Gives the commands the address of their tables. Without device addresses, it also completes the
// lists of buffers, because the tables may be in one of them.
// Errors  unsupported: a launch has more buffers than the device can bind.
Status place_tables(const PhysicalDevice& physical, const device::Program& program,
                    const Buffer& tables, CommandList* list);

// Creates the descriptor sets of `stream`.
VkResult make_sets(Device& device, const Pipelines& pipelines, std::span<const BoundBuffers> sets,
                   Stream* stream);

// Creates the command buffers of `stream` from its commands.
VkResult encode(Device& device, Pipelines& pipelines, Stream* stream);

// Makes fewer command buffers if `stream` was cut before the device turned out to be fast. The
// stream must not run.
void cut_again(Device& device, Pipelines& pipelines, Stream* stream);

// Runs the commands once with timestamps around every record; ns[r] is the time of record r.
VkResult clock(Device& device, Pipelines& pipelines, const Stream& stream, std::vector<double>* ns);

// Waits for all earlier commands of the queue, in the stages that this backend uses.
void full_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer);
// Makes all writes before it visible to the host.
void host_barrier(const DeviceFunctions& vk, VkCommandBuffer buffer);

}  // namespace bowline::detail::vulkan
