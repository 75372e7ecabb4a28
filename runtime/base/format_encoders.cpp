#include "base/format_encoders.h"

#include <bit>
#include <cstring>

#include "base/float16.h"

namespace bowline::encoders {
namespace {

#include "base/format_dialect.inc"

float half_of(float x, std::byte* to) {
  const f16 half = from_f32<f16>(x);
  std::memcpy(to, &half, sizeof(half));
  return to_f32(half);
}

}  // namespace

float store_half(float x, std::byte* to) {
  const float stored = half_of(x, to);
  return std::isfinite(stored) ? stored : half_of(0, to);
}

float store_scale(float magnitude, double steps, std::byte* to) {
  constexpr double kSpare = 0.5;
  const double exact = magnitude / steps;
  float scale = half_of(static_cast<float>(exact), to);
  if (exact * steps > scale * (steps + kSpare)) {
    f16 above = from_f32<f16>(scale);
    ++above.bits;
    scale = half_of(to_f32(above), to);
  }
  return std::isfinite(scale) ? scale : half_of(0, to);
}

float steps_per_value(float exact, float stored) {
  constexpr float kLeastNormal = 0x1p-14f;
  return stored == 0 ? 0 : 1 / (stored < kLeastNormal ? stored : exact);
}

float extreme_of(std::span<const float> values) {
  float most = 0;
  for (const float x : values) {
    most = std::abs(x) > std::abs(most) ? x : most;
  }
  return most;
}

float magnitude_of(std::span<const float> values) { return std::abs(extreme_of(values)); }

UnevenValues::UnevenValues() {
  for (int i = 0; i < 16; ++i) {
    table[static_cast<size_t>(i)] = uneven_of_4_bits(i);
  }
  lowest = table.front();
  highest = table.back();
}

void put_bits(std::byte& to, int bits) { to |= static_cast<std::byte>(bits); }

void put_nibble_of_halves(std::byte* to, int i, int value) {
  put_bits(to[i % 16], value << (i / 16 * 4));
}

Steps store_range(std::span<const float> values, int highest, std::byte* scale, std::byte* least) {
  const auto [low, high] = std::ranges::minmax(values);
  const float exact = (high - low) / static_cast<float>(highest);
  const float stored = store_half(exact, scale);
  store_half(low, least);
  return {low, steps_per_value(exact, stored), highest};
}

void put_crumb_of_runs(std::byte* to, int i, int value) {
  put_bits(to[i / 128 * 32 + i % 32], value << (i / 32 % 4 * 2));
}

void put_6_bits(const Groups& groups, std::byte* to) {
  for (size_t g = 0; g < 8; ++g) {
    const int scale = groups.scales[g];
    const int least = groups.minimums[g];
    if (g < 4) {
      put_bits(to[g], scale);
      put_bits(to[g + 4], least);
    } else {
      put_bits(to[g + 4], (scale & 15) | (least & 15) << 4);
      put_bits(to[g - 4], scale >> 4 << 6);
      put_bits(to[g], least >> 4 << 6);
    }
  }
}

// For each tried slope: the values that it rounds to, and the line that fits them best (linear
// regression). The error of a line follows from the same sums.
Line fit_line(std::span<const float> x, int highest) {
  constexpr int kTries = 20;
  const float least = std::min(*std::ranges::min_element(x), 0.0f);
  const float range = *std::ranges::max_element(x) - least;
  if (range == 0) {
    return {0, -least};
  }
  const Integers values{0, highest};
  const auto n = static_cast<float>(x.size());
  float x1 = 0;
  for (const float v : x) {
    x1 += v;
  }
  Line best{range / static_cast<float>(highest), -least};
  float best_error = INFINITY;
  for (int k = 0; k <= kTries; ++k) {
    const float steps = static_cast<float>(highest) - 1 + 0.1f * static_cast<float>(k);
    const FitSums sums = fit_sums(x, values, steps / range, -least);
    const float spread = n * sums.qq - sums.q * sums.q;
    if (spread <= 0) {
      continue;
    }
    Line line{(n * sums.xq - x1 * sums.q) / spread, (sums.q * sums.xq - sums.qq * x1) / spread};
    if (line.least < 0) {
      line = {sums.xq / sums.qq, 0};
    }
    // The sum of (x - scale q + least)^2 without the sum of x^2.
    const float error = line.scale * (line.scale * sums.qq - 2 * (sums.xq + line.least * sums.q)) +
                        line.least * (n * line.least + 2 * x1);
    if (line.scale > 0 && error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

}  // namespace bowline::encoders
