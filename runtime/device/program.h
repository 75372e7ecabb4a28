// Program: one segment of a plan as flat records, made for one device, recorded by it once.
//
// A record is one operator with its operands. An operand is a contiguous tensor: a slot (a buffer bound at record
// time), an offset in bytes, dtype and shape. Three kinds of operand exist:
//   plain    table == kNoTable, modulo == 0: bytes [offset, offset + size) of the slot.
//   stepping inside a Repeat, one of
//            table != kNoTable: iteration i reads entry i of the table (weights of the layers), or
//            modulo != 0:       iteration i reads slot offset + ((i + shift) % modulo) * step_bytes (kept or carried values).
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

namespace bowline::device {

constexpr uint32_t kNoTable = UINT32_MAX;

// Slots with a fixed meaning; storages follow.
constexpr uint32_t kArenaSlot = 0;
constexpr uint32_t kIoSlot = 1;
constexpr uint32_t kStepSlot = 2;
constexpr uint32_t kFirstStorageSlot = 3;

struct Operand {
  uint32_t slot = kArenaSlot;
  uint64_t offset = 0;
  DType dtype = DType::f32;
  Encoding
      encoding;  // of a storage: what the bytes behind the slot are; `offset` counts in its codes
  Shape shape;   // of a list operand: [elements of its largest entry]
  uint32_t table = kNoTable;
  uint32_t modulo = 0;
  uint32_t shift = 0;
  uint64_t step_bytes = 0;

  uint64_t bytes() const { return encoding.bytes(dtype, shape); }
};

// One weight, gradient or moment in a table.
struct TableEntry {
  uint32_t slot = 0;
  uint64_t offset = 0;
  uint64_t elements = 0;
  // Of a gradient: this is the first contribution of the submission, so it overwrites unless the step
  // scalar `accumulate` is set. An entry of 0 elements is a frozen storage: the contribution is dropped.
  bool first = false;
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
  // the step scalar `accumulate` say whether it is overwritten or added to; nothing is written to an entry of 0 elements.
  uint32_t accumulate = 0;
  Operand workspace;  // u8, as many bytes as query() asked for
  // Records of one level do not depend on each other; a record sees what lower levels wrote. Inside a Repeat
  // levels count from its begin; begin, end and the change of iteration separate everything.
  uint32_t level = 0;
  uint32_t node = 0;  // written into StepScalars::error_node
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

// The content of kStepSlot: what changes from step to step. The host writes all of it before a
// submission and reads the first words back after it.
struct StepScalars {
  uint32_t error = 0;         // StepError; a kernel that sees a bad index writes 1 ...
  uint32_t error_node = 0;    // ... its Record::node ...
  int32_t error_value = 0;    // ... and the index. Which one of several is not defined.
  uint32_t non_finite = 0;    // ClipByGlobalNorm sets it: the norm or its loss is not finite
  float grad_norm = 0;        // ClipByGlobalNorm: before clipping, after gradient_scale
  uint32_t accumulate = 0;    // 1: AccumulateGrad adds to what earlier micro-batches left
  uint32_t training = 0;      // 0: Dropout is the identity
  uint32_t seed[2] = {0, 0};  // Dropout: key of the random numbers
  uint32_t counter = 0;       // Dropout: number of the micro-batch since the run began
  float learning_rate = 0;
  float gradient_scale = 1;    // 1 / number of micro-batches
  float bias_correction1 = 1;  // AdamW: 1 - beta1^t
  float bias_correction2 = 1;  // AdamW: 1 - beta2^t
  uint32_t first_update =
      0;  // Sgd with momentum: 1 at the first step (the buffer starts as the gradient)
  float accumulate_factor =
      0;  // 1 where `accumulate` is set: what a product multiplies the old gradient by
  uint32_t weights_non_finite = 0;  // an optimizer sets it: it wrote a weight that is not finite
};
static_assert(sizeof(StepScalars) == 68);

// Optimizers do nothing when error or non_finite is set.

}  // namespace bowline::device
