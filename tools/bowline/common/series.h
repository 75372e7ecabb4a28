// A long series of numbers, of which a bounded number of points is kept.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/plot.h"

namespace bowline::command {

// Every point that is kept is one that was added: the first, the last, and of each stretch between
// them the least and the largest.
class Series {
 public:
  static constexpr size_t kMostPoints = 4096;

  // Of `step` and later ones nothing else stays.
  void add(uint64_t step, double value);
  // Drops what is after `step`.
  void go_back(uint64_t step);
  const std::vector<PlotPoint>& points() const { return points_; }

  // [[step, value], ...]; null for a value that is not finite.
  nlohmann::json json() const;
  // What json() gave, up to `step`. False: it is none.
  bool read(const nlohmann::json& json, uint64_t step);

 private:
  std::vector<PlotPoint> points_;
};

}  // namespace bowline::command
