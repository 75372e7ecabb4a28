#include "twin.h"

#include <algorithm>

namespace bowline::detail::vulkan {
namespace {

struct Bytes {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Bytes bytes_of(const device::Operand& o) {
  const uint64_t steps = o.modulo == 0 ? 0 : (o.modulo - 1) * o.step_bytes;
  return {o.offset, o.offset + steps + o.bytes()};
}

// Operands begin at multiples of kAlignment, so smaller gaps belong to no operand.
std::vector<Bytes> joined(std::vector<Bytes> all) {
  std::ranges::sort(all, {}, &Bytes::begin);
  std::vector<Bytes> out;
  for (const Bytes& b : all) {
    if (out.empty() || b.begin >= out.back().end + kAlignment) {
      out.push_back(b);
    } else {
      out.back().end = std::max(out.back().end, b.end);
    }
  }
  return out;
}

bool is_in(const device::Operand& o, uint32_t slot) {
  return o.table == device::kNoTable && o.slot == slot;
}

// The bytes of `slot` that the program reads before it writes them.
std::vector<Bytes> read_bytes(const device::Program& program, uint32_t slot) {
  std::vector<Bytes> read, written;
  for (const device::Record& record : program.records) {
    for (const device::Operand& o : record.inputs) {
      const Bytes bytes = bytes_of(o);
      const auto holds = [&](const Bytes& w) {
        return w.begin <= bytes.begin && bytes.end <= w.end;
      };
      if (is_in(o, slot) && std::ranges::none_of(written, holds)) {
        read.push_back(bytes);
      }
    }
    for (const device::Operand& o : record.outputs) {
      if (is_in(o, slot) && o.modulo == 0) {
        written.push_back(bytes_of(o));
      }
    }
  }
  return joined(std::move(read));
}

std::vector<Bytes> written_bytes(const device::Program& program, uint32_t slot) {
  std::vector<Bytes> all;
  for (const device::Record& record : program.records) {
    for (const device::Operand& o : record.outputs) {
      if (is_in(o, slot)) {
        all.push_back(bytes_of(o));
      }
    }
  }
  return joined(std::move(all));
}

void add_barrier(uint32_t record, CommandList* list) {
  Command command;
  command.kind = Command::Kind::barrier;
  command.is_of_twin = true;
  command.record = record;
  list->commands.push_back(command);
}

void add_copy(const Buffer& to, const Buffer& from, const Bytes& bytes, uint32_t record,
              CommandList* list) {
  constexpr double kBytesPerNs = 10;  // of a bus
  Command command;
  command.kind = Command::Kind::copy;
  command.is_of_twin = true;
  command.record = record;
  command.from = {from.handle, from.offset + bytes.begin, from.address + bytes.begin};
  command.to = {to.handle, to.offset + bytes.begin, to.address + bytes.begin};
  command.bytes = bytes.end - bytes.begin;
  command.ns = 1000 + static_cast<double>(command.bytes) / kBytesPerNs;
  if (command.bytes != 0) {
    list->commands.push_back(command);
  }
}

// Calls add(slot, bytes) for the bytes to copy. The step buffer is copied as a whole.
template <class Add>
void for_each_copy(const device::Program& program, std::span<const Buffer* const> hosts,
                   std::vector<Bytes> (*bytes_of_slot)(const device::Program&, uint32_t),
                   const Add& add) {
  for (uint32_t s = 0; s < hosts.size(); ++s) {
    if (hosts[s] == nullptr) {
      continue;
    }
    const std::vector<Bytes> bytes = s == device::kStepSlot
                                         ? std::vector<Bytes>{{0, hosts[s]->bytes}}
                                         : bytes_of_slot(program, s);
    for (const Bytes& b : bytes) {
      add(s, b);
    }
  }
}

}  // namespace

void fill_twins(const device::Program& program, std::span<const Buffer* const> slots,
                std::span<const Buffer* const> hosts, CommandList* list) {
  for_each_copy(program, hosts, read_bytes, [&](uint32_t s, const Bytes& bytes) {
    add_copy(*slots[s], *hosts[s], bytes, 0, list);
  });
}

void read_twins(const device::Program& program, std::span<const Buffer* const> slots,
                std::span<const Buffer* const> hosts, CommandList* list) {
  if (program.records.empty()) {
    return;
  }
  const auto last = static_cast<uint32_t>(program.records.size() - 1);
  add_barrier(last, list);
  for_each_copy(program, hosts, written_bytes, [&](uint32_t s, const Bytes& bytes) {
    add_copy(*hosts[s], *slots[s], bytes, last, list);
  });
}

}  // namespace bowline::detail::vulkan
