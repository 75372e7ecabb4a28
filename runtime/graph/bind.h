// Makes a bound graph of a generic one: real dims, storages instead of parameters. Operators that
// can read declared transposes do. The others read them through added nodes.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::detail::graph {

// `asked`, or else `of_device` (device::Capabilities::compute): what operators on f32 numbers
// compute in, if not that (graph/precision.h).
// Errors  bad_argument: a dim is missing or outside its limits, an operator's rule is broken.
Result<BoundGraph> bind(const GenericGraph& generic, const ModelState& model, Dims dims,
                        std::optional<DType> asked = {}, std::optional<DType> of_device = {});

// Shape, dtype, encoding and name of a parameter value, from the parameters that it stands for.
// Errors  bad_argument: they differ in shape, dtype or transpose.
Status set_parameters(GenericValue& info, const params::Table& table);

// Errors  bad_argument: `parameter`, shown transposed or not, would be in the list of a Repeat with
//         one that is not.
Status check_orientation(const GenericGraph& graph, const params::Table& table, uint32_t parameter,
                         bool transpose);

// The generic graphs of a model with the shapes and dtypes that the parameters have in `table`,
// float inputs in the dtype `inputs` if it is given.
// Errors  bad_argument: a graph cannot take them.
Result<std::vector<GenericGraph>> inferred(const ModelState& model, const params::Table& table,
                                           std::optional<DType> inputs = {});

}  // namespace bowline::detail::graph
