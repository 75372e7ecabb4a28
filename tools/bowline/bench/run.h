// `bowline bench run`: time and memory of a run of an entry point.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bowline.h"
#include "common/flags.h"

namespace bowline::command {

struct BenchRunOptions {
  std::string model;
  std::string entry;
  std::string device = "best";
  std::string format = "text";
  std::string compute = "f32";
  std::vector<std::string> inputs;
  Changes changes;
  DimFlags dims;
  uint64_t memory_budget = 0;
  int runs = 50;
  int threads = 0;
};

// The exit code.
Result<int> bench_run(const BenchRunOptions& options);

}  // namespace bowline::command
