// The copies between io buffers of the host and their twins on a discrete GPU.
#include <gtest/gtest.h>

#include "twin.h"

namespace bowline::detail::vulkan {
namespace {

device::Operand of_io(uint64_t offset, int64_t elements) {
  device::Operand o;
  o.slot = device::kIoSlot;
  o.offset = offset;
  o.shape = Shape{elements};
  return o;
}

device::Record record(std::vector<device::Operand> inputs, std::vector<device::Operand> outputs) {
  device::Record r;
  r.inputs = std::move(inputs);
  r.outputs = std::move(outputs);
  return r;
}

// Offset and bytes of each copy.
using Copies = std::vector<std::pair<uint64_t, uint64_t>>;

Copies copies_of(const device::Program& program, decltype(&fill_twins) add) {
  const Buffer twin{.bytes = 1024}, host{.bytes = 1024};
  const std::vector<const Buffer*> slots(device::kFirstStorageSlot, &twin);
  std::vector<const Buffer*> hosts(device::kFirstStorageSlot, nullptr);
  hosts[device::kIoSlot] = &host;
  CommandList list;
  add(program, slots, hosts, &list);
  Copies out;
  for (const Command& c : list.commands) {
    if (c.kind == Command::Kind::copy) {
      EXPECT_EQ(c.from.offset, c.to.offset);
      out.emplace_back(c.from.offset, c.bytes);
    }
  }
  return out;
}

// What the program has written before is on the device already.
TEST(VulkanTwins, CopyInOnlyWhatIsReadFirst) {
  const device::Program program = {.records = {record({of_io(0, 16)}, {of_io(256, 16)}),
                                               record({of_io(256, 16)}, {of_io(512, 16)})},
                                   .tables = {},
                                   .slots = device::kFirstStorageSlot};
  EXPECT_EQ(copies_of(program, fill_twins), (Copies{{0, 64}}));
  EXPECT_EQ(copies_of(program, read_twins), (Copies{{256, 64}, {512, 64}}));
}

TEST(VulkanTwins, CopyInWhatIsOverwrittenAfterwardsOrOnlyInPart) {
  const device::Program program = {
      .records = {record({of_io(0, 16)}, {of_io(0, 16)}), record({of_io(256, 16)}, {of_io(512, 8)}),
                  record({of_io(512, 16)}, {})},
      .tables = {},
      .slots = device::kFirstStorageSlot};
  EXPECT_EQ(copies_of(program, fill_twins), (Copies{{0, 64}, {256, 64}, {512, 64}}));
}

}  // namespace
}  // namespace bowline::detail::vulkan
