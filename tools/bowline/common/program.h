// Code that the main() functions of bowline and bowline-conform share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "verb.h"

namespace bowline::command {

// Runs the program with the words of the command line and returns the exit code. An exception or a
// failed write to stdout is a failure.
int run_program(int argc, char** argv, int (*program)(std::vector<std::string> words));

// Parses the arguments and runs the verb. Returns the exit code.
int run_arguments(CLI::App& app, Context& context, std::vector<std::string> words);

// Replaces this process by the program `name` in the folder of this one. Returns only if it fails.
Status start_beside(const std::string& name, std::vector<std::string> words);

}  // namespace bowline::command
