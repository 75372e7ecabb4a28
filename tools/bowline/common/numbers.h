// Numbers on the command line: a whole word, finite, and inside a range that --help shows.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace bowline::command {

// Checks of CLI11: least <= x <= most.
CLI::Validator whole_number(uint64_t least, uint64_t most);
CLI::Validator real_number(double least, double most);
// least <= x < end.
CLI::Validator real_number_below(double least, double end);

// Turns "512MiB", or a plain number of bytes, into that number: for CLI::Option::transform().
CLI::Validator byte_count();

// Far above what a run can reach; sums and products of a few such counts fit in 64 bits.
inline constexpr uint64_t kMostSteps = 1'000'000'000'000;

}  // namespace bowline::command
