// What `bowline inspect --html` writes: the graphs, the parameters with their ties, the memory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// An entry point, or the training of one, planned on a device.
struct PlannedRun {
  std::string name;
  MemoryReport memory;
  PlanInfo plan;
  ModelInfo model;  // with the rows that a training adds
};

struct InspectedModel {
  nlohmann::json all;  // of describe_model()
  ModelInfo info;
  std::string device;
  std::vector<BoundDim> dims;
  std::vector<PlannedRun> runs;  // none: not all dims are bound
};

std::string inspect_page(const InspectedModel& model);

}  // namespace bowline::command
