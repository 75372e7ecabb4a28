#include "plan/describe.h"

#include "plan/traffic.h"

namespace bowline::detail::plan {
namespace {

using OperandSlot = OperandInfo::Slot;

// The kind of a slot, and the tie index if it is a storage.
std::pair<OperandSlot, uint32_t> slot_of(const Plan& plan, uint32_t slot) {
  return slot == device::kArenaSlot ? std::pair(OperandSlot::arena, 0U)
         : slot == device::kIoSlot  ? std::pair(OperandSlot::io, 0U)
         : slot == device::kStepSlot
             ? std::pair(OperandSlot::step, 0U)
             : std::pair(OperandSlot::storage, plan.storages[slot - device::kFirstStorageSlot].tie);
}

bool is_copy(const Plan& plan, uint32_t slot) {
  return slot >= device::kFirstStorageSlot &&
         plan.storages[slot - device::kFirstStorageSlot].form != nullptr;
}

OperandInfo describe(const Plan& plan, const device::Operand& o) {
  OperandInfo out;
  out.dtype = o.dtype;
  out.encoding = format("{}", o.encoding);
  out.shape = o.shape.dims();
  if (o.table != device::kNoTable) {
    out.slot = OperandSlot::table;
    out.number = o.table;
    return out;
  }
  std::tie(out.slot, out.number) = slot_of(plan, o.slot);
  out.copy = is_copy(plan, o.slot);
  out.offset = o.offset;
  out.bytes = o.bytes();
  out.modulo = o.modulo;
  out.shift = o.shift;
  out.step_bytes = o.step_bytes;
  return out;
}

std::vector<OperandInfo> describe(const Plan& plan, const std::vector<device::Operand>& operands) {
  std::vector<OperandInfo> out;
  for (const device::Operand& o : operands) {
    out.push_back(describe(plan, o));
  }
  return out;
}

RecordInfo describe(const Plan& plan, const device::Record& r) {
  using Kind = RecordInfo::Kind;
  RecordInfo out;
  out.kind = static_cast<Kind>(r.kind);
  static_assert(static_cast<int>(Kind::op) == static_cast<int>(device::Record::Kind::op));
  static_assert(static_cast<int>(Kind::repeat_end) ==
                static_cast<int>(device::Record::Kind::repeat_end));
  out.level = r.level;
  if (out.kind != Kind::op) {
    out.count = r.count;
    out.reverse = r.reverse;
    return out;
  }
  out.op = format("{}", r.op);
  out.node = plan.nodes[r.node];
  out.attributes = attributes_list(r.op, r.attributes);
  out.inputs = describe(plan, r.inputs);
  out.outputs = describe(plan, r.outputs);
  if (r.workspace.bytes() != 0) {
    out.workspace = describe(plan, r.workspace);
  }
  return out;
}

std::vector<TableEntryInfo> describe(const Plan& plan, const device::Table& table) {
  std::vector<TableEntryInfo> out;
  for (const device::TableEntry& e : table.entries) {
    TableEntryInfo& entry = out.emplace_back();
    std::tie(entry.slot, entry.number) = slot_of(plan, e.slot);
    entry.offset = e.offset;
    entry.elements = e.elements;
    entry.copy = is_copy(plan, e.slot);
  }
  return out;
}

std::vector<IoInfo> describe(const Plan& plan, const std::vector<IoRange>& ranges) {
  std::vector<IoInfo> out;
  for (const IoRange& r : ranges) {
    IoInfo& info = out.emplace_back();
    info.name = r.name;
    info.dtype = r.dtype;
    info.shape = r.shape.dims();
    for (const int dim : r.counted) {
      info.dynamic_dims.push_back(
          dim == graph::kNotCounted ? "" : plan.counted[static_cast<size_t>(dim)].name);
    }
    info.offset = r.offset;
    info.bytes = r.bytes();
  }
  return out;
}

StepScalarInfo describe(const StepUse& use) {
  StepScalarInfo out;
  out.name = use.word->name;
  out.type = name_of(use.word->type);
  out.offset = use.offset;
  if (const std::optional<uint64_t> bits = use.word->default_bits) {
    if (use.word->type == StepType::f32) {
      out.default_value = static_cast<double>(step_number<float>(*bits));
    } else {
      out.default_value = *bits;
    }
  }
  out.read = use.reader != StepUse::kNobody;
  out.written = use.writer != StepUse::kNobody;
  return out;
}

}  // namespace

SegmentInfo describe(const Plan& plan) {
  SegmentInfo out;
  out.name = plan.name;
  out.arena_bytes = plan.arena_bytes;
  out.io_bytes = plan.io_bytes;
  out.inputs = describe(plan, plan.inputs);
  out.outputs = describe(plan, plan.outputs);
  const std::vector<Traffic> traffic = traffic_of(plan.program);
  for (size_t i = 0; i < traffic.size(); ++i) {
    RecordInfo& r = out.records.emplace_back(describe(plan, plan.program.records[i]));
    r.read_bytes = traffic[i].read;
    r.written_bytes = traffic[i].written;
  }
  for (const device::Table& t : plan.program.tables) {
    out.tables.push_back(describe(plan, t));
  }
  for (const StepUse& use : plan.steps) {
    out.scalars.push_back(describe(use));
  }
  for (size_t i = 0; i < plan.counted.size(); ++i) {
    const graph::CountedDim& dim = plan.counted[i];
    out.dynamic_dims.push_back({dim.name, dim.min, dim.capacity, plan.counts[i]});
  }
  for (const StorageSlot& slot : plan.storages) {
    out.storages.push_back(slot.tie);
    if (slot.form != nullptr) {
      out.copies.push_back({slot.tie, slot.form->dtype, format("{}", slot.form->op)});
    }
  }
  out.writes = plan.written;
  for (std::vector<uint32_t>* ties : {&out.storages, &out.writes}) {
    std::ranges::sort(*ties);
    ties->erase(std::unique(ties->begin(), ties->end()), ties->end());
  }
  return out;
}

std::vector<RepeatListInfo> describe_repeat_lists(const graph::BoundGraph& graph) {
  std::vector<RepeatListInfo> out;
  for (const graph::BoundNode& node : graph.nodes) {
    if (!node.repeat) {
      continue;
    }
    for (const graph::BoundValue& info : node.repeat->body->values) {
      if (info.kind == graph::ValueKind::parameter) {
        RepeatListInfo& list = out.emplace_back();
        list.name = info.name;
        list.copy = info.form == nullptr ? std::nullopt : std::optional(info.dtype);
        for (const graph::StorageUse& u : info.uses) {
          list.ties.push_back(u.tie);
        }
      }
    }
  }
  return out;
}

}  // namespace bowline::detail::plan
