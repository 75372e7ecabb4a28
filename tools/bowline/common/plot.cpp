// A chart is one SVG. Its height is in pixels and its width is the width of the page. Positions
// along the width are percentages, so that text has the same size on every screen. The curves are
// in an inner SVG that is stretched over the plot; their strokes are not stretched.
#include "common/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "common/html.h"
#include "common/report.h"
#include "common/strings.h"

namespace bowline::command {
namespace {

constexpr double kGrid = 10000;        // width and height of the inner SVG
constexpr size_t kMostStops = 48;      // positions where a reader can see the values
constexpr size_t kMostFocusable = 12;  // stops that the Tab key reaches
constexpr size_t kMostMarks = 60;      // of a series; a longer series marks only its last point
constexpr double kLogFrom = 200;       // largest / least, for a log axis
constexpr double kHeadroom = 1.3;      // the axis ends at this multiple of a peak, for its label
constexpr const char* kClassOf[] = {"", " faint", "", " area"};  // by PlotStyle

// Returns the smallest of 1, 2 and 5 times a power of 10 that is at least `width`.
double round_step(double width) {
  const double power = std::pow(10.0, std::floor(std::log10(width)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= width * (1 - 1e-9)) {
      return factor * power;
    }
  }
  return 10 * power;
}

// Returns for example "2e-4", "0.25" or "150k". `step` is the distance to the next tick, `largest`
// the largest value of the axis.
std::string tick_text(double value, double step, double largest) {
  if (value == 0) {
    return "0";
  }
  if (largest >= 1e15 || largest < 1e-2) {
    const double power = std::floor(std::log10(std::abs(value)) + 1e-9);
    const double mantissa = value / std::pow(10.0, power);
    return fmt::format("{:.3g}e{}", mantissa, static_cast<int>(power));
  }
  const auto [scale, unit] = largest >= 1e12  ? std::pair(1e12, "T")
                             : largest >= 1e9 ? std::pair(1e9, "G")
                             : largest >= 1e6 ? std::pair(1e6, "M")
                             : largest >= 1e4 ? std::pair(1e3, "k")
                                              : std::pair(1.0, "");
  const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(step / scale) + 1e-9)));
  return fmt::format("{:.{}f}{}", value / scale, digits, unit);
}

std::string bytes_tick(double value) {
  std::string text = value == 0 ? "0" : bytes_text(static_cast<uint64_t>(value));
  for (const std::string_view zeros : {".00 ", ".0 "}) {
    const size_t at = text.find(zeros);
    if (at != std::string::npos) {
      return text.erase(at, zeros.size() - 1);
    }
  }
  return text;
}

// The smallest and the largest of some values, without those that are not finite.
struct Range {
  double least = INFINITY;
  double largest = -INFINITY;

  void add(double value) {
    if (std::isfinite(value)) {
      least = std::min(least, value);
      largest = std::max(largest, value);
    }
  }
};

// Maps values to positions along an axis, from 0 to 1.
struct Axis {
  double least = 0;
  double largest = 1;
  bool log = false;
  std::vector<std::pair<double, std::string>> ticks = {};

  double place(double value) const {
    const auto at = [&](double v) { return log ? std::log10(v) : v; };
    const double t = (at(value) - at(least)) / (at(largest) - at(least));
    return std::clamp(t, 0.0, 1.0);
  }
};

// An axis with about `count` round ticks that cover the range. `binary`: round in KiB, MiB, ...
Axis linear_axis(double least, double largest, int count, bool binary) {
  if (!(largest > least)) {
    const double half = least == 0 ? 1 : std::abs(least) / 2;
    return linear_axis(least - half, least + half, count, false);
  }
  const double width = (largest - least) / count;
  double step = round_step(width);
  if (binary) {
    const double unit = std::pow(1024.0, std::max(0.0, std::floor(std::log2(largest) / 10)));
    step = largest / unit < 20 ? std::exp2(std::ceil(std::log2(width)))
                               : round_step(width / unit) * unit;
  }
  const double first = std::floor(least / step + 1e-9);
  const double last = std::ceil(largest / step - 1e-9);
  Axis axis{first * step, last * step};
  for (double i = first; i <= last; ++i) {
    const double v = i * step;
    axis.ticks.emplace_back(v, binary ? bytes_tick(v) : tick_text(v, step, axis.largest));
  }
  return axis;
}

