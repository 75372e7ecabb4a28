// The flags that say what a model is trained on or evaluated by.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/task.h"

namespace bowline::command {

// --data, --as-text, and what rows of conversations or of texts with labels have.
void add_data(CLI::App* verb, DataOptions& options);
// --batch and --seq.
void add_windows(CLI::App* verb, DataOptions& options);

}  // namespace bowline::command
