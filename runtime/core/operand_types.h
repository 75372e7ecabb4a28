// Which dtypes the operands of an operator have, as text: "F, i32 -> F".
//
// Each operand has a word; the last word of a side holds for all operands that follow. A word is a
// dtype ("i32"), or a letter that stands for one dtype of a set, the same one wherever the letter
// stands:
//
//   F     f32, f16 or bf16
//   N     a number: any but bool
//   T     bool, a truth value
//   A, B  any
//
// The storage dtype of a node is that of its first letter; kernels are chosen by it. A node without
// letters has f32.
#pragma once

#include <optional>
#include <span>

#include "core/dtype.h"

namespace bowline {

// Errors  bad_argument: an operand of a dtype that the word does not take, or another than its
//         letter already stands for.
// `op` names the operator in messages.
Status check_operand_types(const char* types, std::string_view op, std::span<const DType> inputs,
                           std::span<const DType> outputs = {});

// The dtype of output i where the inputs decide it. Inputs as check_operand_types() takes them.
std::optional<DType> output_type(const char* types, int i, std::span<const DType> inputs);

// Operands as check_operand_types() takes them.
DType storage_type(const char* types, std::span<const DType> inputs,
                   std::span<const DType> outputs);

// The dtypes that input i may have; none of an operator without inputs.
std::span<const DType> types_of_input(const char* types, size_t i);

}  // namespace bowline
