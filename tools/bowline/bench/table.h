// `bowline bench table`: how what works on the table of storages grows with it.
#pragma once

#include <cstdint>
#include <string>

#include "bowline.h"

namespace bowline::command {

struct BenchTableOptions {
  std::string device = "cpu";
  std::string format = "text";
  int parameters = 100'000;
};

// The exit code.
Result<int> bench_table(const BenchTableOptions& options);

}  // namespace bowline::command
