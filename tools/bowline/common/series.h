// A series of values per step that keeps a bounded number of points.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/plot.h"

namespace bowline::command {

// If there are too many points, it keeps the first, the last, and the smallest and largest of each
// group between them.
class Series {
 public:
  static constexpr size_t kMostPoints = 4096;

  // Adds a point. Drops earlier points of `step` and later steps.
  void add(uint64_t step, double value);
  // Drops the points after `step`.
  void go_back(uint64_t step);
  const std::vector<PlotPoint>& points() const { return points_; }

  // [[step, value], ...]; null for a value that is not finite.
  nlohmann::json json() const;
  // Reads the result of json(), up to `step`. Returns false if `json` is invalid.
  bool read(const nlohmann::json& json, uint64_t step);

 private:
  std::vector<PlotPoint> points_;
};

}  // namespace bowline::command
