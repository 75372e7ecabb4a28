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

/// Writes a file atomically: the file appears complete, or a file that was there stays unchanged.
///
/// The bytes of `pieces` are written one after the other. The function writes a temporary file in
/// the same folder, synchronizes it to the disk and renames it. Threads: any thread.
///
/// Errors:
/// - io_error: the file cannot be written.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);

/// Returns the versions of the library and of the files that it writes: "0.1.0 (format 1)".
std::string_view version();

}  // namespace bowline

#pragma GCC visibility pop
