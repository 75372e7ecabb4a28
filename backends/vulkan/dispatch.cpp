#include <algorithm>

#include "bindings.h"
#include "kernel.h"

namespace bowline::detail::vulkan {
namespace {

// Approximate rates, used only to divide work into submissions. Too low costs a few more
// submissions; too high risks a watchdog timeout.
struct Rates {
  double flops_per_ns;
  double bytes_per_ns;
};

Rates rates_of(const PhysicalDevice& physical) {
  switch (physical.properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return {5, 1};
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return {1000, 100};
    default:
      return {100, 10};
  }
}

constexpr double kDispatchNs = 2000;

// If the device lacks small storage accesses, shaders write whole words (word_elements.h). A
// transfer that starts or ends inside a word must then run alone.
bool runs_alone(const PhysicalDevice& physical, const Place& to, const Place& from,
                uint64_t bytes) {
  const bool in_words = !physical.has_16bit_storage || !physical.has_8bit_storage;
  return in_words && (to.offset | from.offset | bytes) % sizeof(uint32_t) != 0;
}

}  // namespace

uint32_t bind(VkBuffer buffer, BoundBuffers* bound) {
  const auto found = std::ranges::find(*bound, buffer);
  const auto number = static_cast<uint32_t>(found - bound->begin());
  if (found == bound->end()) {
    bound->push_back(buffer);
  }
  return number;
}

void Launch::push_step_words(Push& push) const {
  push.add(step());
  for (const uint32_t offset : record().step) {
    push.u32((offset - sizeof(device::StepHead)) / 4);
  }
}

Place Launch::place(uint32_t slot, uint64_t offset) const {
  const Buffer* buffer = slots_[slot];
  return {buffer->handle, buffer->offset + offset, address_of(*buffer) + offset};
}

VkDeviceAddress Launch::address_of(const Buffer& buffer) const {
  if (physical_.has_buffer_addresses) {
    return buffer.address;
  }
  return address_of_bound(bind(buffer.handle, &list_->bound)) + buffer.offset;
}

Place Launch::place(const device::Operand& operand) const {
  if (operand.table != device::kNoTable) {
    const device::TableEntry& entry = program_.tables[operand.table].entries[iteration_];
    return place(entry.slot, entry.offset);
  }
  uint64_t offset = operand.offset;
  if (operand.modulo != 0) {
    offset += (iteration_ + operand.shift) % operand.modulo * operand.step_bytes;
  }
  return place(operand.slot, offset);
}

std::vector<uint32_t> Launch::code_words(size_t i) const {
  const device::Operand& o = record().inputs[i];
  const CodeLayout layout = code_layout(i);
  uint32_t slot = o.slot;
  CodePlace at{o.offset, o.scales, o.zeros};
  if (o.table != device::kNoTable) {
    const device::TableEntry& entry = program_.tables[o.table].entries[iteration_];
    slot = entry.slot;
    at = {entry.offset, entry.scales, entry.zeros};
  }
  // Addresses must be valid even if no lane uses them (shaders/README.md).
  at.zeros = layout.zero_points ? at.zeros : at.codes;
  std::vector<uint32_t> words;
  const auto add = [&](uint64_t value) { words.push_back(static_cast<uint32_t>(value)); };
  for (const uint64_t offset : {at.codes, at.scales, at.zeros}) {
    const VkDeviceAddress address = place(slot, offset / 4 * 4).address;
    add(address);
    add(address >> 32);
  }
  for (const uint64_t offset : {at.codes, at.scales, at.zeros}) {
    add(offset % 4);
  }
  for (const uint64_t value :
       {uint64_t{layout.bits}, uint64_t{layout.half}, static_cast<uint64_t>(layout.zero),
        uint64_t{layout.zero_points}, static_cast<uint64_t>(layout.scale_type), layout.block,
        layout.row_bytes, layout.block_bytes, layout.scale_row, layout.scale_block, layout.zero_row,
        layout.zero_block, uint64_t{code_format(i)}}) {
    add(value);
  }
  return words;
}

std::vector<ListEntry> Launch::list(const device::Operand& operand) const {
  std::vector<ListEntry> entries;
  if (operand.table == device::kNoTable) {
    entries.push_back(
        {place(operand).address, static_cast<uint64_t>(operand.shape.elements()), true});
    return entries;
  }
  const std::span<const device::TableEntry> all = program_.tables[operand.table].entries;
  for (const device::TableEntry& entry : in_repeat_ ? all.subspan(iteration_, 1) : all) {
    entries.push_back({place(entry.slot, entry.offset).address, entry.elements, entry.first});
  }
  return entries;
}

uint32_t Launch::table(const std::vector<uint32_t>& words) {
  const auto found = list_->known.find(words);
  if (found != list_->known.end()) {
    return found->second;
  }
  const auto offset = static_cast<uint32_t>(list_->words.size() * sizeof(uint32_t));
  list_->words.insert(list_->words.end(), words.begin(), words.end());
  if (list_->words.size() % 2 != 0) {
    list_->words.push_back(0);  // addresses in tables are aligned to 8 bytes
  }
  list_->known.emplace(words, offset);
  return offset;
}

uint32_t Launch::counters(uint32_t count) {
  const auto offset = static_cast<uint32_t>(list_->words.size() * sizeof(uint32_t));
  list_->words.resize(list_->words.size() + (count + 1) / 2 * 2);
  return offset;
}

Grid Launch::over_elements(uint64_t elements) const {
  Grid grid = over_single_elements(elements);
  // CPU lanes need large workgroups, GPU lanes many workgroups. A small number of elements is
  // spread over all cores.
  const uint64_t most = physical_.uses_cpu_kernels() ? lanes() * 512u : 1024u;
  const uint64_t even = (elements + 15) / 16;
  const uint64_t per_group = std::clamp<uint64_t>(even, grid.local, most) / grid.local * grid.local;
  grid.per_group = static_cast<uint32_t>(per_group);
  grid.groups = (elements + per_group - 1) / per_group;
  return grid;
}

Grid Launch::over_single_elements(uint64_t elements) const {
  const uint32_t local = physical_.uses_cpu_kernels() ? lanes() : physical_.workgroup(256);
  return {local, (elements + local - 1) / local, local, elements};
}

Grid Launch::over_rows(uint64_t rows) const {
  const uint32_t per_group = physical_.uses_cpu_kernels() ? 1 : std::max(1u, 128 / lanes());
  return {lanes() * per_group, (rows + per_group - 1) / per_group, per_group, rows};
}

void Launch::dispatch(uint32_t shader, std::initializer_list<uint32_t> constants, const Push& push,
                      const Grid& grid, Work work) {
  if (grid.groups == 0) {
    return;
  }
  if (push.overflows() && list_->status.ok()) {
    list_->status =
        Status(Code::internal, format("The kernel of {} pushes {} bytes; there is room for {}.",
                                      op(), push.bytes(), kPushBytes));
  }
  Command command;
  command.record = record_;
  command.key.shader = shader;
  command.key.subgroup = grid.subgroup;
  command.key.constants[command.key.count++] = grid.local;
  for (const uint32_t constant : constants) {
    command.key.constants[command.key.count++] = constant;
  }
  command.push = push;
  command.groups = grid.groups;
  const Rates rates = rates_of(physical_);
  command.ns =
      kDispatchNs + std::max(work.flops / rates.flops_per_ns, work.bytes / rates.bytes_per_ns);
  list_->commands.push_back(command);
}

void Launch::barrier() {
  Command command;
  command.kind = Command::Kind::barrier;
  command.record = record_;
  list_->commands.push_back(command);
}

void Launch::copy(const Place& to, const Place& from, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  const bool alone = runs_alone(physical_, to, from, bytes);
  if (alone) {
    barrier();
  }
  Command command;
  command.kind = Command::Kind::copy;
  command.record = record_;
  command.runs_alone = alone;
  command.to = to;
  command.from = from;
  command.bytes = bytes;
  command.ns = kDispatchNs + static_cast<double>(bytes) / rates_of(physical_).bytes_per_ns;
  list_->commands.push_back(command);
  if (alone) {
    barrier();
  }
}

void Launch::fill(const Place& to, uint64_t bytes, uint32_t word) {
  if (bytes == 0) {
    return;
  }
  Command command;
  command.kind = Command::Kind::fill;
  command.record = record_;
  command.to = to;
  command.bytes = bytes;
  command.word = word;
  command.ns = kDispatchNs + static_cast<double>(bytes) / rates_of(physical_).bytes_per_ns;
  list_->commands.push_back(command);
}

}  // namespace bowline::detail::vulkan
