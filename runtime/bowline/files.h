// Writes files as a whole or not at all; the version.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

// Writes a file as Model::save() does: it appears whole or not at all (a temporary file in the same
// folder, fsync, rename), with
// the bytes of `pieces` one after the other. Errors  io_error: it cannot be written; what was there
// before is untouched.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);

// "MAJOR.MINOR.PATCH (format N)": of this library, as CMake and its package have it, and of the
// files that it writes.
std::string_view version();

}  // namespace bowline

#pragma GCC visibility pop
