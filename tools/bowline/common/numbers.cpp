#include "common/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace bowline::command {
namespace {

constexpr size_t kShown = 40;

template <class T>
bool parse(const std::string& word, T& value) {
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  return error == std::errc() && stop == end;
}

std::string refusal(const std::string& word, std::string_view kind, const std::string& range) {
  return fmt::format("\"{}\" is not a {} number {}", word.substr(0, kShown), kind, range);
}

CLI::Validator real(double least, double most, bool closed) {
  const std::string range = closed ? fmt::format("from {:g} to {:g}", least, most)
                                   : fmt::format("from {:g} on and below {:g}", least, most);
  return CLI::Validator(
      [=](std::string& word) {
        double value = 0;
        const bool fits = parse(word, value) && value >= least &&
                          (value < most || (closed && value == most)) &&
                          (closed || static_cast<float>(value) < static_cast<float>(most));
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
        uint64_t value = 0;
        const bool fits = parse(word, value) && value >= least && value <= most;
        return fits ? std::string() : refusal(word, "whole", range);
      },
      most >= kMostSteps ? fmt::format("{}..", least) : fmt::format("{}..{}", least, most));
}

CLI::Validator real_number(double least, double most) { return real(least, most, true); }
CLI::Validator real_number_below(double least, double end) { return real(least, end, false); }

}  // namespace bowline::command
