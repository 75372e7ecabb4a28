// Parts shared by the recurrent operators: the shape of a layer, the previous states of its steps,
// and its cells in double precision with the magnitudes of their rounding errors.
#pragma once

#include <cmath>

#include "ops/build.h"
#include "ops/counted.h"

namespace bowline::detail::recurrent {

// Sizes of gates [T, B, gates * H] and w [gates * H, H].
struct Layer {
  int64_t steps = 0;
  int64_t batch = 0;
  int64_t hidden = 0;
  Shape states() const { return Shape{steps, batch, hidden}; }
  Shape state() const { return Shape{batch, hidden}; }
};

// The sizes of a layer. Inference has checked the shapes.
inline Layer layer_of(const Shape& gates, const Shape& w) { return {gates[0], gates[1], w[1]}; }

inline Result<Layer> check_layer(const Shape& gates, const Shape& w, int64_t count) {
  BOWLINE_REQUIRE(gates.rank() == 3, "The gates have rank {}, not 3.", gates.rank());
  BOWLINE_REQUIRE(w.rank() == 2, "The weight has rank {}, not 2.", w.rank());
  BOWLINE_REQUIRE(w[0] == count * w[1], "The weight {} does not fit {} gates of {} units.", w,
                  count, w[1]);
  BOWLINE_REQUIRE(gates[2] == w[0],
                  "The last axis of the gates {} is not the number of rows of the weight {}.",
                  gates, w);
  return layer_of(gates, w);
}

// Rule for dynamic dimensions. Sequences are independent, and a step depends only on the steps
// before it. `batches` are the batch axes.
inline Status count_layer(CountedContext& c, bool reverse, std::span<const counted::Axis> batches) {
  BOWLINE_TRY(counted::none(c, 0, 2, 3, "the size of the gates must be static"));
  BOWLINE_TRY(counted::none(c, 1, "a weight must be static"));
  if (reverse) {
    BOWLINE_TRY(counted::none(c, 0, 0, 1, "a backward layer starts at the end of the sequence"));
  }
  BOWLINE_TRY_ASSIGN(const int batch, counted::common(c, batches));
  for (int o = 0; o < 3; ++o) {
    c.count(o, 0, c.dim(0, 0));
    c.count(o, 1, batch);
  }
  return {};
}

// The previous state of each step, as rows [T * B, H]: `first`, then all states except the last.
inline GradientValue previous_states(GradientContext& c, const Layer& layer, GradientValue first,
                                     GradientValue states, bool reverse) {
  const Shape rows{layer.steps * layer.batch, layer.hidden};
  if (layer.steps == 0) {
    return reshaped(c, states, rows);
  }
  GradientValues parts = {reshaped(c, first, Shape{1, layer.batch, layer.hidden})};
  if (layer.steps > 1) {
    parts.insert(reverse ? parts.begin() : parts.end(),
                 sliced(c, states, 0, reverse ? 1 : 0, layer.steps - 1));
  }
  const GradientValue all =
      parts.size() == 1 ? parts[0] : c.add1(Op::Concat, parts, Attributes::of(ConcatAttributesT{}));
  return reshaped(c, all, rows);
}

// A value and the magnitude against which its rounding error is measured: the first-order sum of
// all roundings that led to the value.
struct Number {
  double value = 0;
  double size = 0;
};

inline Number given(double value) { return {value, 0}; }
inline Number operator+(const Number& a, const Number& b) {
  return {a.value + b.value, a.size + b.size + std::abs(a.value) + std::abs(b.value)};
}
inline Number operator*(const Number& a, const Number& b) {
  const double value = a.value * b.value;
  return {value, a.size * std::abs(b.value) + std::abs(a.value) * b.size + std::abs(value)};
}
// 1 - x. If x is close to 1, for example a rounded square, the difference cancels.
inline Number rest(const Number& x) { return {1 - x.value, x.size + std::abs(1 - x.value)}; }
inline Number negative(const Number& x) { return {-x.value, x.size}; }
inline Number sigmoid(const Number& x) {
  const double y = 1 / (1 + std::exp(-x.value));
  return {y, y * (1 - y) * x.size + y};
}
inline Number tanh(const Number& x) {
  const double y = std::tanh(x.value);
  return {y, (1 - y * y) * x.size + std::abs(y)};
}
// Derivatives of sigmoid and tanh, computed from their results.
inline Number sigmoid_slope(const Number& y) { return y * rest(y); }
inline Number tanh_slope(const Number& y) { return rest(y * y); }

// Writes elements of the three outputs with their magnitudes.
class Writer {
 public:
  explicit Writer(const OracleContext& c)
      : c_(c), sizes_{c.zero_magnitude(0), c.zero_magnitude(1), c.zero_magnitude(2)} {}
  // Returns x.
  const Number& operator()(int output, size_t at, const Number& x) const {
    c_.out(output)[at] = x.value;
    sizes_[output][at] = x.size;
    return x;
  }

 private:
  const OracleContext& c_;
  std::span<double> sizes_[3];
};

// Adds to `sum` the dot product of x with the elements at, at + step, ... of w.
inline Number dot(Number sum, std::span<const double> w, size_t at, size_t step,
                  std::span<const Number> x) {
  for (const Number& v : x) {
    const double term = w[at] * v.value;
    sum.value += term;
    sum.size += std::abs(term) + std::abs(w[at]) * v.size;
    at += step;
  }
  return {sum.value, sum.size};
}

// The time step of iteration `i`.
inline size_t step_at(size_t i, size_t steps, bool reverse) { return reverse ? steps - 1 - i : i; }

}  // namespace bowline::detail::recurrent
