// Finds the first contribution to a gradient in the order in which a device executes a Program.
#include <gtest/gtest.h>

#include "plan/plan.h"

namespace bowline::test {
namespace {

using device::Operand;
using device::Program;
using device::Record;
using device::TableEntry;

// Adds a record that contributes to the slots of `entries`, one per iteration. Slot 0 stands for a
// frozen parameter.
void contribute(Program& program, Op op, const std::vector<uint32_t>& entries) {
  device::Table table;
  for (const uint32_t slot : entries) {
    table.entries.push_back({slot, 0, slot == 0 ? 0u : 4u, false});
  }
  Record r;
  r.op = op;
  Operand gradient;
  gradient.table = static_cast<uint32_t>(program.tables.size());
  r.outputs = {Operand{}, gradient};
  if (op == Op::MatMul) {
    r.accumulate = 0b10;
  } else {
    r.outputs = {gradient};
  }
  program.tables.push_back(std::move(table));
  program.records.push_back(std::move(r));
}

void repeat(Program& program, uint32_t count, bool reverse) {
  Record r;
  r.kind = Record::Kind::repeat_begin;
  r.count = count;
  r.reverse = reverse;
  program.records.push_back(r);
}

void end(Program& program) {
  Record r;
  r.kind = Record::Kind::repeat_end;
  program.records.push_back(r);
}

// Returns `first` of all entries as a string of 0 and 1 per table.
std::vector<std::string> firsts(Program& program) {
  program.slots = 8;
  plan::mark_first_contributions(program);
  std::vector<std::string> out;
  for (const device::Table& table : program.tables) {
    std::string& bits = out.emplace_back();
    for (const TableEntry& e : table.entries) {
      bits += e.first ? '1' : '0';
    }
  }
  return out;
}

TEST(Contributions, AreOrderedByIterationThenByRecord) {
  Program p;
  repeat(p, 3, false);
  contribute(p, Op::AccumulateGrad, {3, 4, 5});
  contribute(p, Op::MatMul, {5, 3, 4});
  end(p);
  EXPECT_EQ(firsts(p), (std::vector<std::string>{"110", "100"}));
}

TEST(Contributions, AreOrderedFromTheLastIterationInAReversedRepeat) {
  Program p;
  repeat(p, 3, true);
  contribute(p, Op::AccumulateGrad, {3, 4, 5});
  contribute(p, Op::MatMul, {5, 3, 4});
  end(p);
  EXPECT_EQ(firsts(p), (std::vector<std::string>{"001", "011"}));
}

TEST(Contributions, AreOrderedOverTheWholeProgram) {
  Program p;
  contribute(p, Op::MatMul, {4});
  repeat(p, 2, true);
  contribute(p, Op::AccumulateGrad, {3, 4});
  end(p);
  repeat(p, 2, true);
  contribute(p, Op::AccumulateGrad, {5, 3});
  contribute(p, Op::AccumulateGrad, {6, 5});
  end(p);
  contribute(p, Op::AccumulateGrad, {6});
  contribute(p, Op::AccumulateGrad, {7});
  EXPECT_EQ(firsts(p), (std::vector<std::string>{"1", "10", "00", "11", "0", "1"}));
}

TEST(Contributions, OfAZeroedOrFrozenStorageNeverOverwrite) {
  Program p;
  contribute(p, Op::ZeroGrad, {3, 5});
  repeat(p, 3, true);
  contribute(p, Op::AccumulateGrad, {3, 0, 4});
  contribute(p, Op::MatMul, {0, 4, 5});
  end(p);
  EXPECT_EQ(firsts(p), (std::vector<std::string>{"00", "001", "000"}));
}

}  // namespace
}  // namespace bowline::test
