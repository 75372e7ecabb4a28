// SHA-256 of a file (FIPS 180-4), so that users can compare it with a trusted value.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

Result<std::string> sha256_of_file(const std::string& path);

}  // namespace bowline::command
