#include "tasks/labels.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "common/find.h"
#include "common/text.h"
#include "data/examples.h"

namespace bowline::command {

Result<int64_t> classes_of(const Model& model) {
  BOWLINE_TRY_ASSIGN(const ModelInfo info, model.describe());
  for (const char* name : {"class_weights", "classifier.bias"}) {
    const ParameterInfo* const at = find_named(info.parameters, name);
    if (at != nullptr && at->shape.size() == 1) {
      return at->shape[0];
    }
  }
  return Status(Code::bad_file,
                "The model has neither class_weights nor classifier.bias, so its number of classes "
                "is unknown.");
}

Result<std::vector<std::string>> labels_in(const Model& model) {
  std::vector<std::string> out;
  const Result<std::vector<std::byte>> asset = model.asset("labels");
  if (!asset.ok()) {
    return out;
  }
  const std::string_view text(reinterpret_cast<const char*>(asset.value().data()),
                              asset.value().size());
  BOWLINE_TRY_ASSIGN(out, read_labels(text, "asset \"labels\""));
  BOWLINE_TRY_ASSIGN(const int64_t classes, classes_of(model));
  BOWLINE_REQUIRE_CODE(static_cast<int64_t>(out.size()) == classes, Code::bad_file,
                       "The model names {} labels, and its head has {} classes.", out.size(),
                       classes);
  return out;
}

Result<std::vector<std::string>> choose_labels(const Model& model, const DataOptions& o,
                                               std::vector<std::string> of_rows) {
  BOWLINE_TRY_ASSIGN(std::vector<std::string> labels, labels_in(model));
  if (!o.labels.empty()) {
    BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(o.labels, true));
    BOWLINE_TRY_ASSIGN(std::vector<std::string> given, read_labels(bytes, o.labels));
    BOWLINE_REQUIRE_CODE(labels.empty() || labels == given, Code::bad_file,
                         "--labels \"{}\" holds other labels than the model, or in another order.",
                         o.labels);
    labels = std::move(given);
  }
  const bool of_data = labels.empty();
  if (of_data) {
    labels = std::move(of_rows);
  }
  for (const std::string& label : labels) {
    BOWLINE_REQUIRE_CODE(
        !label.empty() && label.find_first_of("\r\n") == std::string::npos, Code::bad_file,
        "\"{}\" has the label \"{}\". A label must be one line of text.", o.data, label);
  }
  BOWLINE_TRY_ASSIGN(const int64_t classes, classes_of(model));
  BOWLINE_REQUIRE_CODE(
      static_cast<int64_t>(labels.size()) == classes, Code::bad_file,
      "{} \"{}\" has {} labels, but the classification head of the model has {} classes.",
      of_data ? "The data" : "File", of_data ? o.data : o.labels, labels.size(), classes);
  return labels;
}

Status set_labels(Model& model, std::span<const std::string> labels) {
  std::string lines;
  for (const std::string& label : labels) {
    lines += label + "\n";
  }
  return model.set_asset("labels", "text/plain", std::as_bytes(std::span(lines)));
}

bool gives_several(const Model& model) { return model.metadata("multi_label") == "true"; }

std::vector<double> probabilities(std::span<const float> logits, bool several) {
  std::vector<double> out(logits.begin(), logits.end());
  if (several) {
    std::ranges::transform(out, out.begin(), [](double x) { return 1 / (1 + std::exp(-x)); });
    return out;
  }
  const double most = *std::ranges::max_element(out);
  double sum = 0;
  for (double& x : out) {
    x = std::exp(x - most);
    sum += x;
  }
  std::ranges::transform(out, out.begin(), [sum](double x) { return x / sum; });
  return out;
}

double nats_of(std::span<const float> logits, std::span<const int32_t> classes, bool several) {
  if (several) {
    double sum = 0;
    for (size_t c = 0; c < logits.size(); ++c) {
      const double x = static_cast<double>(logits[c]);
      const bool is = std::ranges::find(classes, static_cast<int32_t>(c)) != classes.end();
      sum += (is ? 0 : x) + std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    }
    return sum / static_cast<double>(logits.size());
  }
  const double most = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float x : logits) {
    sum += std::exp(static_cast<double>(x) - most);
  }
  return most + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(classes[0])]);
}

}  // namespace bowline::command
