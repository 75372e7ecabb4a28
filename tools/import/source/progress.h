// Tells the program where an import is, and learns whether to stop.
#pragma once

#include <utility>

#include "base/boundary.h"
#include "base/status.h"
#include "bowline_import.h"

namespace bowline::import {

class Progress {
 public:
  Progress() = default;  // nobody wants to know
  explicit Progress(std::function<bool(const ImportProgress&)> tell) : tell_(std::move(tell)) {}

  // Errors  cancelled: the callback returned false, or threw.
  Status at(ImportProgress::Part part, uint64_t done, uint64_t total) const {
    bool goes_on = tell_ == nullptr;
    if (!goes_on) {
      ignoring_exceptions([&] { goes_on = tell_({part, done, total}); });
    }
    BOWLINE_REQUIRE_CODE(goes_on, Code::cancelled, "The import was cancelled.");
    return {};
  }

 private:
  std::function<bool(const ImportProgress&)> tell_;
};

}  // namespace bowline::import
