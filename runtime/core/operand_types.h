// The dtypes of the operands of an operator, as text: "F, i32 -> F".
//
// Each operand has a word. The last word of a side also holds for all further operands. A word is a
// dtype ("i32") or a letter. A letter means one dtype of a set, the same one at all its places:
//
//   F     f32, f16 or bf16
//   N     any dtype except bool
//   T     bool
//   A, B  any dtype
//
// The storage dtype of a node is the dtype of its first letter, or f32 if there is no letter. It
// selects the kernel.
#pragma once

#include <optional>
#include <span>

#include "core/dtype.h"

namespace bowline {

// Checks the dtypes of operands. `op` is the operator, for messages.
// Errors  bad_argument: the word of an operand does not accept its dtype, or its letter already
//         means another dtype.
Status check_operand_types(const char* types, std::string_view op, std::span<const DType> inputs,
                           std::span<const DType> outputs = {});

// Returns the dtype of output i, or nullopt if the inputs do not decide it. The inputs have passed
// check_operand_types().
std::optional<DType> output_type(const char* types, int i, std::span<const DType> inputs);

// Returns the storage dtype of a node. The operands have passed check_operand_types().
DType storage_type(const char* types, std::span<const DType> inputs,
                   std::span<const DType> outputs);

// Returns the dtypes that input i may have. Empty if the operator has no inputs.
std::span<const DType> types_of_input(const char* types, size_t i);

}  // namespace bowline
