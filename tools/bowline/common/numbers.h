// CLI11 validators for numbers on the command line. --help shows their range.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace bowline::command {

// Require least <= x <= most.
CLI::Validator whole_number(uint64_t least, uint64_t most);
CLI::Validator real_number(double least, double most);
// Requires least <= x < end.
CLI::Validator real_number_below(double least, double end);

// Converts "512MiB" or a plain number to bytes. For CLI::Option::transform().
CLI::Validator byte_count();

// Limit of step counts. No run reaches it, and sums of a few counts fit in 64 bits.
inline constexpr uint64_t kMostSteps = 1'000'000'000'000;

}  // namespace bowline::command
