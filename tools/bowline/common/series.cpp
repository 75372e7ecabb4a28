#include "common/series.h"

#include <algorithm>
#include <cmath>

namespace bowline::command {
namespace {

constexpr size_t kStretch = 4;

// Keeps the least and the largest point of each stretch, in their order. A stretch with a
// non-finite point keeps only this point, because it is a gap in the curve.
std::vector<PlotPoint> thinned(const std::vector<PlotPoint>& points) {
  std::vector<PlotPoint> out = {points.front()};
  for (size_t begin = 1; begin + 1 < points.size(); begin += kStretch) {
    const auto first = points.begin() + static_cast<ptrdiff_t>(begin);
    const auto end =
        points.begin() + static_cast<ptrdiff_t>(std::min(begin + kStretch, points.size() - 1));
    const auto gap =
        std::find_if(first, end, [](const PlotPoint& p) { return !std::isfinite(p.y); });
    const auto [least, largest] = std::minmax_element(
        first, end, [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
    auto a = gap != end ? gap : std::min(least, largest);
    auto b = gap != end ? gap : std::max(least, largest);
    out.push_back(*a);
    if (b != a) {
      out.push_back(*b);
    }
  }
  out.push_back(points.back());
  return out;
}

}  // namespace

void Series::add(uint64_t step, double value) {
  while (!points_.empty() && points_.back().x >= static_cast<double>(step)) {
    points_.pop_back();
  }
  if (points_.size() >= kMostPoints) {
    points_ = thinned(points_);
  }
  points_.push_back({static_cast<double>(step), value});
}

void Series::go_back(uint64_t step) {
  while (!points_.empty() && points_.back().x > static_cast<double>(step)) {
    points_.pop_back();
  }
}

nlohmann::json Series::json() const {
  nlohmann::json out = nlohmann::json::array();
  for (const PlotPoint& p : points_) {
    out.push_back({static_cast<uint64_t>(p.x), p.y});
  }
  return out;
}

bool Series::read(const nlohmann::json& json, uint64_t step) {
  if (!json.is_array()) {
    return false;
  }
  std::vector<PlotPoint> points;
  for (const nlohmann::json& pair : json) {
    const bool whole = pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() &&
                       (pair[1].is_number() || pair[1].is_null());
    if (!whole || points.size() >= kMostPoints) {
      return false;
    }
    points.push_back({pair[0].get<double>(), pair[1].is_null() ? NAN : pair[1].get<double>()});
    if (points.size() > 1 && points.back().x <= points[points.size() - 2].x) {
      return false;
    }
  }
  points_ = std::move(points);
  go_back(step);
  return true;
}

}  // namespace bowline::command
