// Which build of the command this is.
#pragma once

#include <string>

namespace bowline::command {

// "0.1.0 (format 1), commit 0123456789ab". Without the commit if the build was not made in a git
// checkout.
std::string build_text();

}  // namespace bowline::command
