// Which dtypes the operands of a kernel have. A backend keeps it beside the kernel and asks it in every query.
#pragma once

#include "device/backend.h"

namespace bowline::device {

struct OperandTypes {
  uint32_t indices = 0;  // bit i: input i is i32; all other operands are f32
  bool bytes = false;    // the kernel moves bytes: any dtype, one for all operands
};

// Why a kernel of these types cannot take the operands; empty: it can.
std::string refusal_of(const NodeQuery& node, const OperandTypes& types);

}  // namespace bowline::device
