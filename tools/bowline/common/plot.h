// Curves over a common axis, as a figure of a page: axes with round numbers, a legend, readings by
// pointer and by keyboard, and a table.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bowline::command {

// A y that is not finite is a gap.
struct PlotPoint {
  double x = 0;
  double y = 0;
};

enum class PlotStyle : uint8_t {
  line,
  faint,   // a line behind the others
  marked,  // a line with a mark at every point
  area,    // down to zero; between two points y is that of the first
};

struct PlotSeries {
  std::string name;
  PlotStyle style = PlotStyle::line;
  std::vector<PlotPoint> points;  // ascending in x
};

// A place of the x axis that has a name.
struct PlotMark {
  double x = 0;
  double y = 0;
  std::string text;
};

struct Plot {
  std::string id;  // of letters
  std::string title;
  std::string unit;    // of y; empty: none
  std::string x_name;  // "step"
  std::vector<PlotSeries> series;
  bool from_zero = false;  // the y axis
  bool binary = false;     // round numbers are those of bytes
  std::optional<PlotMark> peak = {};
  // (optional) A y that is a line over the whole width, with its name.
  std::optional<PlotMark> limit = {};
  // (optional) What is at an x besides its number, for readings and the table.
  std::function<std::string(double)> x_detail = {};
  std::function<std::string(double)> y_text;
  int height = 260;  // pixels
};

std::string plot_html(const Plot& plot);

// Round numbers from `least` to `largest` or beyond, at most about `count` of them.
struct Ticks {
  std::vector<double> values;
  double least = 0;
  double largest = 0;
};
Ticks round_ticks(double least, double largest, int count, bool binary = false);

// Parts of a sum as one bar with its legend.
struct BarPart {
  std::string name;
  double value = 0;
  std::string text;
};
std::string bar_html(const std::string& title, const std::vector<BarPart>& parts);

}  // namespace bowline::command
