// Describes a model as plain structs, for Model::describe().
#pragma once

#include "graph/model_state.h"

namespace bowline::detail::api {

ModelInfo describe(const graph::ModelState& state);

}  // namespace bowline::detail::api
