// What `bowline inspect` knows of a model file, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bowline.h"

namespace bowline::command {

// Whether weights have no values: 'import --skeleton' makes such models.
bool is_skeleton(const ModelInfo& model);

// All but the memory plan. `sha256` and sizes are of the file.
Result<nlohmann::json> describe_model(const ModelInfo& model, const std::string& path);

// The parameters that share a storage.
std::vector<std::string> names_of(const ModelInfo& model, const TieInfo& tie);

nlohmann::json describe_memory(const MemoryReport& report);

}  // namespace bowline::command
