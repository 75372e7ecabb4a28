// Makes a bound graph from a generic graph: sizes instead of dimension names, storages instead of
// parameters. Operators that can read a transposed view read it directly. For other operators,
// bind() adds a transposing node.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::detail::graph {

// Binds a graph. `asked` is the 16-bit dtype in which operators on f32 compute (graph/precision.h).
// Without it, `of_device` decides (device::Capabilities::compute). Without both, they compute in
// f32.
// Errors  bad_argument: a dim is missing or outside its limits, or an operator's rule is broken.
Result<BoundGraph> bind(const GenericGraph& generic, const ModelState& model, Dims dims,
                        std::optional<DType> asked = {}, std::optional<DType> of_device = {});

// Sets shape, dtype, encoding and name of a parameter value from its parameters.
// Errors  bad_argument: the parameters differ in shape, dtype or transpose.
Status set_parameters(GenericValue& info, const params::Table& table);

// Checks the lists of Repeats that contain `parameter`, as if its view had this `transpose`.
// Errors  bad_argument: a list would mix transposed and other parameters.
Status check_orientation(const GenericGraph& graph, const params::Table& table, uint32_t parameter,
                         bool transpose);

// Returns the generic graphs of a model, inferred again with the shapes and dtypes of `table`. With
// `inputs`, float inputs get this dtype.
// Errors  bad_argument: an operator does not accept a new shape or dtype.
Result<std::vector<GenericGraph>> inferred(const ModelState& model, const params::Table& table,
                                           std::optional<DType> inputs = {});

}  // namespace bowline::detail::graph
