// Which nodes of a graph read a storage.
#pragma once

#include <map>

#include "graph/model_state.h"

namespace bowline::detail::graph {

// Returns the storages that cannot be quantized, by tie index, with the reason: 'is read by node 3
// (Add) of "forward", which takes no codes'. All readers of other storages accept quantized values
// (OpDef::encoded_inputs).
std::map<uint32_t, std::string> plain_readers(const ModelState& model);

// Returns the storages of each parameter list of a Repeat. All storages of a list must have the
// same dtype and encoding.
std::vector<std::vector<uint32_t>> ties_of_lists(const ModelState& model);

// Whether one of the operators `ops` reads a parameter of the storages `ties`, or a value that the
// graph computes only from parameters of these storages, such as a weight times a mask.
bool reads(const params::Table& table, const GenericGraph& g, std::span<const std::string> ops,
           std::span<const uint32_t> ties);

}  // namespace bowline::detail::graph
