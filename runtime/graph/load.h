// Makes a model from a verified file. Infers all graphs, which checks the rules of the operators.
#pragma once

#include "graph/model_state.h"
#include "model/verify.h"

namespace bowline::detail::graph {

// Errors  io_error: the file cannot be read.
//         bad_file: the file is damaged. The message says where.
//         unsupported: a Repeat is in the body of another Repeat.
//         over_budget: the file costs more than the options allow.
Result<std::shared_ptr<ModelState>> load_model(const std::string& path,
                                               const OpenOptions& options = {},
                                               FileSystem& files = real_file_system());

// The same for a file that is open already. If a callback reads it, its errors are returned, too.
Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<model::MappedFile> file,
                                               const OpenOptions& options = {},
                                               FileSystem& files = real_file_system());

// The same for a file that is verified already.
Result<std::shared_ptr<ModelState>> load_model(std::shared_ptr<const model::VerifiedFile> file);

}  // namespace bowline::detail::graph
