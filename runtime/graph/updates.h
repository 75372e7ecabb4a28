// Which storages a graph writes, and that every reader knows whether it reads before or after.
#pragma once

#include "graph/graph.h"
#include "params/table.h"

namespace bowline::detail::graph {

// The storages that the nodes of a generic entry point write, ascending: the ties of `table`
// decide. A node writes through a parameter: who reads that stands in front of the node and sees
// the state before, who reads the node's output sees it after. Takes about n log n steps in nodes
// and entries of lists.
// Errors  bad_argument: what is written is no parameter, or a transpose, trainable, or codes that
//         take no rows of the node (OpDef::writes_rows); two nodes, or two iterations, write one
//         storage; a parameter of it is read behind the node that writes it.
Result<std::vector<uint32_t>> written_storages(const GenericGraph& graph,
                                               const params::Table& table);

}  // namespace bowline::detail::graph
