// The encoders of block formats, and what they share. An encoder gets finite values.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bowline::encoders {

#define BOWLINE_FORMAT(name, ...) void encode_##name(const float* from, std::byte* block);
#include "generated/all_formats.inc"

// Stores an f16 and returns its value. A value outside of the range of f16 is stored as 0.
float store_half(float x, std::byte* to);

// Stores the scale of a block with values up to `magnitude`, of `steps` steps, and returns it. A
// rounded scale is increased if the range would otherwise end more than half a step before the
// values.
float store_scale(float magnitude, double steps, std::byte* to);

// The factor from values to steps. ggml divides by the exact scale. That would move values by whole
// steps if f16 stores the scale as a denormal.
float steps_per_value(float exact, float stored);

float magnitude_of(std::span<const float> values);
// The first value of the largest magnitude.
float extreme_of(std::span<const float> values);

// A scale and a minimum: x = scale * value + least.
struct Steps {
  float least;
  float per_value;
  int highest;

  int of(float x) const {
    return std::clamp(static_cast<int>((x - least) * per_value + 0.5f), 0, highest);
  }
};
// Stores the scale of a block of values 0 .. highest, and its minimum.
Steps store_range(std::span<const float> values, int highest, std::byte* scale, std::byte* least);

// Adds 4 bits of value i of 32 to the bytes of values i and i + 16.
void put_nibble_of_halves(std::byte* to, int i, int value);
// Sets 2 bits of value i of 256 (crumb_of_runs() of shared.inc).
void put_crumb_of_runs(std::byte* to, int i, int value);
// Sets bits of a byte that are 0.
void put_bits(std::byte& to, int bits);

// The quantized values of a format: the integers from `lowest` to `highest`.
struct Integers {
  int lowest;
  int highest;
  float unit = 0.1f;  // distance of the tried largest values

  // Rounds to even. The sum is so large that its last bit counts ones; loops with it vectorize.
  float nearest(float x) const {
    constexpr float kOnes = 0x1.8p23f;
    const float low = static_cast<float>(lowest), high = static_cast<float>(highest);
    const float inside = x < low ? low : x > high ? high : x;
    return inside + kOnes - kOnes;
  }
};

// The values of IQ4_NL and IQ4_XS, in ascending order.
struct UnevenValues {
  UnevenValues();
  std::array<int, 16> table;
  int lowest;
  int highest;
  float unit = 1;

  // The index of the value that is nearest to x.
  int index(float x) const {
    size_t i = 0;
    while (i < 15 && 2 * x > static_cast<float>(table[i] + table[i + 1])) {
      ++i;
    }
    return static_cast<int>(i);
  }
  float nearest(float x) const { return static_cast<float>(table[static_cast<size_t>(index(x))]); }
};

// Sums over a group for the nearest values q of (x + shift) * factor. Eight partial sums vectorize.
struct FitSums {
  float q = 0;
  float qq = 0;
  float xq = 0;
};
template <class Values>
FitSums fit_sums(std::span<const float> x, const Values& values, float factor, float shift) {
  float q[8] = {}, qq[8] = {}, xq[8] = {};
  for (size_t i = 0; i < x.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) {
      const float value = values.nearest((x[i + k] + shift) * factor);
      q[k] += value;
      qq[k] += value * value;
      xq[k] += value * x[i + k];
    }
  }
  FitSums out;
  for (size_t k = 0; k < 8; ++k) {
    out.q += q[k];
    out.qq += qq[k];
    out.xq += xq[k];
  }
  return out;
}

// The scale with the least squared error of x = scale * value. Tries scales that map the largest
// magnitude to `lowest` or close to it, and fits each to its rounded values.
template <class Values>
float fit_scale(std::span<const float> x, const Values& values) {
  constexpr int kTries = 9;
  const float most = extreme_of(x);
  if (most == 0) {
    return 0;
  }
  float best = 0;
  float gain = 0;
  for (int k = 0; k < 2 * (2 * kTries + 1); ++k) {
    const float sign = k % 2 == 0 ? 1.0f : -1.0f;
    const float end =
        static_cast<float>(values.lowest) + static_cast<float>(k / 2 - kTries) * values.unit;
    const FitSums sums = fit_sums(x, values, sign * end / most, 0);
    if (sums.qq > 0 && sums.xq * (sums.xq / sums.qq) > gain) {
      best = sums.xq / sums.qq;
      gain = sums.xq * best;
    }
  }
  return best;
}

