#include "tasks/class_weights.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/status.h"
#include "common/text.h"

namespace bowline::command {
namespace {

Result<std::vector<float>> from_file(const std::string& path, std::span<const std::string> labels) {
  BOWLINE_TRY_ASSIGN(const std::string bytes, read_text(path, true));
  size_t keys = 0;
  const auto count_keys = [&](int, nlohmann::json::parse_event_t event, nlohmann::json&) {
    keys += event == nlohmann::json::parse_event_t::key ? 1 : 0;
    return true;
  };
  const nlohmann::json object = nlohmann::json::parse(bytes, count_keys, false);
  BOWLINE_REQUIRE_CODE(object.is_object(), Code::bad_file,
                       "--class-weights \"{}\" holds no JSON object of labels and numbers.", path);
  std::vector<float> out;
  for (const std::string& label : labels) {
    const auto at = object.find(label);
    BOWLINE_REQUIRE_CODE(at != object.end() && at->is_number(), Code::bad_file,
                         "--class-weights \"{}\" has no number for the label \"{}\".", path, label);
    out.push_back(at->get<float>());
    BOWLINE_REQUIRE_CODE(std::isfinite(out.back()) && out.back() >= 0, Code::bad_file,
                         "--class-weights \"{}\" has {} for the label \"{}\". A weight must be "
                         "finite and at least 0.",
                         path, out.back(), label);
  }
  BOWLINE_REQUIRE_CODE(object.size() == labels.size(), Code::bad_file,
                       "--class-weights \"{}\" has {} labels, the model {}.", path, object.size(),
                       labels.size());
  BOWLINE_REQUIRE_CODE(keys == object.size(), Code::bad_file,
                       "--class-weights \"{}\" has a label twice.", path);
  return out;
}

}  // namespace

bool is_rule(std::string_view choice) { return choice == "none" || choice == "balanced"; }

Result<std::vector<float>> class_weights(const std::string& choice,
                                         std::span<const std::string> labels,
                                         std::span<const uint64_t> counts) {
  if (!is_rule(choice)) {
    return from_file(choice, labels);
  }
  std::vector<float> out(labels.size(), 1);
  if (choice == "balanced") {
    const auto texts =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    for (size_t c = 0; c < out.size(); ++c) {
      const double share = static_cast<double>(counts[c]) * static_cast<double>(out.size());
      out[c] = counts[c] == 0 ? 1 : static_cast<float>(texts / share);
    }
  }
  return out;
}

}  // namespace bowline::command
