// Describes a model file as JSON, for `bowline inspect`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bowline.h"

namespace bowline::command {

// True if the weights have no values, as in models of 'import --skeleton'.
bool is_skeleton(const ModelInfo& model);

// Returns everything except the memory plan, with the SHA-256 and sizes of the file `path`.
Result<nlohmann::json> describe_model(const ModelInfo& model, const std::string& path);

// The parameters that share a storage.
std::vector<std::string> names_of(const ModelInfo& model, const TieInfo& tie);

nlohmann::json describe_memory(const MemoryReport& report);

}  // namespace bowline::command
