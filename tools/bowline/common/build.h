// Which build of the command this is.
#pragma once

#include <string>

namespace bowline::command {

// "0.1.0 (format 1), commit 0123456789ab"; without a commit where the tree was no checkout.
std::string build_text();

}  // namespace bowline::command
