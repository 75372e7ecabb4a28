// Figures of a page: curves over a common x axis, with a legend, a table, and readings by pointer
// and keyboard.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bowline::command {

// A non-finite y is a gap in the curve.
struct PlotPoint {
  double x = 0;
  double y = 0;
};

enum class PlotStyle : uint8_t {
  line,
  faint,   // a line behind the others
  marked,  // a line with a mark at every point
  area,    // filled down to zero; between two points y is the y of the first
};

struct PlotSeries {
  std::string name;
  PlotStyle style = PlotStyle::line;
  std::vector<PlotPoint> points;  // ascending in x
};

// A point with a label.
struct PlotMark {
  double x = 0;
  double y = 0;
  std::string text;
};

struct Plot {
  std::string id;  // letters only
  std::string title;
  std::string unit;    // of y; empty: none
  std::string x_name;  // "step"
  std::vector<PlotSeries> series;
  bool from_zero = false;  // the y axis starts at 0
  bool binary = false;     // ticks are round in KiB, MiB, ...
  std::optional<PlotMark> peak = {};
  // (optional) A horizontal line at this y, with a label.
  std::optional<PlotMark> limit = {};
  // (optional) Text about an x, for readings and the table.
  std::function<std::string(double)> x_detail = {};
  std::function<std::string(double)> y_text;
  int height = 260;  // pixels
};

std::string plot_html(const Plot& plot);

// A part of a stacked bar.
struct BarPart {
  std::string name;
  double value = 0;
  std::string text;
};
std::string bar_html(const std::string& title, const std::vector<BarPart>& parts);

}  // namespace bowline::command
