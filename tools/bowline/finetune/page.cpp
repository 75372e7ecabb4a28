#include "finetune/page.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "base/status.h"
#include "common/html.h"
#include "common/plot.h"
#include "common/report.h"

namespace bowline::command {
namespace {

using nlohmann::json;

constexpr int kRefreshSeconds = 5;
// Writes take at most about 1/100 of the time: the pause after a write is at least this many times
// as long as the write.
constexpr double kShare = 100;
constexpr size_t kSmoothFrom = 200;  // shorter curves are not smoothed
constexpr size_t kSmoothShare = 40;  // each mean covers 1/40 of the points
constexpr const char* kKind = "bowline finetune report 1";

std::string value_text(double value) {
  return std::isnan(value)       ? "nan"
         : std::abs(value) < 1e4 ? fmt::format("{:.4f}", value)
                                 : fmt::format("{:.4g}", value);
}

// Replaces each value by the mean of the finite values around it.
std::vector<PlotPoint> smoothed(const std::vector<PlotPoint>& points) {
  const size_t radius = points.size() / kSmoothShare / 2;
  std::vector<PlotPoint> out;
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t end = std::min(i + radius + 1, points.size());
    double sum = 0;
    double count = 0;
    for (size_t k = i - std::min(i, radius); k < end; ++k) {
      sum += std::isfinite(points[k].y) ? points[k].y : 0;
      count += std::isfinite(points[k].y) ? 1 : 0;
    }
    out.push_back({points[i].x, count == 0 ? NAN : sum / count});
  }
  return out;
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

}  // namespace

Result<RunPage> RunPage::open(const Place& place) {
  RunPage page;
  page.path_ = place.path;
  page.run_ = place.run;
  std::error_code error;
  const bool there = std::filesystem::exists(std::filesystem::symlink_status(place.path, error));
  bool ours = false;
  if (there && place.resumed) {
    ours = page.read(place).ok();
  }
  BOWLINE_TRY(check_page("--report", place.path, place.force || ours));
  return page;
}

// Reads the data that an earlier part of the run wrote.
Status RunPage::read(const Place& place) {
  BOWLINE_TRY_ASSIGN(const json data, read_page_data(place.path));
  const json none;
  const auto of = [&](const json& object, const char* key) -> const json& {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? none : *found;
  };
  BOWLINE_REQUIRE(of(data, "page") == kKind && of(data, "run") == run_,
                  "Page \"{}\" belongs to another run.", place.path);
  const json& all = of(data, "series");
  const bool whole = loss_.read(of(all, "loss"), place.step) &&
                     held_out_.read(of(all, "held_out"), place.step) &&
                     grad_norm_.read(of(all, "gradient_norm"), place.step) &&
                     learning_rate_.read(of(all, "learning_rate"), place.step) &&
                     tokens_per_second_.read(of(all, "tokens_per_second"), place.step);
  BOWLINE_REQUIRE(whole, "The data of page \"{}\" is damaged.", place.path);
  return {};
}

void RunPage::add_step(const StepReport& report, double loss, double tokens_per_second) {
  if (!on()) {
    return;
  }
  loss_.add(report.step, loss);
  grad_norm_.add(report.step, static_cast<double>(report.grad_norm));
  learning_rate_.add(report.step, static_cast<double>(report.learning_rate));
  tokens_per_second_.add(report.step, tokens_per_second);
  skipped_ = report.nonfinite_steps;
}

void RunPage::add_held_out(uint64_t step, double loss) {
  if (on()) {
    held_out_.add(step, loss);
  }
}

void RunPage::go_back(uint64_t step) {
  for (Series* s : {&loss_, &held_out_, &grad_norm_, &learning_rate_, &tokens_per_second_}) {
    s->go_back(step);
  }
}

Status RunPage::write_if_due(const Now& now) {
  return on() && Clock::now() >= due_ ? write(now) : Status();
}

Status RunPage::write(const Now& now) {
  const Clock::time_point begin = Clock::now();
  const Status status = write_text(path_, html(now));
  const double pause =
      std::max(static_cast<double>(kRefreshSeconds), kShare * seconds_since(begin));
  due_ = Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(pause));
  return status;
}

Status RunPage::end(const std::string& state, const std::string& sentence, const Now& now) {
  state_ = state;
  sentence_ = sentence;
  return on() ? write(now) : Status();
}

uint64_t RunPage::step() const {
  const uint64_t trained =
      loss_.points().empty() ? 0 : static_cast<uint64_t>(loss_.points().back().x);
  return std::max(
      trained, held_out_.points().empty() ? 0 : static_cast<uint64_t>(held_out_.points().back().x));
}

