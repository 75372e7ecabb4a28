// SHA-256 of a file (FIPS 180-4), to be compared with one from a source that is trusted.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

Result<std::string> sha256_of_file(const std::string& path);

}  // namespace bowline::command
