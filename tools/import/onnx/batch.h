// A dynamic batch: where its rows lie in a value, and what an operator makes of them.
//
// While a graph is read, a prime stands for the size of the batch, so that every shape is known.
// Rows must not meet: an operator that sums over them, sorts or mixes them is refused, and the node
// is named.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/maker.h"

namespace bowline::onnx {

// The attributes of a node with the name of the batch where its size stood, and where the rows lie
// in its outputs.
struct BatchedNode {
  std::vector<Attribute> attributes;
  std::vector<std::optional<BatchAxis>> outputs;
};

// Throws Refused (unsupported): the rows meet, or the operator is not known to keep them apart.
BatchedNode batched_node(const Batch& batch, std::string_view op, const Terms& inputs,
                         const std::vector<Attribute>& attributes,
                         const std::vector<std::pair<DType, Dims>>& outputs);

// The shape of x with a batch of one row. x has the batch.
Dims dims_of_row(const Batch& batch, const Term& x);
// What x becomes where a row of it becomes `row`. Throws Refused: no axis of `row` is where the
// batch lies.
Dims dims_of_rows(const Batch& batch, const Term& x, const Dims& row);

// Which of the numbers that an operator has computed from the numbers of its inputs follow from the
// size of the batch. Empty: none.
std::vector<bool> marks_of_batch(const Batch& batch, std::string_view op, const Terms& inputs,
                                 const Numbers& numbers, const Dims& dims);

}  // namespace bowline::onnx
