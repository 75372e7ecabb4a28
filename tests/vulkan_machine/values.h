// Operations that only compute: arithmetic, comparisons, conversions, functions of GLSL.
#pragma once

#include "module.h"

namespace bowline::detail::vulkan::machine {

// Bits of a component: of the operands (the last one, where they differ) and of the result.
struct Widths {
  uint32_t operand, result;
};

// What becomes of NaN in comparisons, minima and maxima.
enum class NaN : uint8_t {
  kept,     // the rules of IEEE 754: SignedZeroInfNanPreserve
  assumed,  // a driver may assume that there is none: comparisons are true, minima lose it
};

// The function of an operation (spv::Op), or null. It reads `count` components.
Execute computes(uint32_t operation, Widths widths, NaN nan);
// The same of an instruction of GLSL.std.450.
Execute computes_extended(uint32_t instruction, NaN nan);
// Of OpSelect with one condition for all components.
void select_whole(uint32_t* registers, const Operation& o);

}  // namespace bowline::detail::vulkan::machine
