// Recognizes formats, for the functions of bowline_import.h.
#pragma once

#include <string>
#include <string_view>

#include "bowline_import.h"

namespace bowline::import {

// True if the regular file `path` begins with `magic`.
bool begins_with(const std::string& path, std::string_view magic);

// Checks that a path leads to a regular file or a folder.
// Errors  bad_argument: the path is empty or contains a NUL character. bad_file: it leads
// elsewhere.
Status check_path(const std::string& path);

}  // namespace bowline::import
