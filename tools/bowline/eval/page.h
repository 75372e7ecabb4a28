// The page of `bowline eval --report`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/page.h"
#include "common/series.h"
#include "tasks/task.h"

namespace bowline::command {

struct Evaluated {
  std::string model;                                    // path
  std::string unit;                                     // of the losses
  std::vector<std::pair<std::string, uint64_t>> sizes;  // of the data
  Measure measure;
  Series losses;       // per batch, if the task runs the entry point "loss"
  Facts sources;       // files, hashes, the device
  std::string memory;  // HTML of memory_html()
};

std::string eval_page(const Evaluated& evaluated);

}  // namespace bowline::command
