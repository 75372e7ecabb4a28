// The memory traffic of records: what a kernel moves that reads and writes each operand once.
#pragma once

#include <vector>

#include "device/program.h"

namespace bowline::detail::plan {

struct Traffic {
  uint64_t read = 0;     // bytes
  uint64_t written = 0;  // bytes
};

// Returns the traffic of one run of each record. In a Repeat, this is the first iteration.
//
// - An operand counts in its real encoding, once, even if the record names it twice.
// - Of a table whose rows are gathered (OpDef::gathers), only the rows count that are read. Of a
//   state into which rows are written, only these rows count.
// - The workspace counts as written once and read once. A kernel that converts operands to f32 in
//   its workspace therefore pays for the conversion.
// - A gradient is also read, unless the record overwrites it.
// - Weights of 16 bits are not read by an optimizer, which rounds them from their masters.
// - A dynamic axis counts with its maximum.
std::vector<Traffic> traffic_of(const device::Program& program);

}  // namespace bowline::detail::plan
