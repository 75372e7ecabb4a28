// Rope for kernels: the frequencies, and the attributes of a fused Rope. runtime/ops/rope.cpp
// documents the formula.
#pragma once

#include <cmath>

#include "core/attributes.h"

namespace bowline {

// Returns the frequency of pair j, in radians per position. There are dims / 2 pairs.
template <class F>
F rope_frequency(const RopeAttributes& t, int64_t j, int64_t dims) {
  const F power = F(-2.0) * static_cast<F>(j) / static_cast<F>(dims);
  const F frequency = std::pow(static_cast<F>(t.base()), power);
  if (t.factor() == 1) {
    return frequency;
  }
  const F turns = static_cast<F>(t.original_length()) * frequency / (2 * std::acos(F(-1)));
  const auto low = static_cast<F>(t.low_frequency_factor());
  const auto high = static_cast<F>(t.high_frequency_factor());
  const F slow = frequency / static_cast<F>(t.factor());
  if (turns <= low || turns >= high) {
    return turns <= low ? slow : frequency;
  }
  const F part = (turns - low) / (high - low);
  return (1 - part) * slow + part * frequency;
}

// The attributes of the Rope of a FusedWriteRows.
inline RopeAttributesT rope_of(const FusedWriteRowsAttributes& t) {
  RopeAttributesT rope;
  rope.base = t.base();
  rope.rotary_dims = t.rotary_dims();
  rope.interleaved = t.interleaved();
  rope.inverse = t.inverse();
  rope.position_offset = t.position_offset();
  rope.factor = t.factor();
  rope.low_frequency_factor = t.low_frequency_factor();
  rope.high_frequency_factor = t.high_frequency_factor();
  rope.original_length = t.original_length();
  return rope;
}

}  // namespace bowline
