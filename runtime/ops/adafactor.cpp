// Adafactor: steps relative to second moments, which matrices keep as their rows and columns alone,
// and to the size of the weight.
//
//   g = grad * scale,  rate = learning_rate * learning_rate_factor,  b = update^beta2_decay,
//   eps = that attribute or, if it is 0, 2^-23
//   rms(x) = sqrt(mean of x^2)
//   alpha = max(eps2, rms(w)) * min(rate, 1 / sqrt(update))
//   w = w * (1 - rate * weight_decay)
//   matrices [..., R, C]:  r = (1 - b) r + b mean over C of g^2,  c = (1 - b) c + b mean over R of
//       g^2
//                          v = r c / max(mean over R of r, eps)
//   others:                v = (1 - b) v + b g^2
//   u = g / sqrt(max(v, eps^2)),  w = w - alpha * u / max(1, rms(u) / update_clip)
//
// Operands  lists of storages: weights, grads; scale [1]; lists: v; or, of matrices, r and c, from
//           whose sizes those of the matrices follow; then the masters of 16-bit weights
//           (ops/optimizer.h). Updates weights and the lists behind the scale.
// Step      update counts from 1; does nothing if error or non_finite is set; sets
//           weights_non_finite.
// Numerics  sums in f32, in a fixed order.
// Gradient  none.
// Source    Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
//           2018, as torch.optim.Adafactor: decoupled weight decay, no first moment, the learning
//           rate bounds the relative step.
#include <cmath>

#include "core/optimizers.h"
#include "ops/optimizer.h"

namespace bowline::detail::adafactor_op {
namespace {

// Lists have no shape of their own. The count decides whether the weights are matrices.
Status infer(InferContext& c) {
  const int least = c.dtype(0) == DType::f32 ? 4 : 5;
  BOWLINE_TRY(optimizer::check_masters(c, c.inputs() <= least ? 4 : 5));
  BOWLINE_REQUIRE(c.in(2) == Shape{1}, "The scale has shape {}, not [1].", c.in(2));
  for (int o = 0; o < c.inputs() - 2; ++o) {
    BOWLINE_TRY(c.out(o, c.in(o == 0 ? 0 : o + 2)));
  }
  return {};
}

double mean_of_squares(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) {
    sum += v * v;
  }
  return sum / static_cast<double>(x.size());
}

// One storage; `row` and `column` are empty for those that keep v whole.
struct Entry {
  std::span<double> w, v, row, column;
  std::vector<double> g;
};

// v of every element.
std::vector<double> second_moments(const Entry& e, double b, double eps) {
  const size_t n = e.w.size();
  std::vector<double> out(n);
  if (e.row.empty()) {
    for (size_t i = 0; i < n; ++i) {
      e.v[i] = (1 - b) * e.v[i] + b * e.g[i] * e.g[i];
      out[i] = e.v[i];
    }
    return out;
  }
  const size_t batch = e.row.size() * e.column.size() / n;
  const size_t rows = e.row.size() / batch, columns = e.column.size() / batch;
  for (double& r : e.row) {
    r *= 1 - b;
  }
  for (double& c : e.column) {
    c *= 1 - b;
  }
  for (size_t i = 0; i < n; ++i) {
    const double square = b * e.g[i] * e.g[i];
    e.row[i / columns] += square / static_cast<double>(columns);
    e.column[i / (rows * columns) * columns + i % columns] += square / static_cast<double>(rows);
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t matrix = i / (rows * columns);
    double mean = 0;
    for (size_t k = 0; k < rows; ++k) {
      mean += e.row[matrix * rows + k] / static_cast<double>(rows);
    }
    out[i] = e.row[i / columns] * e.column[matrix * columns + i % columns] / std::max(mean, eps);
  }
  return out;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AdafactorAttributes>();
  const double scale = c.in(2)[0], update = c.step(step::adafactor::update);
  const double eps = t.eps() == 0 ? std::ldexp(1.0, -23) : static_cast<double>(t.eps());
  const double learning_rate = c.step(step::adafactor::learning_rate);
  const double rate = learning_rate * t.learning_rate_factor();
  const double b = std::pow(update, static_cast<double>(t.beta2_decay()));
  const auto values = static_cast<int>(updated_values(c.dtype(0), static_cast<size_t>(c.inputs())));
  const int weights = values == 0 ? 0 : values - 2;  // output
  const bool matrices = c.inputs() == (values == 0 ? 5 : 6);
  for (int o = 0; o < c.inputs() - 2; ++o) {
    std::ranges::copy(c.in(o == 0 ? 0 : o + 2), c.out(o).begin());
  }
  const auto magnitude = c.zero_magnitude(weights);
  std::ranges::transform(c.in(values), magnitude.begin(), [](double w) { return std::abs(w); });
  if (c.facts.error || c.step(step::adafactor::non_finite) != 0) {
    return;
  }
  size_t at[4] = {};
  for (size_t k = 0; k < c.entries(0).size(); ++k) {
    const auto part = [&](int list, int out) {
      const auto n = static_cast<size_t>(c.entries(list)[k]);
      const auto all = c.out(out).subspan(at[out], n);
      at[out] += n;
      return all;
    };
    const size_t first = at[weights];
    Entry e;
    e.w = part(values, weights);
    (matrices ? e.row : e.v) = part(3, 1);
    if (matrices) {
      e.column = part(4, 2);
    }
    if (e.w.empty()) {
      continue;
    }
    for (size_t i = 0; i < e.w.size(); ++i) {
      e.g.push_back(c.in(1)[first + i] * scale);
    }
    const double alpha = std::max(static_cast<double>(t.eps2()), std::sqrt(mean_of_squares(e.w))) *
                         std::min(rate, 1 / std::sqrt(update));
    std::vector<double> u = second_moments(e, b, eps);
    for (size_t i = 0; i < u.size(); ++i) {
      u[i] = e.g[i] / std::sqrt(std::max(u[i], eps * eps));
    }
    const double denominator = std::max(1.0, std::sqrt(mean_of_squares(u)) / t.update_clip());
    for (size_t i = 0; i < u.size(); ++i) {
      const double step = alpha * u[i] / denominator;
      magnitude[first + i] += std::abs(rate * t.weight_decay() * e.w[i]) + std::abs(step);
      e.w[i] = e.w[i] * (1 - rate * t.weight_decay()) - step;
      if (!std::isfinite(e.w[i])) {
        c.write(step::adafactor::weights_non_finite, 1);
      }
    }
  }
  std::ranges::copy(c.out(weights), c.out(0).begin());
  c.magnitude(0) = c.magnitude(weights);
}

// Under roots, which halve it: the sums for a row, a column and the mean of rows in u, again in
// rms(u) with a sum of its own, and the sum of alpha: eight halves. No sum is longer than the list.
// b costs |beta2_decay log update| < 32 roundings.
Tolerance tolerance(ToleranceContext& c) {
  const double sum = Tolerance::of_reduction(c.in(0).elements(), 0).roundings;
  return Tolerance::of_roundings(4 * sum + 64);
}

}  // namespace

extern const OpDef op_adafactor;
const OpDef op_adafactor{
    .name = "Adafactor",
    .inputs = 4,
    .optional_inputs = 2,
    .outputs = 2,
    .optional_outputs = 2,
    .takes_lists = true,
    .list_inputs = 0b111011,
    .types = "F, f32 -> F, f32",
    .updates = {{0, 0}, {1, 3}, {2, 4}, {3, 5}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::adafactor_op
