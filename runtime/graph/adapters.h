// Adapters in a graph: a node that reads a matrix W that one changes reads it as before, and
// gets scale * (x v) u added, where W is to change by u v; one that reads a bias gets it with scale
// * u v added.
#pragma once

#include "graph/graph.h"
#include "params/adapter.h"

namespace bowline::detail::graph {

// By parameter, over the generic graphs of a model.
std::vector<params::Reading> readings(std::span<const GenericGraph> graphs,
                                      const params::Table& table);

// Adds the nodes to a copy of an entry point. In a Repeat whose iterations see
// different adapters, the others multiply what some iteration sees by 0. Shapes are to be inferred
// again.
// Errors  bad_argument: a parameter that an adapter changes is read in another way than as a matrix
//         or a bias: the node is named.
Status add_adapters(GenericGraph& graph, const params::Table& table);

// Parameters get other numbers, in bodies too.
void renumber_parameters(GenericGraph& graph, std::span<const uint32_t> numbers);

}  // namespace bowline::detail::graph
