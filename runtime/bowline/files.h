/// \file
/// Atomic files, and the version of the library.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "bowline/status.h"

#pragma GCC visibility push(default)

namespace bowline {

/// Writes a file atomically: other programs see the old file or the complete new one.
///
/// `pieces` are the parts of the file, in order. The function writes a temporary file in the same
/// folder, calls fsync() and renames it. Threads: any thread.
///
/// Errors:
/// - io_error: the file cannot be written, or another call is writing the same path.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);

/// Returns the versions of the library and of its file format, for example "0.1.0 (format 1)".
std::string_view version();

}  // namespace bowline

#pragma GCC visibility pop
