// FusedMatMul: a fusion of MatMul or Linear with Add, Gelu, GeluGrad or SumTo.
//
//   v = a' b' + bias + addend
//   y = v, or with gelu: y = Gelu(v), or with gelu_grad: y = v * (derivative of Gelu at x)
//   s = the sums of the rows of a' (sum_a) or of the columns of b' (sum_b)
//   a' is a; with transpose_a, it is a with its axes swapped. b' likewise. Gelu has the form tanh.
//
// Shapes    a [..., M, K] (transposed [K, M]), b [K, N] (transposed [N, K]), then the inputs that
//           the attributes select, in this order: addend [..., M, N], x [..., M, N], bias [N]
//           ->  y [..., M, N]; with gelu, also v [..., M, N]; with sum_a, s [M]; with sum_b, s [N].
//           Of gelu, gelu_grad, sum_a and sum_b, at most one is set. The sums require transpose_a
//           without transpose_b, as in the gradient of a weight.
// Numerics  accumulated in f32. A kernel may apply Gelu to the rounded or to the unrounded v.
// Quantized a frozen b may be quantized; kernels dequantize it while reading.
// Gradient  none: graphs are rewritten after differentiation (graph/rewrites/products.cpp).
// Source    MatMul, Linear, Add, Gelu.
#include <cmath>

#include "core/products.h"
#include "ops/op.h"

namespace bowline::detail::fused_mat_mul_op {
namespace {

int count_outputs(const Attributes& attributes) {
  const auto& t = attributes.as<FusedMatMulAttributes>();
  return t.gelu() || t.sum_a() || t.sum_b() ? 2 : 1;
}

int sums(const FusedMatMulAttributes& t) { return (t.sum_a() ? 1 : 0) + (t.sum_b() ? 1 : 0); }

Status infer(InferContext& c) {
  const auto& t = c.attributes<FusedMatMulAttributes>();
  const Shape& a = c.in(0);
  const Shape& b = c.in(1);
  BOWLINE_REQUIRE(a.rank() >= 2, "Input a has rank {}, below 2.", a.rank());
  BOWLINE_REQUIRE(b.rank() == 2, "Input b has rank {}, not 2.", b.rank());
  BOWLINE_REQUIRE(!t.transpose_a() || a.rank() == 2, "The transposed a has rank {}, not 2.",
                  a.rank());
  const int extras = (t.gelu() ? 1 : 0) + (t.gelu_grad() ? 1 : 0) + sums(t);
  BOWLINE_REQUIRE(extras <= 1, "Gelu, its gradient and the sums exclude each other.");
  BOWLINE_REQUIRE(sums(t) == 0 || (t.transpose_a() && !t.transpose_b()),
                  "Sums need a transposed a and a plain b.");
  const int64_t k = a[a.rank() - (t.transpose_a() ? 2 : 1)];
  BOWLINE_REQUIRE(k == b[t.transpose_b() ? 1 : 0], "The inner dims of a {} and b {} differ.", a, b);
  const FusedInputs inputs(t);
  BOWLINE_REQUIRE(c.inputs() == inputs.count, "{} inputs are given, but the attributes select {}.",
                  c.inputs(), inputs.count);
  Shape y = a;
  y[y.rank() - 2] = t.transpose_a() ? a[1] : a[a.rank() - 2];
  y[y.rank() - 1] = b[t.transpose_b() ? 0 : 1];
  if (inputs.addend >= 0) {
    BOWLINE_TRY(check_shape("the addend", c.in(inputs.addend), y));
  }
  if (inputs.slope >= 0) {
    BOWLINE_TRY(check_shape("x", c.in(inputs.slope), y));
  }
  if (inputs.bias >= 0) {
    BOWLINE_TRY(check_shape("bias", c.in(inputs.bias), "a row", Shape{y.back()}));
  }
  if (t.gelu() || sums(t) > 0) {
    BOWLINE_TRY(c.out(1, t.gelu() ? y : Shape{t.sum_a() ? y[0] : y.back()}));
  }
  return c.out(0, y);
}

// The argument of tanh in Gelu.
double bend(double x) { return std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x); }

double gelu(double x) { return x / 2 * (1 + std::tanh(bend(x))); }

double gelu_slope(double x) {
  const double t = std::tanh(bend(x));
  const double inner = x / 2 * std::sqrt(2 / std::acos(-1.0)) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + inner * (1 - t * t);
}

// s, the sums of the columns of an input.
[[maybe_unused]] void add_columns(const OracleContext& c, int input) {
  c.zero_magnitude(1);
  for (size_t i = 0; i < c.in(input).size(); ++i) {
    c.add(1, i % c.out(1).size(), c.in(input)[i]);
  }
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<FusedMatMulAttributes>();
  const FusedInputs inputs(t);
  const auto y = c.out(0);
  const auto magnitude = c.zero_magnitude(0);
  const auto magnitude_v = t.gelu() ? c.zero_magnitude(1) : std::span<double>();
  const auto n = static_cast<size_t>(c.shape(1)[t.transpose_b() ? 0 : 1]);
  const auto k = static_cast<size_t>(c.shape(1)[t.transpose_b() ? 1 : 0]);
  const size_t m = n == 0 ? 0 : y.size() / n;
  for (size_t at = 0; at < y.size(); ++at) {
    const size_t row = at / n, column = at % n;
    double v = 0;
    double size = 0;
    for (size_t i = 0; i < k; ++i) {
      const double product = c.in(0)[t.transpose_a() ? i * m + row : row * k + i] *
                             c.in(1)[t.transpose_b() ? column * k + i : i * n + column];
      v += product;
      size += std::abs(product);
    }
    const double bias = inputs.bias < 0 ? 0 : c.in(inputs.bias)[column];
    const double addend = inputs.addend < 0 ? 0 : c.in(inputs.addend)[at];
    v += bias + addend;
    size += std::abs(bias) + std::abs(addend);
    y[at] = t.gelu() ? gelu(v) : v;
    magnitude[at] = size;
    if (t.gelu()) {
      c.out(1)[at] = v;
      magnitude_v[at] = size;
    }
    if (inputs.slope >= 0) {
      const double x = c.in(inputs.slope)[at];
      y[at] = v * gelu_slope(x);
      magnitude[at] = 2 * size;  // the slope cancels for large negative x
    }
  }
  if (sums(t) > 0) {
    add_columns(c, t.sum_a() ? 0 : 1);
  }
}

// A sum, and the roundings of Gelu.
Tolerance tolerance(ToleranceContext& c) {
  constexpr double kSlopeOfGelu = 1.13;  // at most
  const auto& t = c.attributes<FusedMatMulAttributes>();
  return c.of_products(c.in(1)[t.transpose_b() ? 1 : 0], 14, t.gelu() ? kSlopeOfGelu : 1);
}

}  // namespace

extern const OpDef op_fused_mat_mul{
    .name = "FusedMatMul",
    .inputs = 2,
    .optional_inputs = 3,
    .count_outputs = count_outputs,
    .is_fused = true,
    .encoded_inputs = 0b10,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::fused_mat_mul_op
