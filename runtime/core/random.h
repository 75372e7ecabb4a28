// What Dropout draws; philox() is public.
#pragma once

#include "bowline.h"
#include "core/detail.h"

namespace bowline {

// Dropout: element i of a tensor keeps its value if word i % 4 of
//   philox({i / 4, stream, iteration, step counter}, seed)
// is at least this threshold.
constexpr uint32_t dropout_threshold(double rate) {
  const double t = rate * 4294967296.0;
  return t >= 4294967295.0 ? UINT32_MAX : static_cast<uint32_t>(t);
}

}  // namespace bowline