// A scale and a minimum: x = scale * value - least.
struct Line {
  float scale = 0;
  float least = 0;
};

// The line with the least squared error for values 0 .. highest, with least >= 0.
Line fit_line(std::span<const float> x, int highest);

// The integers of a block whose groups have integer scales and minimums.
struct Groups {
  float d = 0;  // x = d * scale * value - dmin * minimum
  float dmin = 0;
  std::array<int, 16> scales{};
  std::array<int, 16> minimums{};
  std::array<int, 256> values{};
};

// How a format stores groups.
struct GroupForm {
  int count;  // of groups
  int size;   // of a group
  int lowest_scale;
  int highest_scale;
  int highest_minimum = 0;  // 0: there are no minimums
};

namespace detail {

template <class Values>
float error_of(std::span<const float> x, const Values& values, float scale, float least) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  float sums[8] = {};
  for (size_t i = 0; i < x.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) {
      const float q = values.nearest((x[i + k] + least) * inverse);
      const float wrong = x[i + k] - (scale * q - least);
      sums[k] += wrong * wrong;
    }
  }
  float out = 0;
  for (const float sum : sums) {
    out += sum;
  }
  return out;
}

// Chooses the integer scale and minimum of group g among the neighbours of the fitted ones.
template <class Values>
void choose_integers(std::span<const float> x, const GroupForm& form, const Values& values,
                     const Line& line, int g, Groups& to) {
  const auto near = [](float exact, float unit, int lowest, int highest) {
    return unit == 0 ? 0 : static_cast<int>(Integers{lowest, highest}.nearest(exact / unit));
  };
  const int scale = near(line.scale, to.d, form.lowest_scale, form.highest_scale);
  const int least = near(line.least, to.dmin, 0, form.highest_minimum);
  float best = INFINITY;
  for (int s = std::max(scale - 1, form.lowest_scale); s <= std::min(scale + 1, form.highest_scale);
       ++s) {
    for (int m = std::max(least - 1, 0); m <= std::min(least + 1, form.highest_minimum); ++m) {
      const double error =
          error_of(x, values, to.d * static_cast<float>(s), to.dmin * static_cast<float>(m));
      if (error < best) {
        best = error;
        to.scales[static_cast<size_t>(g)] = s;
        to.minimums[static_cast<size_t>(g)] = m;
      }
    }
  }
}

}  // namespace detail

// Quantizes a block. Stores d and dmin at `d` and (unless null) at `dmin`.
template <class Values>
Groups quantize_groups(const float* from, const GroupForm& form, const Values& values, std::byte* d,
                       std::byte* dmin) {
  const auto group = [&](int g) {
    return std::span(from + g * form.size, static_cast<size_t>(form.size));
  };
  std::array<Line, 16> lines;
  float scale = 0, least = 0;  // the largest
  for (int g = 0; g < form.count; ++g) {
    Line& line = lines[static_cast<size_t>(g)];
    line = dmin == nullptr ? Line{fit_scale(group(g), values)} : fit_line(group(g), values.highest);
    scale = std::abs(line.scale) > std::abs(scale) ? line.scale : scale;
    least = std::max(least, line.least);
  }
  Groups out;
  // Signed scales have one more negative integer.
  const int most = form.lowest_scale < 0 ? form.lowest_scale : form.highest_scale;
  out.d = store_half(scale / static_cast<float>(most), d);
  if (dmin != nullptr) {
    out.dmin = store_half(least / static_cast<float>(form.highest_minimum), dmin);
  }
  for (int g = 0; g < form.count; ++g) {
    const auto at = static_cast<size_t>(g);
    detail::choose_integers(group(g), form, values, lines[at], g, out);
    const float step = out.d * static_cast<float>(out.scales[at]);
    const float shift = out.dmin * static_cast<float>(out.minimums[at]);
    for (int i = 0; i < form.size; ++i) {
      out.values[static_cast<size_t>(g * form.size + i)] = static_cast<int>(
          values.nearest(step == 0 ? 0 : (group(g)[static_cast<size_t>(i)] + shift) / step));
    }
  }
  return out;
}

// Stores eight scales and eight minimums of 6 bits in 12 bytes (shared.inc).
void put_6_bits(const Groups& groups, std::byte* to);

}  // namespace bowline::encoders
