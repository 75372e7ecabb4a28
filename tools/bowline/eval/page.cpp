#include "eval/page.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/plot.h"

namespace bowline::command {

std::string eval_page(const EvaluatedText& text) {
  Page page(fmt::format("Evaluation of {}", std::filesystem::path(text.model).filename().string()),
            "How well the model predicts a text that it is given.");
  page.set_headline({{"Bits per byte", fmt::format("{:.4f}", text.bits_per_byte)},
                     {"Perplexity per byte", fmt::format("{:.4f}", text.perplexity)},
                     {"Bytes", grouped(text.bytes)}});
  Plot plot;
  plot.id = "losses";
  plot.title = "Loss along the text";
  plot.unit = "bits per byte, mean of a batch";
  plot.x_name = "batch";
  plot.y_text = [](double y) { return fmt::format("{:.4f}", y); };
  plot.series = {{"loss", PlotStyle::line, text.losses.points()}};
  page.add("loss", "Loss", plot_html(plot));
  page.add("memory", "Memory", text.memory);
  page.add("sources", "Model, data and device", facts_html(text.sources));
  page.set_data({{"page", "bowline eval 1"},
                 {"bytes", text.bytes},
                 {"bits_per_byte", text.bits_per_byte},
                 {"perplexity", text.perplexity},
                 {"series", {{"loss", text.losses.json()}}},
                 {"sources", text.sources}});
  return page.html();
}

}  // namespace bowline::command
