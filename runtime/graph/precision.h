// The precision of a plan: operators on f32 numbers that compute in 16 bits instead.
#pragma once

#include "graph/infer.h"

namespace bowline::detail::graph {

// Operators read 16-bit copies of f32 numbers and give such, those that stay in f32
// (OpDef::stays_f32) copies in f32 of what others made. What only moves elements follows its
// operands; a state keeps its dtype; outputs keep theirs. Each value is copied at most once per
// dtype, by a Cast in front of its first reader. Shapes and dtypes of `graph` are inferred, before
// and after. `has_f32`: the device has every kernel in f32. Then an operator on single numbers, one
// of which is in f32, such as the quotient of two sums, also stays in f32.
// Source  Micikevicius et al., "Mixed Precision Training", 2018.
Status compute_in(GenericGraph& graph, DType compute, Dims dims, bool has_f32);

// `value` in f32, by a Cast behind all nodes unless it is that.
Result<ValueId> in_f32(BoundGraph& graph, ValueId value);

}  // namespace bowline::detail::graph
