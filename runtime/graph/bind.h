// Makes a bound graph of a generic one: real dims, storages instead of parameters, declared transposes as nodes.
#pragma once

#include "graph/infer.h"
#include "graph/model_state.h"

namespace bowline::graph {

// A copy that shares nothing: bodies too.
Graph deep_copy(const Graph& graph);

// Errors  bad_argument: a dim is missing or outside its limits, an operator's rule is broken.
Result<Graph> bind(const Graph& generic, const ModelState& model, Dims dims);

}  // namespace bowline::graph
