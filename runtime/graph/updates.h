// Finds the storages that a graph writes, and checks that the order of reads and writes is defined.
#pragma once

#include "graph/graph.h"
#include "params/table.h"

namespace bowline::detail::graph {

// Returns the ascending tie indices of the storages that the nodes of a generic entry point write.
// A node that reads the written parameter must be before the writing node and reads the old values.
// A node that reads the output of the writing node reads the new values. Takes O(n log n) time in
// the number of nodes and list entries.
// Errors  bad_argument: the written value is not a parameter, is transposed or is trainable.
//         bad_argument: the storage is quantized, and the node does not write whole rows
//         (OpDef::writes_rows).
//         bad_argument: two nodes, or two iterations of a Repeat, write the same storage.
//         bad_argument: a node after the writing node reads a parameter of the storage.
Result<std::vector<uint32_t>> written_storages(const GenericGraph& graph,
                                               const params::Table& table);

}  // namespace bowline::detail::graph
