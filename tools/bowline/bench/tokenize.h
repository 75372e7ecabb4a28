// `bowline bench tokenize`: bytes of text per second.
#pragma once

#include <string>

#include "bowline.h"

namespace bowline::command {

struct BenchTokenizeOptions {
  std::string tokenizer;
  std::string text;
  std::string format = "text";
  int runs = 11;
};

// The exit code.
Result<int> bench_tokenize(const BenchTokenizeOptions& options);

}  // namespace bowline::command
