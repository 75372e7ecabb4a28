// Model -> file. A loaded model that is saved unchanged gives the same bytes.
#pragma once

#include "graph/model_state.h"

namespace bowline::detail::graph {

// Writes the model atomically. With a training state the file is a checkpoint: rows of optimizers
// are in it, and gradients inside an accumulation (micro_step > 0); without one both are left out.
// Self tests are left out when a value has been written since they were loaded: they hold for the
// old ones. The file is opened before it takes its place, so that what is saved opens.
// Errors  io_error: the file cannot be written. bad_argument: it would not open. Those of the
//         device that the
// storages lie on.
Status save_model(const ModelState& state, const std::string& path,
                  const model::TrainingState* training, FileSystem& files = real_file_system());

}  // namespace bowline::detail::graph
