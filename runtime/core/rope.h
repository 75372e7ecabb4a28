// Rope for kernels: the frequencies, and the attributes of a fused Rope. runtime/ops/rope.cpp
// documents the formula.
#pragma once

#include <cmath>

#include "core/attributes.h"

namespace bowline {

// Returns the frequency of pair j, in radians per position. There are dims / 2 pairs.
template <class F>
F rope_frequency(const RopeAttributes& t, int64_t j, int64_t dims) {
  if (t.frequencies()->size() != 0) {
    return static_cast<F>(t.frequencies()->Get(static_cast<flatbuffers::uoffset_t>(j)));
  }
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

// Copies the attributes of a Rope between the tables that have them: RopeAttributes and
// FusedWriteRowsAttributes.
template <class From, class To>
void copy_rope(const From& from, To& to) {
  to.base = from.base();
  to.rotary_dims = from.rotary_dims();
  to.interleaved = from.interleaved();
  to.inverse = from.inverse();
  to.position_offset = from.position_offset();
  to.factor = from.factor();
  to.low_frequency_factor = from.low_frequency_factor();
  to.high_frequency_factor = from.high_frequency_factor();
  to.original_length = from.original_length();
  to.frequencies.assign(from.frequencies()->begin(), from.frequencies()->end());
}

// The attributes of the Rope of a FusedWriteRows.
inline RopeAttributesT rope_of(const FusedWriteRowsAttributes& t) {
  RopeAttributesT rope;
  copy_rope(t, rope);
  return rope;
}

}  // namespace bowline
