// Levels: two records are on different levels if they touch the same bytes and one of them writes.
#include <gtest/gtest.h>

#include "base/random.h"
#include "plan/plan.h"

namespace bowline::test {
namespace {

using device::Operand;
using device::Program;
using device::Record;

// Returns some bytes of a few slots: at one place, at one place per step of a Repeat, or as a table
// of one or two slots.
Operand random_operand(Program& program, uint32_t seed, uint32_t number) {
  const RandomBlock r = philox({number, seed, 0, 0}, {4, 4});
  Operand o;
  o.dtype = DType::u8;
  o.slot = r[0] % 3;
  o.offset = r[1] % 200;
  o.shape = Shape{static_cast<int64_t>(r[2] % 12)};
  if (r[3] % 16 == 1) {
    o.modulo = 2 + (r[3] >> 8) % 2;
    o.step_bytes = o.bytes();
  }
  if (r[3] % 16 == 0) {
    o.table = static_cast<uint32_t>(program.tables.size());
    program.tables.emplace_back().entries = {{o.slot, 0, 8, false}, {3 + r[2] % 2, 0, 8, false}};
  }
  return o;
}

Program random_program(uint32_t seed) {
  Program program;
  program.slots = 5;
  uint32_t number = 0;
  for (int i = 0; i < 60; ++i) {
    Record& r = program.records.emplace_back();
    r.inputs = {random_operand(program, seed, number++), random_operand(program, seed, number++)};
    r.outputs = {random_operand(program, seed, number++)};
    r.workspace = random_operand(program, seed, number++);
    r.workspace.table = device::kNoTable;
    if (i % 4 != 0) {
      r.workspace.shape = Shape{0};
    }
  }
  return program;
}

bool touches(const Program& p, const Operand& a, uint32_t slot, uint64_t byte) {
  if (a.table != device::kNoTable) {
    return std::ranges::any_of(p.tables[a.table].entries,
                               [&](const device::TableEntry& e) { return e.slot == slot; });
  }
  const uint64_t bytes = a.modulo == 0 ? a.bytes() : a.step_bytes * a.modulo;
  return a.slot == slot && a.offset <= byte && byte < a.offset + bytes;
}

// Compares byte by byte.
bool depends(const Program& p, const Record& a, const Record& b) {
  const auto any = [&](const std::vector<Operand>& of, uint32_t slot, uint64_t byte) {
    return std::ranges::any_of(of, [&](const Operand& o) { return touches(p, o, slot, byte); });
  };
  const auto writes = [&](const Record& r, uint32_t slot, uint64_t byte) {
    return any(r.outputs, slot, byte) || touches(p, r.workspace, slot, byte);
  };
  for (uint32_t slot = 0; slot < p.slots; ++slot) {
    for (uint64_t byte = 0; byte < 240; ++byte) {
      const bool a_writes = writes(a, slot, byte);
      const bool b_writes = writes(b, slot, byte);
      if ((a_writes && (b_writes || any(b.inputs, slot, byte))) ||
          (b_writes && any(a.inputs, slot, byte))) {
        return true;
      }
    }
  }
  return false;
}

TEST(Levels, BeginWhereARecordDependsOnTheLevel) {
  int longest = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Program program = random_program(seed);
    plan::assign_levels(program);
    uint32_t level = 0;
    size_t begin = 0;
    for (size_t i = 0; i < program.records.size(); ++i) {
      const Record& r = program.records[i];
      const bool new_level =
          std::any_of(program.records.begin() + static_cast<std::ptrdiff_t>(begin),
                      program.records.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const Record& earlier) { return depends(program, earlier, r); });
      longest = std::max(longest, static_cast<int>(i - begin));
      level += new_level ? 1 : 0;
      begin = new_level ? i : begin;
      ASSERT_EQ(r.level, level) << "seed " << seed << ", record " << i;
    }
  }
  EXPECT_GT(longest, 4);
}

// A record reads a per-step scalar on a later level than the record that writes it. Records that
// write the same scalar share a level.
TEST(Levels, FollowStepWords) {
  plan::StepLayout layout;
  Program program;
  program.slots = device::kFirstStorageSlot;
  for (const Op op : {Op::Sgd, Op::AdamW, Op::ClipByGlobalNorm, Op::ClipByGlobalNorm, Op::Sgd,
                      Op::AdamW, Op::Dropout}) {
    Record& r = program.records.emplace_back();
    r.op = op;
    r.workspace.shape = Shape{0};
    r.step = layout.add(op);
  }
  plan::assign_levels(program);
  std::vector<uint32_t> levels;
  for (const Record& r : program.records) {
    levels.push_back(r.level);
  }
  EXPECT_EQ(levels, (std::vector<uint32_t>{0, 0, 1, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace bowline::test
