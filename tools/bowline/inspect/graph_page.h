// The graphs of a model as nested boxes, in the order of execution.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

// Links to the rows of storages ("s7") and to ties ("t7").
std::string graph_html(const ModelInfo& info);

// "blocks.{}.weight": a name without the numbers among its parts.
std::string numbered_pattern(std::string_view name);

}  // namespace bowline::command
