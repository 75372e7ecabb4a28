#include "eval/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "common/plot.h"

namespace bowline::command {
namespace {

// "bits_per_byte" as "Bits per byte".
std::string title_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name == "Macro f1" ? "Macro F1" : name;
}

Facts headline(const Evaluated& e) {
  Facts facts = {{title_of(e.unit), fmt::format("{:.4f}", e.measure.loss)}};
  if (e.measure.perplexity) {
    facts.emplace_back("Perplexity" + e.unit.substr(e.unit.rfind(" per ")),
                       fmt::format("{:.4f}", *e.measure.perplexity));
  }
  for (const auto& [name, value] : e.measure.more) {
    facts.emplace_back(title_of(name), fmt::format("{:.4f}", value));
  }
  for (const auto& [name, value] : e.sizes) {
    facts.emplace_back(title_of(name), grouped(value));
  }
  return facts;
}

std::string losses_html(const Evaluated& e) {
  Plot plot;
  plot.id = "losses";
  plot.title = "Loss along the data";
  plot.unit = e.unit + ", mean of a batch";
  plot.x_name = "batch";
  plot.y_text = [](double y) { return fmt::format("{:.4f}", y); };
  plot.series = {{"loss", PlotStyle::line, e.losses.points()}};
  return plot_html(plot);
}

nlohmann::json data_of(const Evaluated& e) {
  nlohmann::json data = json_of(e.measure, e.unit, e.sizes);
  data["page"] = "bowline eval 1";
  data["series"] = {{"loss", e.losses.json()}};
  data["sources"] = e.sources;
  if (e.measure.confusion) {
    data["confusion"] = e.measure.confusion->counts;
  }
  return data;
}

}  // namespace

std::string eval_page(const Evaluated& e) {
  Page page(fmt::format("Evaluation of {}", std::filesystem::path(e.model).filename().string()),
            "How well the model does on data that it is given.");
  page.set_headline(headline(e));
  if (!e.losses.points().empty()) {
    page.add("loss", "Loss", losses_html(e));
  }
  if (e.measure.confusion) {
    page.add("confusion", "Confusion matrix", confusion_html(*e.measure.confusion));
    page.add("classes", "Classes", classes_html(*e.measure.confusion));
  }
  if (!e.measure.mistakes.empty()) {
    page.add("mistakes", "The surest mistakes", examples_html(e.measure.mistakes));
  }
  page.add("memory", "Memory", e.memory);
  page.add("sources", "Model, data and device", facts_html(e.sources));
  page.set_data(data_of(e));
  return page.html();
}

}  // namespace bowline::command