Axis log_axis(double least, double largest) {
  Axis axis{std::pow(10.0, std::floor(std::log10(least) + 1e-9)),
            std::pow(10.0, std::ceil(std::log10(largest) - 1e-9)), true};
  const double decades = std::log10(axis.largest / axis.least);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int i = 0; i <= static_cast<int>(decades + 0.5); i += every) {
    const double v = axis.least * std::pow(10.0, i);
    axis.ticks.emplace_back(v, tick_text(v, v, v));
  }
  return axis;
}

// The points that get a mark.
std::span<const PlotPoint> marked_points(const PlotSeries& s) {
  const bool all = s.style == PlotStyle::marked && s.points.size() <= kMostMarks;
  return std::span(s.points).last(all ? s.points.size() : std::min<size_t>(1, s.points.size()));
}

// An entry of a legend.
std::string key_html(size_t color, std::string_view shape, const std::string& text) {
  return fmt::format("<li class='c{}'><span class='key{}'></span>{}</li>\n", color % 8, shape,
                     html_text(text));
}

class Chart {
 public:
  explicit Chart(const Plot& plot) : p_(plot) {
    Range x;
    Range y;
    for (const PlotSeries& s : p_.series) {
      for (const PlotPoint& point : s.points) {
        x.add(point.x);
        y.add(point.y);
      }
    }
    if (x.least > x.largest) {
      x = {0, 0};
    }
    const double margin = x.least == x.largest ? 1 : 0;
    x_ = linear_axis(x.least - margin, x.largest + margin, 8, false);
    x_.least = x.least - margin;
    x_.largest = x.largest + margin;
    y_ = y_axis(y);
    stops_ = stops();
  }

  std::string html() const {
    return fmt::format(
        "<figure id='{}'>\n{}<svg class='chart' height='{}' width='100%' role='group' "
        "aria-label='{}'>\n{}{}{}{}</svg>\n{}</figure>\n",
        p_.id, caption(), p_.height, html_text(summary()), grid(), curves(), marks(), readings(),
        table());
  }

 private:
  Axis y_axis(Range y) const {
    if (p_.limit) {
      y.largest = std::max(y.largest, p_.limit->y);
    }
    if (y.least > y.largest) {  // no value is finite
      y = {0, 1};
    }
    if (!p_.from_zero && !p_.binary && y.least > 0 && y.largest / y.least > kLogFrom) {
      return log_axis(y.least, y.largest);
    }
    const bool near_zero = y.least > 0 && y.least < 0.4 * y.largest;
    return linear_axis(p_.from_zero || near_zero ? std::min(0.0, y.least) : y.least,
                       p_.peak ? y.largest * kHeadroom : y.largest, std::max(3, p_.height / 44),
                       p_.binary);
  }

  // Chooses the positions of readings: all marks, the peak, the ends, and evenly spaced points of
  // the longest series.
  std::vector<double> stops() const {
    std::set<double> xs;
    std::span<const PlotPoint> longest;
    for (const PlotSeries& s : p_.series) {
      for (const PlotPoint& p : marked_points(s)) {
        xs.insert(p.x);
      }
      longest = s.points.size() > longest.size() ? std::span(s.points) : longest;
    }
    if (p_.peak) {
      xs.insert(p_.peak->x);
    }
    const size_t wanted = std::min(longest.size(), kMostStops);
    for (size_t i = 0; i < wanted; ++i) {
      xs.insert(longest[wanted == 1 ? 0 : i * (longest.size() - 1) / (wanted - 1)].x);
    }
    return {xs.begin(), xs.end()};
  }

  std::string x_text(double x) const {
    return fmt::format("{} {}", p_.x_name, grouped(static_cast<uint64_t>(x)));
  }

  // Return the horizontal and vertical position in percent.
  double across(double x) const { return 100 * x_.place(x); }
  double down(double y) const { return 100 * (1 - y_.place(y)); }

  static long on_grid(double percent) { return std::lround(percent * kGrid / 100); }

  std::string caption() const {
    const std::string unit =
        p_.unit + (y_.log ? (p_.unit.empty() ? "log scale" : ", log scale") : "");
    std::string legend;
    for (size_t i = 0; i < p_.series.size() && (p_.series.size() > 1 || p_.limit); ++i) {
      legend += key_html(i, " line", p_.series[i].name);
    }
    if (p_.limit) {
      legend += fmt::format("<li>dashed: {}</li>\n", html_text(p_.limit->text));
    }
    return fmt::format(
        "<figcaption><span><strong>{}</strong> <span class='unit'>{}</span></span>\n"
        "<ul class='legend'>{}</ul></figcaption>\n",
        html_text(p_.title), html_text(unit), legend);
  }

