// Writes a model to a file. A model that was loaded and not changed is saved with the same bytes.
#pragma once

#include "graph/model_state.h"

namespace bowline::detail::graph {

// Writes the model atomically. With `training`, the file is a checkpoint: it contains the optimizer
// state and, inside an accumulation (micro_step > 0), the gradients. Self-tests are left out if a
// value was written since they were loaded. The new file is opened before it replaces the old one,
// so every saved file can be opened.
// Errors  io_error: the file cannot be written.
//         bad_argument: the file could not be opened.
//         Errors of the device of the storages.
Status save_model(const ModelState& state, const std::string& path,
                  const model::TrainingState* training, FileSystem& files = real_file_system());

}  // namespace bowline::detail::graph
