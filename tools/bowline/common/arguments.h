// Mistyped arguments: finds them before CLI11 does, and says what was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace bowline::command {

// A sentence about the first verb or flag that `app` does not have, or empty.
std::string find_unknown(const CLI::App& app, const std::vector<std::string>& words);

// What CLI11 says, as a sentence that names the verb's --help.
std::string usage_message(const CLI::App& app, const std::string& what);

}  // namespace bowline::command
