// The graphs of a model as nested boxes, in the order of execution.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

// Contains links to the table rows of storages ("s7") and to ties ("t7").
std::string graph_html(const ModelInfo& info);

}  // namespace bowline::command
