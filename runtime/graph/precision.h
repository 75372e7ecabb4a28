// Mixed precision: rewrites a graph so that operators compute in f16 or bf16 instead of f32.
#pragma once

#include "graph/infer.h"

namespace bowline::detail::graph {

// Makes operators read and return values of the 16-bit dtype `compute`. Operators with
// OpDef::stays_f32 read and return f32. Operators that only move elements keep the dtype of their
// operands. States and outputs of the graph keep their dtypes. A Cast before the first reader
// converts a value, at most once per dtype. Before and after the call, all shapes and dtypes are
// inferred. `has_f32`: the device has every kernel in f32. An operator on scalars then also stays
// in f32 if one of them is an f32 result, for example the quotient of two sums. Source Micikevicius
// et al., "Mixed Precision Training", 2018.
Status compute_in(GenericGraph& graph, DType compute, Dims dims, bool has_f32);

// Returns `value` in f32. Appends a Cast at the end of the graph if `value` has another dtype.
Result<ValueId> in_f32(BoundGraph& graph, ValueId value);

}  // namespace bowline::detail::graph
