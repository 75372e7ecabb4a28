// The page of `bowline inspect --html`: graphs, parameters with their ties, and memory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bowline.h"

namespace bowline::command {

// A planned entry point, for inference or training.
struct PlannedRun {
  std::string name;
  MemoryReport memory;
  PlanInfo plan;
  ModelInfo model;  // includes the storages that training adds
};

struct InspectedModel {
  nlohmann::json all;  // of describe_model()
  ModelInfo info;
  std::string device;
  std::vector<BoundDim> dims;
  std::vector<PlannedRun> runs;  // empty: not all dims are bound
};

std::string inspect_page(const InspectedModel& model);

}  // namespace bowline::command
