// A chart is one SVG. Its height is in pixels and its width is the width of the page. Positions
// along the width are percentages, so that text has the same size on every screen. The curves are
// in an inner SVG that is stretched over the plot; their strokes are not stretched.
#include "common/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "common/html.h"
#include "common/page.h"
#include "common/report.h"

namespace bowline::command {
namespace {

constexpr double kGrid = 10000;        // width and height of the inner SVG
constexpr size_t kMostStops = 48;      // positions where a reader can see the values
constexpr size_t kMostFocusable = 12;  // stops that the Tab key reaches
constexpr size_t kMostMarks = 60;      // of a series; a longer series marks only its last point
constexpr double kLogFrom = 200;       // largest / least, for a log axis
constexpr double kHeadroom = 1.3;      // the axis ends at this multiple of a peak, for its label

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
  const auto fixed = [&](double scale, const char* unit) {
    const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(step / scale) + 1e-9)));
    return fmt::format("{:.{}f}{}", value / scale, digits, unit);
  };
  if (largest >= 1e15 || largest < 1e-2) {
    const double power = std::floor(std::log10(std::abs(value)) + 1e-9);
    const double mantissa = value / std::pow(10.0, power);
    return fmt::format("{:.3g}e{}", mantissa, static_cast<int>(power));
  }
  return largest >= 1e12  ? fixed(1e12, "T")
         : largest >= 1e9 ? fixed(1e9, "G")
         : largest >= 1e6 ? fixed(1e6, "M")
         : largest >= 1e4 ? fixed(1e3, "k")
                          : fixed(1, "");
}

std::string bytes_tick(double value) {
  std::string text = value == 0 ? "0" : bytes_text(static_cast<uint64_t>(value));
  const size_t zero = text.find(".0 ");
  const size_t zeros = text.find(".00 ");
  return zeros != std::string::npos  ? text.erase(zeros, 3)
         : zero != std::string::npos ? text.erase(zero, 2)
                                     : text;
}

// Maps values to positions along an axis, from 0 to 1.
struct Axis {
  double least = 0;
  double largest = 1;
  bool log = false;
  std::vector<std::pair<double, std::string>> ticks;

  double place(double value) const {
    const auto at = [&](double v) { return log ? std::log10(v) : v; };
    const double t = (at(value) - at(least)) / (at(largest) - at(least));
    return std::clamp(t, 0.0, 1.0);
  }
};

Axis linear_axis(double least, double largest, int count, bool binary) {
  const Ticks ticks = round_ticks(least, largest, count, binary);
  Axis axis{ticks.least, ticks.largest, false, {}};
  const double step = ticks.values.size() > 1 ? ticks.values[1] - ticks.values[0] : 1;
  for (const double v : ticks.values) {
    axis.ticks.emplace_back(v, binary ? bytes_tick(v) : tick_text(v, step, ticks.largest));
  }
  return axis;
}

Axis log_axis(double least, double largest) {
  Axis axis{std::pow(10.0, std::floor(std::log10(least) + 1e-9)),
            std::pow(10.0, std::ceil(std::log10(largest) - 1e-9)),
            true,
            {}};
  const double decades = std::log10(axis.largest / axis.least);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int i = 0; i <= static_cast<int>(decades + 0.5); i += every) {
    const double v = axis.least * std::pow(10.0, i);
    axis.ticks.emplace_back(v, tick_text(v, v, v));
  }
  return axis;
}

class Chart {
 public:
  explicit Chart(const Plot& plot) : p_(plot) {
    double x0 = INFINITY;
    double x1 = -INFINITY;
    double y0 = INFINITY;
    double y1 = -INFINITY;
    for (const PlotSeries& s : p_.series) {
      for (const PlotPoint& point : s.points) {
        x0 = std::min(x0, point.x);
        x1 = std::max(x1, point.x);
        if (std::isfinite(point.y)) {
          y0 = std::min(y0, point.y);
          y1 = std::max(y1, point.y);
        }
      }
    }
    if (x0 > x1) {
      x0 = x1 = 0;
    }
    x_.least = x0 == x1 ? x0 - 1 : x0;
    x_.largest = x0 == x1 ? x1 + 1 : x1;
    set_y_axis(y0, y1);
  }

  bool log() const { return y_.log; }

  std::string html() {
    choose_stops();
    std::string out = fmt::format("<figure id=\"{}\">\n", p_.id) + caption();
    out += fmt::format(
        "<svg class=\"chart\" height=\"{}\" width=\"100%\" role=\"group\" aria-label=\"{}\">\n",
        p_.height, html_text(summary()));
    out += grid() + curves() + marks() + stops();
    return out + "</svg>\n" + table() + "</figure>\n";
  }

