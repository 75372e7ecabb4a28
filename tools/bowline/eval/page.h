// The page of `bowline eval --report`.
#pragma once

#include <string>
#include <vector>

#include "common/page.h"
#include "common/series.h"

namespace bowline::command {

struct EvaluatedText {
  std::string model;  // its path
  uint64_t bytes = 0;
  double bits_per_byte = 0;
  double perplexity = 0;
  Series losses;       // of each batch, bits per byte
  Facts sources;       // files, hashes, the device, flags
  std::string memory;  // HTML of memory_html()
};

std::string eval_page(const EvaluatedText& text);

}  // namespace bowline::command
