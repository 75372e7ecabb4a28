// Dynamic batches: finds the batch axis of each value, and rejects operators that mix rows.
//
// While the graph is read, a prime number stands for the batch size, so that every shape is known.
// An operator that sums over the rows, sorts them or mixes them is rejected with the name of its
// node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/maker.h"

namespace bowline::onnx {

// The attributes of a node, with the name of the dynamic batch in place of its size, and the batch
// axis of each output.
struct BatchedNode {
  std::vector<Attribute> attributes;
  std::vector<std::optional<BatchAxis>> outputs;
};

// Applies the batch rule of `op`. Throws Refused (unsupported) if the operator mixes rows or has no
// batch rule.
BatchedNode batched_node(const Batch& batch, std::string_view op, const Terms& inputs,
                         const std::vector<Attribute>& attributes,
                         const std::vector<std::pair<DType, Dims>>& outputs);

// Returns the shape of x for a batch of one row. Requires that x has a batch axis.
Dims dims_of_row(const Batch& batch, const Term& x);
// Returns the shape of x after each row is reshaped to `row`. Throws Refused if no axis of `row`
// can hold the batch.
Dims dims_of_rows(const Batch& batch, const Term& x, const Dims& row);

// Returns which elements of the computed result `numbers` depend on the batch size, as flags per
// element. Returns an empty vector if no element does.
std::vector<bool> marks_of_batch(const Batch& batch, std::string_view op, const Terms& inputs,
                                 const ConstantTensor& numbers, const Dims& dims);

}  // namespace bowline::onnx
