// Program: a segment of a plan as a flat list of records. One device records it once.
//
// A record is an operator with its operands. An operand is a contiguous tensor: a slot (a buffer
// bound when the program is recorded), an offset in bytes, a dtype and a shape. Its kind is one of:
// - plain (no table, modulo == 0): bytes [offset, offset + size) of the slot.
// - a table entry (in a Repeat, with a table): iteration i uses entry i, for example the weight of
//   layer i.
// - stepping (in a Repeat, modulo != 0): iteration i uses offset + ((i + shift) % modulo) *
//   step_bytes, for kept and carried values.
// - a list (outside a Repeat, with a table): the operator takes all entries at once.
//
// A Repeat is a begin record, its body and an end record. Repeats do not nest.
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
// Record::candidate: the backend chooses.
constexpr uint32_t kNoCandidate = UINT32_MAX;

// Slots with a fixed meaning. The slots of storages follow.
constexpr uint32_t kArenaSlot = 0;
constexpr uint32_t kIoSlot = 1;
constexpr uint32_t kStepSlot = 2;
constexpr uint32_t kFirstStorageSlot = 3;

struct Operand {
  uint32_t slot = kArenaSlot;
  DType dtype = DType::f32;
  uint64_t offset = 0;
  // The encoding of a storage. If it is quantized, `offset` is the offset of the quantized values.
  // `scales` and `zeros` are the offsets of scales and zero points (Encoding::place). With a table,
  // this is the encoding of its first entry; see encoding_of().
  Encoding encoding;
  uint64_t scales = 0;
  uint64_t zeros = 0;
  Shape shape;  // of a list operand: [elements of its largest entry]
  uint32_t table = kNoTable;
  uint32_t modulo = 0;
  uint32_t shift = 0;
  uint64_t step_bytes = 0;
  // (optional) A dynamic axis of an input, if the kernel stops at its current size
  // (OpDef::reads_counts). The u32 at offset `count_at` of kStepSlot is the current size, from 0 to
  // the size of the axis. Elements behind it are undefined. -1: no axis.
  int32_t counted_axis = -1;
  uint32_t count_at = 0;

  uint64_t bytes() const { return encoding.bytes(dtype, shape); }
};

// One weight, gradient or moment in a table.
struct TableEntry {
  uint32_t slot = 0;
  uint64_t offset = 0;
  uint64_t elements = 0;
  // Gradients: this is the first contribution of the submission. It overwrites the gradient unless
  // StepHead::accumulate is set. An entry of 0 elements is a frozen storage: the kernel drops the
  // contribution.
  bool first = false;
  // As in Operand. The storages of a table are all plain or all quantized.
  Encoding encoding = {};
  uint64_t scales = 0;
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
  // An output may have the same place as an input if the operator allows it (OpDef::in_place).
  std::vector<Operand> outputs;
  // Bit i: output i is a gradient, an entry of a table. TableEntry::first and StepHead::accumulate
  // decide whether the kernel overwrites it or adds to it. An entry of 0 elements is not written.
  uint32_t accumulate = 0;
  Operand workspace;  // u8, of the size that query() returned
  // The way to run the node (NodeAnswer::candidates). If the backend does not have it, it chooses.
  uint32_t candidate = kNoCandidate;
  // Offsets of the per-step scalars of the operator in kStepSlot, in the order of step_words(op).
  std::vector<uint32_t> step;
  // Records of one level do not depend on each other. A record sees all writes of lower levels. In
  // a Repeat, levels start again at 0. Everything before the begin record, the end record or the
  // next iteration is done before anything after it.
  uint32_t level = 0;
  uint32_t node = 0;  // written into StepHead::error_node
  // repeat_begin
  uint32_t count = 0;
  bool reverse = false;  // iterations run from count - 1 to 0
};

struct Program {
  std::vector<Record> records;
  std::vector<Table> tables;
  uint32_t slots = 0;
};

// The encoding of an operand in an iteration of the Repeat around its record.
inline const Encoding& encoding_of(const Program& program, const Operand& o, uint32_t iteration) {
  return o.table == kNoTable ? o.encoding : program.tables[o.table].entries[iteration].encoding;
}

enum class StepError : uint32_t { none = 0, index_out_of_range = 1 };

// The start of kStepSlot. The per-step scalars of operators (core/step_words.h) follow, at offsets
// that the plan sets, each at a multiple of its size. The host writes the whole slot before a
// submission and reads it after the submission. Records that write the same scalar may run at the
// same time, because all of them write the same value or nothing.
struct StepHead {
  // A StepError. A kernel that finds an out-of-range index sets all three fields if `error` is 0.
  // If several records of a level find one, it is undefined which record sets them.
  uint32_t error = 0;
  uint32_t error_node = 0;  // Record::node
  int32_t error_value = 0;  // the index
  uint32_t accumulate = 0;  // 1: gradients are added to the gradients of earlier submissions
};
static_assert(sizeof(StepHead) == 16);

}  // namespace bowline::detail::device
