// `bowline bench decode`: tokens per second, beside what the memory of the machine allows.
#pragma once

#include <cstdint>
#include <string>

#include "bowline.h"
#include "common/flags.h"

namespace bowline::command {

struct BenchDecodeOptions {
  std::string model;
  std::string device = "best";
  std::string format = "text";
  Changes changes;
  int64_t prompt = 32;
  int64_t tokens = 128;
  uint64_t memory_budget = 0;
  int threads = 0;
  bool no_floor = false;
};

// The exit code.
Result<int> bench_decode(const BenchDecodeOptions& options);

}  // namespace bowline::command
