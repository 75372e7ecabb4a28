#include <map>

#include "plan/plan.h"

namespace bowline::detail::plan {
namespace {

using device::Operand;
using device::Program;
using device::Record;

struct Access {
  uint32_t slot;
  uint64_t begin;
  uint64_t end;
  bool write;
  bool together = false;  // records that write it may run at the same time
};

void add_accesses(const Program& program, const Operand& operand, bool write,
                  std::vector<Access>& out) {
  if (operand.counted_axis >= 0) {
    out.push_back({device::kStepSlot, operand.count_at, operand.count_at + size_of(StepType::u32),
                   false, true});
  }
  if (operand.table != device::kNoTable) {
    // Whole storages: finer ranges gain nothing, as each is used by few records.
    for (const device::TableEntry& e : program.tables[operand.table].entries) {
      out.push_back({e.slot, 0, UINT64_MAX, write});
    }
    return;
  }
  // An operand that steps counts as the whole region that it steps through.
  const uint64_t bytes =
      operand.modulo != 0 ? operand.step_bytes * operand.modulo : operand.bytes();
  if (bytes != 0) {
    out.push_back({operand.slot, operand.offset, operand.offset + bytes, write});
  }
}

void add_step_words(const Record& record, std::vector<Access>& out) {
  const std::span<const StepWordInfo> words = step_words(record.op);
  for (size_t i = 0; i < words.size() && i < record.step.size(); ++i) {
    const uint32_t at = record.step[i];
    out.push_back({device::kStepSlot, at, at + size_of(words[i].type), words[i].written, true});
  }
}

// A union of ranges, stored as disjoint ranges.
class Ranges {
 public:
  bool overlaps(uint64_t begin, uint64_t end) const {
    const auto next = ends_.upper_bound(begin);  // the first that ends after `begin`
    return next != ends_.end() && next->second < end;
  }
  void add(uint64_t begin, uint64_t end) {
    for (auto next = ends_.lower_bound(begin); next != ends_.end() && next->second <= end;) {
      begin = std::min(begin, next->second);
      end = std::max(end, next->first);
      next = ends_.erase(next);
    }
    ends_.emplace(end, begin);
  }

 private:
  std::map<uint64_t, uint64_t> ends_;  // end -> begin
};

// The ranges that the records of one level read and write.
class Level {
 public:
  bool conflicts(const Access& a) const {
    const auto slot = slots_.find(a.slot);
    return slot != slots_.end() &&
           (a.write ? slot->second.touched : slot->second.written).overlaps(a.begin, a.end);
  }
  void add(const Access& a) {
    Slot& slot = slots_[a.slot];
    if (!a.write || !a.together) {
      slot.touched.add(a.begin, a.end);
    }
    if (a.write) {
      slot.written.add(a.begin, a.end);
    }
  }
  void clear() { slots_.clear(); }

 private:
  struct Slot {
    Ranges touched, written;
  };
  std::map<uint32_t, Slot> slots_;
};

}  // namespace

void assign_levels(Program& program) {
  Level open;
  uint32_t level = 0;
  std::vector<Access> own;
  for (Record& record : program.records) {
    if (record.kind != Record::Kind::op) {
      open.clear();
      level = record.kind == Record::Kind::repeat_begin ? 0 : level + 1;
      record.level = level;
      level = record.kind == Record::Kind::repeat_end ? level + 1 : level;
      continue;
    }
    own.clear();
    for (const Operand& o : record.inputs) {
      add_accesses(program, o, false, own);
    }
    for (const Operand& o : record.outputs) {
      add_accesses(program, o, true, own);
    }
    add_accesses(program, record.workspace, true, own);
    add_step_words(record, own);
    if (std::ranges::any_of(own, [&](const Access& a) { return open.conflicts(a); })) {
      ++level;
      open.clear();
    }
    record.level = level;
    for (const Access& a : own) {
      open.add(a);
    }
  }
}

}  // namespace bowline::detail::plan
