// Makes a bound graph of a generic one: real dims, storages instead of parameters, declared transposes as nodes.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::graph {

// A copy that shares nothing: bodies too.
Graph deep_copy(const Graph& graph);

// Errors  bad_argument: a dim is missing or outside its limits, an operator's rule is broken.
Result<Graph> bind(const Graph& generic, const ModelState& model, Dims dims);

// Shape and dtype of a parameter value of a generic graph, and its name, from the parameters that it stands for.
// Errors  bad_argument: they differ in shape or dtype.
Status set_parameters(ValueInfo& info, const params::Table& table);

// The generic graphs of a model with the shapes that the parameters have in `table`.
// Errors  bad_argument: a graph cannot take them.
Result<std::vector<Graph>> inferred(const ModelState& model, const params::Table& table);

}  // namespace bowline::graph
