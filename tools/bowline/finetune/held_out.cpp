#include "finetune/held_out.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace bowline::command {
namespace {

constexpr const char* kKey = "held-out";

}  // namespace

void HeldOut::append_to(Config& config) const {
  if (begun_) {
    config.emplace_back(
        kKey, fmt::format("{} {} {:.17g} {} {:.17g} {} {:.17g}", key_, first_.step, first_.value,
                          best_.step, best_.value, last_.step, last_.value));
  }
}

bool HeldOut::read_from(const Config& config) {
  const std::string text = find_setting(config, kKey).value_or("");
  if (key_.empty() || !text.starts_with(key_ + " ")) {
    return false;
  }
  const char* at = text.c_str() + key_.size();
  for (Loss* const loss : {&first_, &best_, &last_}) {
    char* end = nullptr;
    loss->step = std::strtoull(at, &end, 10);
    loss->value = std::strtod(end, &end);
    at = end;
  }
  begun_ = true;
  return true;
}

void HeldOut::begin(uint64_t step, double loss) {
  begun_ = true;
  first_ = best_ = last_ = {step, loss};
}

bool HeldOut::add(uint64_t step, double loss) {
  last_ = {step, loss};
  const bool better = std::isfinite(loss) && (!std::isfinite(best_.value) || loss < best_.value);
  best_ = better ? last_ : best_;
  return better;
}

void HeldOut::go_back(uint64_t step) { last_ = last_.step > step ? first_ : last_; }

uint64_t HeldOut::stale(uint64_t step, uint64_t every) const {
  return every == 0 || step < best_.step ? 0 : step / every - best_.step / every;
}

bool HeldOut::acceptable(double loss) const {
  return std::isfinite(loss) && (!std::isfinite(first_.value) || loss <= first_.value);
}

}  // namespace bowline::command