  // Returns a description of the chart for screen readers.
  std::string summary() const {
    std::string out = p_.title + (p_.unit.empty() ? "" : " in " + p_.unit) + ".";
    for (const PlotSeries& s : p_.series) {
      if (!s.points.empty()) {
        const PlotPoint& a = s.points.front();
        const PlotPoint& b = s.points.back();
        out += fmt::format(" {}: {} at {}, {} at {}.", s.name, p_.y_text(a.y), x_text(a.x),
                           p_.y_text(b.y), x_text(b.x));
      }
    }
    return out + " The numbers are in the table below.";
  }

  std::string grid() const {
    std::string out;
    for (const auto& [value, text] : y_.ticks) {
      out += fmt::format(
          "<line class='grid' x1='0' x2='100%' y1='{0:.2f}%' y2='{0:.2f}%'/>"
          "<text class='y' x='-8' y='{0:.2f}%' aria-hidden='true'>{1}</text>\n",
          down(value), text);
    }
    int number = 0;
    const auto label = [&](double x, std::string_view dy, std::string_view text) {
      out += fmt::format(
          "<text class='x{}' x='{:.2f}%' y='100%' dy='{}' aria-hidden='true'>{}</text>\n",
          number % 2 == 1 ? " wide" : "", x, dy, html_text(text));
    };
    for (const auto& [value, text] : x_.ticks) {
      if (value >= x_.least && value <= x_.largest && value == std::floor(value)) {
        label(across(value), "1.5em", text);
        ++number;
      }
    }
    number = 0;
    label(50, "2.9em", p_.x_name);
    return out + "<line class='axis' x1='0' x2='100%' y1='100%' y2='100%'/>\n";
  }

  std::string path(const PlotSeries& s) const {
    std::string out;
    char command = 'M';
    for (const PlotPoint& p : s.points) {
      const bool finite = std::isfinite(p.y);
      if (finite) {
        out += fmt::format("{}{} {}", command, on_grid(across(p.x)), on_grid(down(p.y)));
      }
      command = finite ? 'L' : 'M';
    }
    return out;
  }

  std::string area(const PlotSeries& s) const {
    std::string out = fmt::format("M0 {}", kGrid);
    for (const PlotPoint& p : s.points) {
      out += fmt::format("H{}V{}", on_grid(across(p.x)), on_grid(down(p.y)));
    }
    return out + fmt::format("H{0}V{0}Z", kGrid);
  }

  std::string curves() const {
    std::string out = fmt::format(
        "<svg width='100%' height='100%' viewBox='0 0 {0} {0}' preserveAspectRatio='none' "
        "aria-hidden='true'>\n",
        kGrid);
    for (size_t i = 0; i < p_.series.size(); ++i) {
      const PlotSeries& s = p_.series[i];
      out += fmt::format("<path class='c{}{}' d='{}'/>\n", i % 8,
                         kClassOf[static_cast<size_t>(s.style)],
                         s.style == PlotStyle::area ? area(s) : path(s));
    }
    return out + "</svg>\n";
  }

  std::string circle(std::string_view kind, size_t series, const PlotPoint& p) const {
    return !std::isfinite(p.y)
               ? ""
               : fmt::format("<circle class='{}c{}' cx='{:.2f}%' cy='{:.2f}%' r='4'/>\n", kind,
                             series % 8, across(p.x), down(p.y));
  }

  std::string marks() const {
    std::string out;
    for (size_t i = 0; i < p_.series.size(); ++i) {
      for (const PlotPoint& p : marked_points(p_.series[i])) {
        out += p_.series[i].style == PlotStyle::area ? "" : circle("", i, p);
      }
    }
    if (p_.limit) {
      out += fmt::format("<line class='limit' x1='0' x2='100%' y1='{0:.2f}%' y2='{0:.2f}%'/>\n",
                         down(p_.limit->y));
    }
    if (p_.peak) {
      const double top = p_.limit ? std::max(p_.limit->y, p_.peak->y) : p_.peak->y;
      const double x = across(p_.peak->x);
      out += circle("", 0, {p_.peak->x, p_.peak->y});
      out += fmt::format(
          "<text class='peak' x='{:.2f}%' y='{:.2f}%' dy='-.7em' text-anchor='{}' "
          "aria-hidden='true'>peak {}<tspan class='wide'> at {}</tspan></text>\n",
          x, down(top), anchor(x), html_text(p_.y_text(p_.peak->y)), html_text(p_.peak->text));
    }
    return out;
  }

  static const char* anchor(double across) {
    return across < 35 ? "start" : across > 65 ? "end" : "middle";
  }

