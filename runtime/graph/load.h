// Verified file -> Model: the table, the graphs with the inference of every operator run, and the
// rest.
#pragma once

#include "graph/model_state.h"
#include "model/verify.h"

namespace bowline::detail::graph {

// Errors  io_error: the file cannot be read. bad_file: what and where. unsupported: a Repeat in the
// body of another. over_budget: it costs more than the options allow.
Result<std::shared_ptr<ModelState>> load_model(const std::string& path,
                                               const OpenOptions& options = {},
                                               FileSystem& files = real_file_system());

// As load_model(), of a file that is verified already.
Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<const model::VerifiedFile> file);

}  // namespace bowline::detail::graph
