// Finds mistyped arguments before CLI11 does, and suggests corrections.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace bowline::command {

// Returns a message about the first unknown verb or flag, with a suggestion. Empty: all are known.
std::string find_unknown(const CLI::App& app, const std::vector<std::string>& words);

// Turns an error message of CLI11 into a sentence, and adds a pointer to the --help of the verb.
std::string usage_message(const CLI::App& app, const std::string& what);

}  // namespace bowline::command
