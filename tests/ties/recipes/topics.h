// The topics of the recipes. Each topic has its own file.
#pragma once

#include "ties/recipe.h"

namespace bowline::test {

std::span<const Recipe> recipes_of_models();
std::span<const Recipe> recipes_of_transfer();
std::span<const Recipe> recipes_of_optimizers();
std::span<const Recipe> recipes_of_precision();
std::span<const Recipe> recipes_of_files();
std::span<const Recipe> recipes_of_graphs();
std::span<const Recipe> recipes_of_formats();
std::span<const Recipe> recipes_of_quantized();
std::span<const Recipe> recipes_of_adapters();
std::span<const Recipe> recipes_of_sharing();
std::span<const Recipe> recipes_of_peers();

}  // namespace bowline::test
