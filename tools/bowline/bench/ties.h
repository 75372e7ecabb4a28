// `bowline bench ties`: what shared weights cost, beside the same work without them.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

struct BenchTiesOptions {
  std::string device = "cpu";
  std::string format = "text";
  int repeats = 16;
  int runs = 41;
  int ties = 1000;
};

// The exit code.
Result<int> bench_ties(const BenchTiesOptions& options);

}  // namespace bowline::command
