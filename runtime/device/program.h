// Program: one segment of a plan as flat records, made for one device, recorded by it once.
//
// A record is one operator with its operands. An operand is a contiguous tensor: a slot (a buffer
// bound at record time), an offset in bytes, dtype and shape. Three kinds of operand exist:
//   plain    table == kNoTable, modulo == 0: bytes [offset, offset + size) of the slot.
//   stepping inside a Repeat, one of
//            table != kNoTable: iteration i reads entry i of the table (weights of the layers), or
//            modulo != 0:       iteration i reads slot offset + ((i + shift) % modulo) * step_bytes
//                (kept or carried values).
//   list     outside a Repeat with table != kNoTable: the operator takes all entries at once.
// A Repeat is a begin and an end record around its body; they do not nest in contract version 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/attributes.h"
#include "core/dtype.h"
#include "core/encoding.h"
#include "core/shape.h"
#include "generated/step_words.h"

namespace bowline::detail::device {

constexpr uint32_t kNoTable = UINT32_MAX;

// Slots with a fixed meaning; storages follow.
constexpr uint32_t kArenaSlot = 0;
constexpr uint32_t kIoSlot = 1;
constexpr uint32_t kStepSlot = 2;
constexpr uint32_t kFirstStorageSlot = 3;

struct Operand {
  uint32_t slot = kArenaSlot;
  DType dtype = DType::f32;
  uint64_t offset = 0;
  // Of a storage: what the bytes behind the slot are. Of an encoded one `offset` is that of its
  // codes, and its scales and zero points begin at these (Encoding::place).
  Encoding encoding;
  uint64_t scales = 0;
  uint64_t zeros = 0;
  Shape shape;  // of a list operand: [elements of its largest entry]
  uint32_t table = kNoTable;
  uint32_t modulo = 0;
  uint32_t shift = 0;
  uint64_t step_bytes = 0;
  // (optional) Of an input, for an operator that stops there (OpDef::reads_counts): this axis has
  // as many elements as the u32 at `count_at` of kStepSlot says, 0 to its size, and what lies
  // behind them holds anything. -1: all of the axis.
  int32_t counted_axis = -1;
  uint32_t count_at = 0;

  uint64_t bytes() const { return encoding.bytes(dtype, shape); }
};

// One weight, gradient or moment in a table.
struct TableEntry {
  uint32_t slot = 0;
  uint64_t offset = 0;
  uint64_t elements = 0;
  // Of a gradient: this is the first contribution of the submission, so it overwrites unless
  // StepHead::accumulate is set. An entry of 0 elements is a frozen storage: the contribution is
  // dropped.
  bool first = false;
  uint64_t scales = 0;  // as Operand::scales
  uint64_t zeros = 0;
};

struct Table {
  std::vector<TableEntry> entries;
};

struct Record {
  enum class Kind : uint8_t { op, repeat_begin, repeat_end };
  Kind kind = Kind::op;
  Op op = Op::Invalid;
  DType type =
      DType::f32;  // storage dtype of the node; kernels are chosen by it (core/operand_types.h)
  Attributes attributes;
  std::vector<Operand> inputs;
  // An output may lie exactly on an input where the operator allows it (OpDef::in_place).
  std::vector<Operand> outputs;
  // Bit i: output i is a gradient, an entry of a table. `first` of the entry and
  // StepHead::accumulate say whether it is overwritten or added to; nothing is written to an entry
  // of 0 elements.
  uint32_t accumulate = 0;
  Operand workspace;  // u8, as many bytes as query() asked for
  // Where the step words of the operator lie in kStepSlot, in the order of step_words(op).
  std::vector<uint32_t> step;
  // Records of one level do not depend on each other; a record sees what lower levels wrote. Inside
  // a Repeat levels count from its begin; begin, end and the change of iteration separate
  // everything.
  uint32_t level = 0;
  uint32_t node = 0;  // written into StepHead::error_node
  // repeat_begin
  uint32_t count = 0;
  bool reverse = false;  // iterations count - 1 .. 0
};

struct Program {
  std::vector<Record> records;
  std::vector<Table> tables;
  uint32_t slots = 0;
};

enum class StepError : uint32_t { none = 0, index_out_of_range = 1 };

// How kStepSlot begins; the step words that operators declare (core/step_words.h) follow where the
// plan says, each at a multiple of its size. It holds what changes from step to step: the host
// writes all of it before a submission and reads it back after it. Records that write one word may
// run at the same time: they write the same number, or none.
struct StepHead {
  uint32_t error = 0;       // StepError; a kernel that sees a bad index writes 1 if it is 0 ...
  uint32_t error_node = 0;  // ... its Record::node ...
  int32_t error_value = 0;  // ... and the index. Which one of several in a level is not defined.
  uint32_t accumulate = 0;  // 1: gradients are added to what earlier submissions left
  float accumulate_factor = 0;  // the same number: what a product multiplies the old gradient by
};
static_assert(sizeof(StepHead) == 20);

}  // namespace bowline::detail::device
