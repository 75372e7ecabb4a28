// Adapters in a graph. An adapter changes a matrix W to W + scale * u v. A node that multiplies x
// with W still reads W, and added nodes add scale * (x v) u to its result. A node that reads an
// adapted bias reads bias + scale * u v.
#pragma once

#include "graph/graph.h"
#include "params/adapter.h"

namespace bowline::detail::graph {

// How the generic graphs of a model read each parameter, by parameter number.
std::vector<params::Reading> readings(std::span<const GenericGraph> graphs,
                                      const params::Table& table);

// Adds the nodes of all adapters to a copy of an entry point. The iterations of a Repeat share its
// nodes: an iteration without an adapter that another iteration has multiplies by 0. The caller
// must infer shapes again.
// Errors  bad_argument: a node reads an adapted parameter neither as a matrix nor as a bias. The
//         message names the node.
Status add_adapters(GenericGraph& graph, const params::Table& table);

// Replaces each parameter number p by numbers[p], in bodies of Repeats too.
void renumber_parameters(GenericGraph& graph, std::span<const uint32_t> numbers);

}  // namespace bowline::detail::graph
