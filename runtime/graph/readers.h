// Which nodes of a graph read a storage.
#pragma once

#include <map>

#include "graph/model_state.h"

namespace bowline::detail::graph {

// By tie index: 'is read by node 3 (Add) of "forward", which takes no codes'. Storages that are not
// there are read by operators that take codes (OpDef::encoded_inputs), or by nobody.
std::map<uint32_t, std::string> plain_readers(const ModelState& model);

// The storages of each parameter list of a Repeat. They must have one dtype and one encoding.
std::vector<std::vector<uint32_t>> ties_of_lists(const ModelState& model);

// Whether one of these operators reads a parameter of these storages, or a value that the graph
// computes from them alone, such as a weight times a mask.
bool reads(const params::Table& table, const GenericGraph& g, std::span<const std::string> ops,
           std::span<const uint32_t> ties);

}  // namespace bowline::detail::graph
