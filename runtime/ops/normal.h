// Parts shared by the reference implementations of norms: statistics, the magnitude against which
// the rounding error of a normalization is measured, and the gradient.
#pragma once

#include <cmath>

#include "ops/op.h"

namespace bowline {

// Statistics of the values that are normalized together.
struct Normal {
  double mean = 0;
  double variance = 0;  // biased; 0 if there are no values
  double inverse = 0;   // 1 / sqrt(variance + eps)
  double size = 0;      // mean of |x|
  double square = 0;    // mean of x^2

  double of(double x) const { return (x - mean) * inverse; }
  // Error of the root relative to x - mean: the variance under the root cancels.
  double condition() const { return 1 + 2 * std::sqrt(square) * inverse; }
  // Magnitude for the rounding error of of(x), whose difference cancels too.
  double lost(double x) const {
    return (std::abs(x) + size) * inverse + std::abs(of(x)) * condition();
  }
};

inline Normal normal_of(std::span<const double> x, double eps) {
  Normal out;
  const auto n = static_cast<double>(std::max<size_t>(x.size(), 1));
  for (const double v : x) {
    out.mean += v / n;
    out.size += std::abs(v) / n;
    out.square += v * v / n;
  }
  for (const double v : x) {
    out.variance += (v - out.mean) * (v - out.mean) / n;
  }
  out.inverse = 1 / std::sqrt(out.variance + eps);
  return out;
}

// dx, dscale and dbias of y = normal * scale + bias, from x, scale and dy. Each run of n elements
// is normalized by itself. channel(i) is the number of the scale and the bias of element i.
template <class Channel>
void normal_gradient(const OracleContext& c, size_t n, double eps, const Channel& channel) {
  const std::span<double> magnitude[] = {c.zero_magnitude(0), c.zero_magnitude(1),
                                         c.zero_magnitude(2)};
  const auto x = c.in(0), scale = c.in(1), dy = c.in(2);
  for (size_t first = 0; first < x.size(); first += n) {
    const Normal s = normal_of(x.subspan(first, n), eps);
    double mean_g = 0, mean_gh = 0, size_g = 0, size_gh = 0;
    for (size_t i = first; i < first + n; ++i) {
      const double g = dy[i] * scale[channel(i)] / static_cast<double>(n);
      mean_g += g;
      mean_gh += g * s.of(x[i]);
      size_g += std::abs(g);
      size_gh += std::abs(g) * s.lost(x[i]);
    }
    for (size_t i = first; i < first + n; ++i) {
      const double h = s.of(x[i]), g = dy[i] * scale[channel(i)];
      const double inner = g - mean_g - h * mean_gh;
      c.out(0)[i] = s.inverse * inner;
      c.out(1)[channel(i)] += dy[i] * h;
      c.out(2)[channel(i)] += dy[i];
      magnitude[0][i] = s.inverse * (std::abs(g) + size_g + s.lost(x[i]) * std::abs(mean_gh) +
                                     std::abs(h) * size_gh + std::abs(inner) * s.condition());
      magnitude[1][channel(i)] += std::abs(dy[i]) * s.lost(x[i]);
      magnitude[2][channel(i)] += std::abs(dy[i]);
    }
  }
}

}  // namespace bowline