  // Returns the values at x, each with the index of its series.
  std::vector<std::pair<size_t, double>> values_at(double x) const {
    std::vector<std::pair<size_t, double>> out;
    for (size_t i = 0; i < p_.series.size(); ++i) {
      const std::vector<PlotPoint>& points = p_.series[i].points;
      const auto at = std::ranges::lower_bound(points, x, {}, &PlotPoint::x);
      if (at != points.end() && at->x == x) {
        out.emplace_back(i, at->y);
      }
    }
    return out;
  }

  // The values at a stop, which the pointer and the keyboard show. The second line is about x.
  std::string reading(size_t stop, bool focusable) const {
    const double x = across(stops_[stop]);
    const double before = stop == 0 ? 0 : (x + across(stops_[stop - 1])) / 2;
    const double after = stop + 1 == stops_.size() ? 100 : (x + across(stops_[stop + 1])) / 2;
    std::vector<std::string> lines = {x_text(stops_[stop])};
    if (p_.x_detail) {
      lines.push_back(p_.x_detail(stops_[stop]));
    }
    std::string rings;
    for (const auto& [series, y] : values_at(stops_[stop])) {
      lines.push_back(p_.series[series].name + " " + p_.y_text(y));
      rings += circle("ring ", series, {stops_[stop], y});
    }
    std::string text;
    for (size_t i = 0; i < lines.size(); ++i) {
      text += fmt::format("<tspan{} x='{:.2f}%' dy='1.2em'>{}</tspan>",
                          i == 1 && p_.x_detail ? " class='wide'" : "", x, html_text(lines[i]));
    }
    return fmt::format(
        "<g class='stop' {0}><rect x='{1:.2f}%' width='{2:.2f}%' y='0' height='100%'/>"
        "<line x1='{3:.2f}%' x2='{3:.2f}%' y1='0' y2='100%'/>{4}"
        "<text class='reading' y='0' text-anchor='{5}'>{6}</text></g>\n",
        focusable ? fmt::format("tabindex='0' role='img' aria-label='{}'",
                                html_text(joined(lines, std::identity(), "; ")))
                  : "aria-hidden='true'",
        before, std::max(0.0, after - before), x, rings, anchor(x), text);
  }

  std::string readings() const {
    std::string out;
    const size_t every = std::max<size_t>(1, (stops_.size() + kMostFocusable - 1) / kMostFocusable);
    for (size_t i = 0; i < stops_.size(); ++i) {
      out += reading(
          i, i % every == 0 || i + 1 == stops_.size() || (p_.peak && p_.peak->x == stops_[i]));
    }
    return out;
  }

  std::string table() const {
    Table t{.caption = p_.title + (p_.unit.empty() ? "" : ", " + p_.unit), .head = {p_.x_name}};
    size_t points = 0;
    for (const PlotSeries& s : p_.series) {
      t.numbers.push_back(t.head.size());
      t.head.push_back(s.name);
      points = std::max(points, s.points.size());
    }
    for (const double x : stops_) {
      std::vector<std::string>& row = t.rows.emplace_back(t.head.size());
      row[0] = grouped(static_cast<uint64_t>(x)) + (p_.x_detail ? ", " + p_.x_detail(x) : "");
      for (const auto& [series, y] : values_at(x)) {
        row[series + 1] = p_.y_text(y);
      }
    }
    const std::string of = points > t.rows.size()
                               ? fmt::format("{} of {} points", t.rows.size(), grouped(points))
                               : "all points";
    return folded_html(fmt::format("Table of {}: {}", p_.title, of), table_html(t));
  }

  const Plot& p_;
  Axis x_;
  Axis y_;
  std::vector<double> stops_;
};

}  // namespace

std::string plot_html(const Plot& plot) { return Chart(plot).html(); }

std::string bar_html(const std::string& title, const std::vector<BarPart>& parts) {
  double sum = 0;
  for (const BarPart& part : parts) {
    sum += part.value;
  }
  std::string rects;
  std::string legend;
  double at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string text = parts[i].name + " " + parts[i].text;
    const double share = sum > 0 ? 100 * parts[i].value / sum : 0;
    rects += fmt::format(
        "<rect class='c{}' x='{:.3f}%' width='{:.3f}%' y='0' height='100%'>"
        "<title>{}</title></rect>\n",
        i % 8, at, share, html_text(text));
    legend += key_html(i, "", text);
    at += share;
  }
  return fmt::format(
      "<figure>\n<figcaption><strong>{0}</strong></figcaption>\n<svg class='bar' width='100%' "
      "height='28' role='img' aria-label='{0}'>\n{1}</svg>\n<ul class='legend'>{2}</ul>\n"
      "</figure>\n",
      html_text(title), rects, legend);
}

}  // namespace bowline::command
