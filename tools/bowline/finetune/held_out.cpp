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
    config.emplace_back(kKey, fmt::format("{} {} {:.17g} {} {:.17g} {} {:.17g}", key_, first_step_,
                                          before_, best_step_, best_, last_step_, last_));
  }
}

bool HeldOut::read_from(const Config& config) {
  const std::string text = find_setting(config, kKey).value_or("");
  if (key_.empty() || !text.starts_with(key_ + " ")) {
    return false;
  }
  const char* at = text.c_str() + key_.size();
  for (const auto& [step, loss] :
       {std::pair(&first_step_, &before_), std::pair(&best_step_, &best_),
        std::pair(&last_step_, &last_)}) {
    char* end = nullptr;
    *step = std::strtoull(at, &end, 10);
    *loss = std::strtod(end, &end);
    at = end;
  }
  begun_ = true;
  return true;
}

void HeldOut::begin(uint64_t step, double loss) {
  begun_ = true;
  first_step_ = best_step_ = last_step_ = step;
  before_ = best_ = last_ = loss;
}

bool HeldOut::add(uint64_t step, double loss) {
  last_ = loss;
  last_step_ = step;
  if (!std::isfinite(loss) || (std::isfinite(best_) && !(loss < best_))) {
    return false;
  }
  best_ = loss;
  best_step_ = step;
  return true;
}

void HeldOut::go_back(uint64_t step) {
  if (last_step_ > step) {
    last_ = before_;
    last_step_ = first_step_;
  }
}

uint64_t HeldOut::stale(uint64_t step, uint64_t every) const {
  return every == 0 || step < best_step_ ? 0 : step / every - best_step_ / every;
}

bool HeldOut::acceptable(double loss) const {
  return std::isfinite(loss) && (!std::isfinite(before_) || loss <= before_);
}

}  // namespace bowline::command
