#include "bowline_text.h"

namespace bowline::text {
namespace {

// Length of the longest proper prefix of the stop string at the end of the text.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) {
      return n;
    }
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::add(std::string_view text) {
  if (stopped_) {
    return {};
  }
  kept_ += text;
  size_t shown = std::string::npos;
  for (const std::string& stop : stops_) {
    shown = std::min(shown, kept_.find(stop));
  }
  stopped_ = shown != std::string::npos;
  if (!stopped_) {
    size_t most = 0;
    for (const std::string& stop : stops_) {
      most = std::max(most, begun(kept_, stop));
    }
    shown = kept_.size() - most;
  }
  std::string out = kept_.substr(0, shown);
  kept_.erase(0, stopped_ ? kept_.size() : shown);
  return out;
}

std::string StopStrings::flush() { return std::exchange(kept_, {}); }

}  // namespace bowline::text
