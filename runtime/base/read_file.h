// Reads small files that Bowline keeps for itself, such as those of a cache folder.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/status.h"

namespace bowline {

// Returns the contents of a regular file, or nothing if there is no file. A file of more than
// `most` bytes reads as empty. A pipe is refused without waiting for its writer.
// Errors  io_error: the file cannot be read. `what` names it, for example "Tuning file".
Result<std::optional<std::string>> read_file(std::string_view what, const std::string& path,
                                             uint64_t most, FileSystem& files);

}  // namespace bowline
