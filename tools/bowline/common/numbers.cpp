#include "common/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/strings.h"

namespace bowline::command {
namespace {

constexpr size_t kShown = 40;

std::string refusal(const std::string& word, std::string_view kind, const std::string& range) {
  return fmt::format("\"{}\" is not a {} number {}", word.substr(0, kShown), kind, range);
}

CLI::Validator real(double least, double most, bool closed) {
  const std::string range = closed ? fmt::format("from {:g} to {:g}", least, most)
                                   : fmt::format("from {:g} on and below {:g}", least, most);
  return CLI::Validator(
      [=](std::string& word) {
        const auto value = number_in<double>(word);
        const bool fits = value && *value >= least &&
                          (*value < most || (closed && *value == most)) &&
                          (closed || static_cast<float>(*value) < static_cast<float>(most));
        return fits ? std::string() : refusal(word, "finite", range);
      },
      fmt::format("{:g}..{}{:g}", least, closed ? "" : "<", most));
}

}  // namespace

CLI::Validator whole_number(uint64_t least, uint64_t most) {
  const std::string range = most == UINT64_MAX ? fmt::format("from {} on", least)
                                               : fmt::format("from {} to {}", least, most);
  return CLI::Validator(
      [=](std::string& word) {
        const auto value = number_in<uint64_t>(word);
        const bool fits = value && *value >= least && *value <= most;
        return fits ? std::string() : refusal(word, "whole", range);
      },
      most >= kMostSteps ? fmt::format("{}..", least) : fmt::format("{}..{}", least, most));
}

CLI::Validator byte_count() {
  return CLI::Validator(
      [](std::string& word) {
        constexpr std::string_view units[] = {"", "KiB", "MiB", "GiB", "TiB"};
        const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
        const auto* const unit = std::ranges::find(units, std::string_view(word).substr(digits));
        const uint64_t count = number_in<uint64_t>(word.substr(0, digits)).value_or(0);
        const uint64_t factor = uint64_t{1} << (10 * (unit - std::begin(units)));
        if (unit == std::end(units) || count == 0 || count > UINT64_MAX / factor) {
          return fmt::format("\"{}\" is not a number of bytes above 0, such as 1000000 or 512MiB",
                             word.substr(0, kShown));
        }
        word = std::to_string(count * factor);
        return std::string();
      },
      "BYTES");
}

CLI::Validator real_number(double least, double most) { return real(least, most, true); }
CLI::Validator real_number_below(double least, double end) { return real(least, end, false); }

}  // namespace bowline::command
