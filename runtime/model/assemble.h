// A model as plain structs -> the tables and payloads of a file.
#pragma once

#include "model/description.h"
#include "model/verify.h"

namespace bowline::detail::model {

// What a reader says of the file; of one that it refuses nothing is committed.
using Acceptance = std::function<Status(std::shared_ptr<const VerifiedFile>)>;

// Writes the model to `path`: atomically, with one payload per storage, and with the same bytes for
// the same content. The file is verified and shown to `acceptance` before it takes its place.
// Errors  io_error: it cannot be written; what was there before is untouched. bad_argument: it
//         would be refused, with
// the reason. Those of Description::bytes.
Status write_model(const std::string& path, const Description& model, const Acceptance& acceptance,
                   FileSystem& files = real_file_system());

}  // namespace bowline::detail::model
