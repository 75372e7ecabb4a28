#include "plan/plan.h"

namespace bowline::plan {
namespace {

using device::Operand;
using device::Program;
using device::Record;

struct Access {
  uint32_t slot;
  uint64_t begin;
  uint64_t end;
  bool write;
};

void add_accesses(const Program& program, const Operand& operand, bool write,
                  std::vector<Access>& out) {
  if (operand.table != device::kNoTable) {
    // Whole storages: finer ranges gain nothing, as each is used by few records.
    for (const device::TableEntry& e : program.tables[operand.table].entries) {
      out.push_back({e.slot, 0, UINT64_MAX, write});
    }
    return;
  }
  // A stepping operand counts as the whole region that it steps through.
  const uint64_t bytes =
      operand.modulo != 0 ? operand.step_bytes * operand.modulo : operand.bytes();
  if (bytes != 0) {
    out.push_back({operand.slot, operand.offset, operand.offset + bytes, write});
  }
}

bool conflict(const Access& a, const Access& b) {
  return a.slot == b.slot && (a.write || b.write) && a.begin < b.end && b.begin < a.end;
}

}  // namespace

void assign_levels(Program& program) {
  std::vector<Access> open;  // accesses of the current level
  uint32_t level = 0;
  for (Record& record : program.records) {
    if (record.kind != Record::Kind::op) {
      open.clear();
      level = record.kind == Record::Kind::repeat_begin ? 0 : level + 1;
      record.level = level;
      level = record.kind == Record::Kind::repeat_end ? level + 1 : level;
      continue;
    }
    std::vector<Access> own;
    for (const Operand& o : record.inputs) {
      add_accesses(program, o, false, own);
    }
    for (const Operand& o : record.outputs) {
      add_accesses(program, o, true, own);
    }
    add_accesses(program, record.workspace, true, own);
    for (const Access& a : own) {
      if (std::ranges::any_of(open, [&](const Access& b) { return conflict(a, b); })) {
        ++level;
        open.clear();
        break;
      }
    }
    record.level = level;
    open.insert(open.end(), own.begin(), own.end());
  }
}

}  // namespace bowline::plan
