// Flags for the data of a training or evaluation.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/task.h"

namespace bowline::command {

// --data, --as-text, and the flags for conversations and for texts with labels.
void add_data(CLI::App* verb, DataOptions& options);
// --batch and --seq.
void add_windows(CLI::App* verb, DataOptions& options);

}  // namespace bowline::command
