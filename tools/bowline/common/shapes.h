// Models of known shapes, without values.
#pragma once

#include <string>
#include <string_view>

#include "bowline.h"

namespace bowline::command {

// The names that shape_of() knows, for messages and --help.
inline constexpr std::string_view kGpt2Shape = "gpt2-124m";

// A model for planning: a built-in shape in bf16, or else a model file.
// Errors  bad_file: there is no such file, or it is not a model file.
Result<Model> planned_model(const std::string& name);

}  // namespace bowline::command