json RunPage::series() const {
  return {{"loss", loss_.json()},
          {"held_out", held_out_.json()},
          {"gradient_norm", grad_norm_.json()},
          {"learning_rate", learning_rate_.json()},
          {"tokens_per_second", tokens_per_second_.json()}};
}

Facts RunPage::headline(const Now& now) const {
  Facts facts = {{"Step", fmt::format("{} of {}", grouped(step()), grouped(d_.steps))}};
  if (!loss_.points().empty()) {
    facts.emplace_back("Training loss", value_text(loss_.points().back().y));
  }
  const std::vector<PlotPoint>& held = held_out_.points();
  if (!held.empty()) {
    facts.emplace_back("Held-out loss", held.size() == 1
                                            ? value_text(held[0].y)
                                            : fmt::format("{} \u2192 {}", value_text(held[0].y),
                                                          value_text(held.back().y)));
    const auto best = std::ranges::min_element(
        held, {}, [](const PlotPoint& p) { return std::isfinite(p.y) ? p.y : INFINITY; });
    facts.emplace_back("Best held-out", fmt::format("{} at step {}", value_text(best->y),
                                                    grouped(static_cast<uint64_t>(best->x))));
  }
  if (now.tokens_per_second > 0) {
    facts.emplace_back("Tokens per second",
                       grouped(static_cast<uint64_t>(now.tokens_per_second + 0.5)));
  }
  facts.emplace_back("Memory at most", bytes_text(now.counted_bytes));
  if (skipped_ > 0) {
    facts.emplace_back("Steps not finite", grouped(skipped_));
  }
  if (state_ == "running" && now.seconds_left > 0) {
    facts.emplace_back("Time left", seconds_text(now.seconds_left));
  }
  return facts;
}

std::string RunPage::html(const Now& now) const {
  Page page(fmt::format("Fine-tuning {}", file_name(d_.model)),
            "Training and held-out loss, speed and memory of one run of bowline finetune.");
  const bool running = state_ == "running";
  page.set_state(state_, running
                             ? fmt::format("This page reloads itself every {} seconds. It was last "
                                           "written {}.",
                                           kRefreshSeconds, now_text())
                             : sentence_);
  if (running) {
    page.set_refresh(kRefreshSeconds);
  }
  page.set_headline(headline(now));

  const bool smooth = loss_.points().size() >= kSmoothFrom;
  Plot loss{.id = "losses",
            .title = "Loss",
            .unit = d_.unit,
            .x_name = "step",
            .series = {{smooth ? "training, each step" : "training",
                        smooth ? PlotStyle::faint : PlotStyle::line, loss_.points()},
                       {"held-out", PlotStyle::marked, held_out_.points()}},
            .y_text = value_text,
            .height = 300};
  if (smooth) {
    loss.series.push_back({"training, smoothed", PlotStyle::line, smoothed(loss_.points())});
  }
  page.add("loss", "Loss", plot_html(loss));
  const auto small_plot = [](const char* id, const char* title, const char* unit, bool from_zero,
                             const char* format, const Series& series) {
    return plot_html({.id = id,
                      .title = title,
                      .unit = unit,
                      .x_name = "step",
                      .series = {{title, PlotStyle::line, series.points()}},
                      .from_zero = from_zero,
                      .y_text = [=](double y) { return fmt::format(fmt::runtime(format), y); },
                      .height = 180});
  };
  page.add(
      "course", "Course of the training",
      "<div class='pair'>\n" +
          small_plot("rates", "Learning rate", "", true, "{:.4g}", learning_rate_) +
          small_plot("norms", "Gradient norm", "before clipping", false, "{:.4g}", grad_norm_) +
          small_plot("speeds", "Tokens per second", "of each step", true, "{:.0f}",
                     tokens_per_second_) +
          "</div>\n");

  if (measure_.confusion) {
    page.add("confusion", "Confusion matrix", confusion_html(*measure_.confusion));
  }
  if (!measure_.mistakes.empty()) {
    page.add("mistakes", "The surest mistakes", examples_html(measure_.mistakes));
  }

  page.add("memory", "Memory",
           d_.memory + paragraph_html(fmt::format(
                           "Predicted before the first step: {}. Counted up to now: {}.",
                           bytes_text(now.predicted_bytes), bytes_text(now.counted_bytes))));
  page.add("settings", "Settings", facts_html(d_.settings));
  page.add("sources", "Model, data and device", facts_html(d_.sources));
  json data = {{"page", kKind},
               {"run", run_},
               {"state", state_},
               {"step", step()},
               {"steps", d_.steps},
               {"unit", d_.unit},
               {"series", series()},
               {"counted_bytes", now.counted_bytes},
               {"predicted_bytes", now.predicted_bytes}};
  data.update(d_.data);
  page.set_data(data);
  return page.html();
}

}  // namespace bowline::command
