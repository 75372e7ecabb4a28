// Writes a model, given as plain structs, to a file.
#pragma once

#include "model/description.h"
#include "model/verify.h"

namespace bowline::detail::model {

// Decides whether a new file is acceptable. If it returns an error, the file is not committed.
using Acceptance = std::function<Status(std::shared_ptr<const VerifiedFile>)>;

// Writes the model to `path` atomically, with one payload per storage. The same content is always
// written as the same bytes. The new file is verified and passed to `acceptance` before it replaces
// the old one.
// Errors  io_error: the file cannot be written. The old file is unchanged.
//         bad_argument: the file would be refused. The message has the reason.
//         Errors of Description::bytes.
Status write_model(const std::string& path, const Description& model, const Acceptance& acceptance,
                   FileSystem& files = real_file_system());

}  // namespace bowline::detail::model