 private:
  void set_y_axis(double y0, double y1) {
    if (p_.limit) {
      y1 = std::max(y1, p_.limit->y);
    }
    if (y0 > y1) {  // no value is finite
      y0 = 0;
      y1 = 1;
    }
    if (!p_.from_zero && !p_.binary && y0 > 0 && y1 / y0 > kLogFrom) {
      y_ = log_axis(y0, y1);
      return;
    }
    const bool near_zero = y0 > 0 && y0 < 0.4 * y1;
    y0 = p_.from_zero || near_zero ? std::min(0.0, y0) : y0;
    y_ = linear_axis(y0, p_.peak ? y1 * kHeadroom : y1, std::max(3, p_.height / 44), p_.binary);
  }

  std::string x_text(double x) const {
    return fmt::format("{} {}", p_.x_name, grouped(static_cast<uint64_t>(x)));
  }
  std::string detail(double x) const { return p_.x_detail ? ", " + p_.x_detail(x) : ""; }

  // Return the horizontal and vertical position in percent.
  double across(double x) const { return 100 * (x - x_.least) / (x_.largest - x_.least); }
  double down(double y) const { return 100 * (1 - y_.place(y)); }

  std::string caption() const {
    std::string out = fmt::format("<figcaption><span><strong>{}</strong>", html_text(p_.title));
    if (!p_.unit.empty() || log()) {
      out += fmt::format(" <span class=\"unit\">{}{}{}</span>", html_text(p_.unit),
                         !p_.unit.empty() && log() ? ", " : "", log() ? "log scale" : "");
    }
    out += "</span>\n";
    if (p_.series.size() > 1 || p_.limit) {
      out += "<ul class=\"legend\">";
      for (size_t i = 0; i < p_.series.size(); ++i) {
        out += fmt::format("<li class=\"c{}\"><span class=\"key line\"></span>{}</li>", i % 8,
                           html_text(p_.series[i].name));
      }
      if (p_.limit) {
        out += fmt::format("<li>dashed: {}</li>", html_text(p_.limit->text));
      }
      out += "</ul>";
    }
    return out + "</figcaption>\n";
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
      const double y = down(value);
      out += fmt::format(
          "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0:.2f}%\" y2=\"{0:.2f}%\"/>"
          "<text class=\"y\" x=\"-8\" y=\"{0:.2f}%\" aria-hidden=\"true\">{1}</text>\n",
          y, text);
    }
    const Axis ticks = linear_axis(x_.least, x_.largest, 8, false);
    int number = 0;
    for (const auto& [value, text] : ticks.ticks) {
      const double x = across(value);
      if (x < -1e-6 || x > 100 + 1e-6 || value != std::floor(value)) {
        continue;
      }
      out += fmt::format(
          "<g{0}><line class=\"axis\" x1=\"{1:.2f}%\" x2=\"{1:.2f}%\" y1=\"100%\" y2=\"100%\" "
          "style=\"transform:translateY(0)\"/><text class=\"x\" x=\"{1:.2f}%\" y=\"100%\" "
          "dy=\"1.5em\" "
          "aria-hidden=\"true\">{2}</text></g>\n",
          number % 2 == 1 ? " class=\"wide\"" : "", x, text);
      ++number;
    }
    out += "<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>";
    return out + fmt::format(
                     "<text class=\"x\" x=\"50%\" y=\"100%\" dy=\"2.9em\" "
                     "aria-hidden=\"true\">{}</text>\n",
                     html_text(p_.x_name));
  }

  std::string path(const PlotSeries& s) const {
    std::string out;
    const auto place = [&](const PlotPoint& p) {
      return std::pair(std::lround(across(p.x) * kGrid / 100),
                       std::lround(down(p.y) * kGrid / 100));
    };
    std::pair<long, long> last{-1, -1};
    bool open = false;
    for (size_t i = 0; i < s.points.size(); ++i) {
      const PlotPoint& p = s.points[i];
      if (!std::isfinite(p.y)) {
        open = false;
        continue;
      }
      const auto [x, y] = place(p);
      const bool alone = !open && (i + 1 == s.points.size() || !std::isfinite(s.points[i + 1].y));
      if (!open) {
        out += fmt::format("M{} {}{}", x, y, alone ? "h1" : "");
      } else if (std::pair(x, y) != last) {
        out += fmt::format("L{} {}", x, y);
      }
      last = {x, y};
      open = true;
    }
    return out;
  }

  std::string area(const PlotSeries& s) const {
    std::string out = fmt::format("M0 {}", kGrid);
    for (const PlotPoint& p : s.points) {
      out += fmt::format("H{}V{}", std::lround(across(p.x) * kGrid / 100),
                         std::lround(down(p.y) * kGrid / 100));
    }
    return out + fmt::format("H{0}V{0}Z", kGrid);
  }

  std::string curves() const {
    std::string out = fmt::format(
        "<svg width=\"100%\" height=\"100%\" viewBox=\"0 0 {0} {0}\" preserveAspectRatio=\"none\" "
        "aria-hidden=\"true\">\n",
        kGrid);
    for (size_t i = 0; i < p_.series.size(); ++i) {
      const PlotSeries& s = p_.series[i];
      const bool filled = s.style == PlotStyle::area;
      out += fmt::format("<path class=\"c{}{}\" d=\"{}\"/>\n", i % 8,
                         filled                        ? " area"
                         : s.style == PlotStyle::faint ? " faint"
                                                       : "",
                         filled ? area(s) : path(s));
    }
    return out + "</svg>\n";
  }

  std::string marks() const {
    std::string out;
    for (size_t i = 0; i < p_.series.size(); ++i) {
      const PlotSeries& s = p_.series[i];
      if (s.style == PlotStyle::area || s.points.empty()) {
        continue;
      }
      const bool all = s.style == PlotStyle::marked && s.points.size() <= kMostMarks;
      for (const PlotPoint& p : all ? std::span(s.points) : std::span(s.points).last(1)) {
        if (std::isfinite(p.y)) {
          out += fmt::format("<circle class=\"c{}\" cx=\"{:.2f}%\" cy=\"{:.2f}%\" r=\"3.5\"/>\n",
                             i % 8, across(p.x), down(p.y));
        }
      }
    }
    if (p_.limit) {
      out += fmt::format(
          "<line class=\"limit\" x1=\"0\" x2=\"100%\" y1=\"{0:.2f}%\" y2=\"{0:.2f}%\"/>\n",
          down(p_.limit->y));
    }
    if (p_.peak) {
      const double top = p_.limit ? std::max(p_.limit->y, p_.peak->y) : p_.peak->y;
      const double x = across(p_.peak->x);
      out += fmt::format(
          "<circle class=\"c0\" cx=\"{0:.2f}%\" cy=\"{1:.2f}%\" r=\"4\"/>"
          "<text class=\"peak\" x=\"{0:.2f}%\" y=\"{2:.2f}%\" dy=\"-.7em\" text-anchor=\"{3}\" "
          "aria-hidden=\"true\">peak {4}<tspan class=\"wide\"> at {5}</tspan></text>\n",
          x, down(p_.peak->y), down(top), anchor(x), html_text(p_.y_text(p_.peak->y)),
          html_text(p_.peak->text));
    }
    return out;
  }

  static const char* anchor(double across) {
    return across < 35 ? "start" : across > 65 ? "end" : "middle";
  }

  // Chooses the stops: all marks, the peak, the ends, and evenly spaced points of the longest
  // series.
  void choose_stops() {
    std::set<double> xs;
    const PlotSeries* longest = nullptr;
    for (const PlotSeries& s : p_.series) {
      if (s.style == PlotStyle::marked && s.points.size() <= kMostMarks) {
        for (const PlotPoint& p : s.points) {
          xs.insert(p.x);
        }
      }
      if (!s.points.empty()) {
        xs.insert(s.points.back().x);
        longest = longest == nullptr || s.points.size() > longest->points.size() ? &s : longest;
      }
    }
    if (p_.peak) {
      xs.insert(p_.peak->x);
    }
    const size_t count = longest == nullptr ? 0 : longest->points.size();
    const size_t wanted = std::min(count, kMostStops);
    for (size_t i = 0; i < wanted; ++i) {
      xs.insert(longest->points[wanted == 1 ? 0 : i * (count - 1) / (wanted - 1)].x);
    }
    stops_.assign(xs.begin(), xs.end());
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

  std::string reading(double x) const {
    std::string out = x_text(x) + detail(x);
    for (const auto& [series, y] : values_at(x)) {
      out += fmt::format("; {} {}", p_.series[series].name, p_.y_text(y));
    }
    return out;
  }

  std::string stops() const {
    std::string out;
    const size_t every = std::max<size_t>(1, (stops_.size() + kMostFocusable - 1) / kMostFocusable);
    for (size_t i = 0; i < stops_.size(); ++i) {
      const double x = across(stops_[i]);
      const double before = i == 0 ? 0 : (x + across(stops_[i - 1])) / 2;
      const double after = i + 1 == stops_.size() ? 100 : (x + across(stops_[i + 1])) / 2;
      const bool focusable =
          i % every == 0 || i + 1 == stops_.size() || (p_.peak && p_.peak->x == stops_[i]);
      out += fmt::format("<g class=\"stop\"{}>",
                         focusable ? fmt::format(" tabindex=\"0\" role=\"img\" aria-label=\"{}\"",
                                                 html_text(reading(stops_[i])))
                                   : " aria-hidden=\"true\"");
      out += fmt::format(
          "<rect x=\"{0:.2f}%\" width=\"{1:.2f}%\" y=\"0\" height=\"100%\"/>"
          "<line x1=\"{2:.2f}%\" x2=\"{2:.2f}%\" y1=\"0\" y2=\"100%\"/>",
          before, std::max(0.0, after - before), x);
      std::string lines =
          fmt::format("<tspan x=\"{:.2f}%\">{}<tspan class=\"wide\">{}</tspan></tspan>", x,
                      html_text(x_text(stops_[i])), html_text(detail(stops_[i])));
      for (const auto& [series, y] : values_at(stops_[i])) {
        if (std::isfinite(y)) {
          out += fmt::format("<circle class=\"ring c{}\" cx=\"{:.2f}%\" cy=\"{:.2f}%\" r=\"4\"/>",
                             series % 8, x, down(y));
        }
        const std::string& name = p_.series[series].name;
        lines +=
            fmt::format("<tspan x=\"{:.2f}%\" dy=\"1.3em\">{}{}</tspan>", x,
                        p_.series.size() > 1 ? html_text(name) + " " : "", html_text(p_.y_text(y)));
      }
      out += fmt::format(
          "<text class=\"reading\" x=\"{0:.2f}%\" y=\"0\" dy=\"1em\" "
          "text-anchor=\"{1}\">{2}</text></g>\n",
          x, anchor(x), lines);
    }
    return out;
  }

  std::string table() const {
    Table t;
    t.caption = p_.title + (p_.unit.empty() ? "" : ", " + p_.unit);
    t.head.push_back(p_.x_name);
    for (size_t i = 0; i < p_.series.size(); ++i) {
      t.head.push_back(p_.series[i].name);
      t.numbers.push_back(i + 1);
    }
    size_t points = 0;
    for (const PlotSeries& s : p_.series) {
      points = std::max(points, s.points.size());
    }
    for (const double x : stops_) {
      std::vector<std::string> row(p_.series.size() + 1);
      row[0] = grouped(static_cast<uint64_t>(x)) + detail(x);
      for (const auto& [series, y] : values_at(x)) {
        row[series + 1] = p_.y_text(y);
      }
      t.rows.push_back(std::move(row));
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

Ticks round_ticks(double least, double largest, int count, bool binary) {
  if (!(largest > least)) {
    const double half = least == 0 ? 1 : std::abs(least) / 2;
    return round_ticks(least - half, least + half, count, false);
  }
  const double width = (largest - least) / count;
  double step = 0;
  if (binary) {
    const double unit = std::pow(1024.0, std::max(0.0, std::floor(std::log2(largest) / 10)));
    step = largest / unit < 20 ? std::exp2(std::ceil(std::log2(width)))
                               : round_step(width / unit) * unit;
  } else {
    step = round_step(width);
  }
  Ticks ticks;
  const double first = std::floor(least / step + 1e-9);
  const double last = std::ceil(largest / step - 1e-9);
  ticks.least = first * step;
  ticks.largest = last * step;
  for (double i = first; i <= last; ++i) {
    ticks.values.push_back(i * step);
  }
  return ticks;
}

std::string plot_html(const Plot& plot) { return Chart(plot).html(); }

std::string bar_html(const std::string& title, const std::vector<BarPart>& parts) {
  double sum = 0;
  for (const BarPart& part : parts) {
    sum += part.value;
  }
  std::string label = title + ":";
  std::string rects;
  std::string legend = "<ul class=\"legend\">";
  double at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double share = sum > 0 ? 100 * parts[i].value / sum : 0;
    rects += fmt::format(
        "<rect class=\"c{}\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"0\" height=\"100%\"><title>{} "
        "{}</title></rect>\n",
        i % 8, at, share, html_text(parts[i].name), html_text(parts[i].text));
    legend += fmt::format("<li class=\"c{}\"><span class=\"key\"></span>{} {}</li>\n", i % 8,
                          html_text(parts[i].name), html_text(parts[i].text));
    label += fmt::format(" {} {};", parts[i].name, parts[i].text);
    at += share;
  }
  label.back() = '.';
  return fmt::format(
      "<figure>\n<figcaption><strong>{}</strong></figcaption>\n<svg class=\"bar\" width=\"100%\" "
      "height=\"28\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n{}</ul>\n</figure>\n",
      html_text(title), html_text(label), rects, legend);
}

}  // namespace bowline::command
