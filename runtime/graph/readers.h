// Who reads a storage as numbers alone, so that it cannot be codes.
#pragma once

#include <map>

#include "graph/model_state.h"

namespace bowline::detail::graph {

// By tie index: 'is read by node 3 (Add) of "forward", which takes no codes'. Storages that are not
// there are read by operators that take codes (OpDef::encoded_inputs), or by nobody.
std::map<uint32_t, std::string> plain_readers(const ModelState& model);

// The storages of each parameter list of a Repeat. They must have one dtype and one encoding.
std::vector<std::vector<uint32_t>> ties_of_lists(const ModelState& model);

}  // namespace bowline::detail::graph
