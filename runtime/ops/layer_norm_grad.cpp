// LayerNormGrad: the gradient of LayerNorm.
//
//   s = 1 / sqrt(var(x) + eps),  h = (x - mean(x)) * s,  g = dy * gamma
//   dx = s * (g - mean(g) - h * mean(g * h))
//   dgamma = sum of dy * h over rows,  dbeta = sum of dy over rows
//
// Shapes    x [..., n], gamma [n], dy [..., n]  ->  dx [..., n], dgamma [n], dbeta [n].
// Numerics  accumulated in f32.
// Gradient  none.
#include <cmath>
#include <vector>

#include "ops/op.h"

namespace bowline::detail::layer_norm_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  const Shape row{x.back()};
  BOWLINE_REQUIRE(c.in(1) == row, "Shape of gamma ({}) is not the shape of a row ({}).", c.in(1),
                  row);
  BOWLINE_REQUIRE(c.in(2) == x, "Shape of dy ({}) is not the shape of x ({}).", c.in(2), x);
  BOWLINE_TRY(c.out(0, x));
  BOWLINE_TRY(c.out(1, row));
  return c.out(2, row);
}

// A normalized row, and the magnitude of its terms.
struct Row {
  double scale = 0;
  double condition = 0;  // error of the root relative to x - mean
  std::vector<double> normal, lost;
};

[[maybe_unused]] Row normalise(std::span<const double> x, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, size = 0, square = 0, var = 0;
  for (const double v : x) {
    mean += v / n;
    size += std::abs(v) / n;
    square += v * v / n;
  }
  for (const double v : x) {
    var += (v - mean) * (v - mean) / n;
  }
  Row row;
  row.scale = 1 / std::sqrt(var + eps);
  row.condition = 1 + 2 * std::sqrt(square) * row.scale;
  for (const double v : x) {
    row.normal.push_back((v - mean) * row.scale);
    row.lost.push_back((std::abs(v) + size) * row.scale +
                       std::abs(row.normal.back()) * row.condition);
  }
  return row;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t n = c.last_axis(0);
  const double eps = c.attributes<LayerNormAttributes>().eps();
  const auto gamma = c.in(1);
  const auto dx_magnitude = c.zero_magnitude(0);
  const auto dgamma_magnitude = c.zero_magnitude(1);
  const auto dbeta_magnitude = c.zero_magnitude(2);
  for (size_t at = 0; at < c.in(0).size(); at += n) {
    const Row row = normalise(c.in(0).subspan(at, n), eps);
    const auto dy = c.in(2).subspan(at, n);
    double mean_g = 0, mean_gh = 0, size_g = 0, size_gh = 0;
    for (size_t i = 0; i < n; ++i) {
      const double g = dy[i] * gamma[i] / static_cast<double>(n);
      mean_g += g;
      mean_gh += g * row.normal[i];
      size_g += std::abs(g);
      size_gh += std::abs(g) * row.lost[i];
    }
    for (size_t i = 0; i < n; ++i) {
      const double g = dy[i] * gamma[i];
      const double inner = g - mean_g - row.normal[i] * mean_gh;
      c.out(0)[at + i] = row.scale * inner;
      c.out(1)[i] += dy[i] * row.normal[i];
      c.out(2)[i] += dy[i];
      dx_magnitude[at + i] =
          row.scale * (std::abs(g) + size_g + row.lost[i] * std::abs(mean_gh) +
                       std::abs(row.normal[i]) * size_gh + std::abs(inner) * row.condition);
      dgamma_magnitude[i] += std::abs(dy[i]) * row.lost[i];
      dbeta_magnitude[i] += std::abs(dy[i]);
    }
  }
}

// dx: sums over the row. dgamma and dbeta: sums over the rows.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0).back(), c.in(0).rows()), 6);
}

}  // namespace

extern const OpDef op_layer_norm_grad{
    .name = "LayerNormGrad",
    .inputs = 3,
    .outputs = 3,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::layer_norm_grad_op
