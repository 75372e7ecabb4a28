// Linear: a matrix product with the transposed weight, plus a bias.
//
//   y[.., o] = sum over i of x[.., i] * w[o, i] + bias[o]
//
// Shapes    x [..., in], w [out, in], optional bias [out]  ->  y [..., out].
// Numerics  accumulated in f32.
// Quantized a frozen w may be quantized; kernels dequantize it while reading.
// Gradient  dx = dy w and dw = dy^T x, as MatMuls over all rows. dbias = SumTo of dy.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::linear_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  const Shape& w = c.in(1);
  BOWLINE_REQUIRE(x.rank() >= 1, "Input x has rank 0.");
  BOWLINE_REQUIRE(w.rank() == 2, "The weight has rank {}, not 2.", w.rank());
  BOWLINE_REQUIRE(w[1] == x.back(), "The weight {} takes rows of {}, x has rows of {}.", w, w[1],
                  x.back());
  if (c.inputs() == 3) {
    BOWLINE_TRY(check_shape("bias", c.in(2), "a row", Shape{w[0]}));
  }
  Shape y = x;
  y[y.rank() - 1] = w[0];
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const Shape x = c.shape(c.in(0));
  const Shape w = c.shape(c.in(1));
  const GradientValue dy = reshaped(c, c.dout(0), Shape{x.rows(), w[0]});
  if (c.needs(0)) {
    BOWLINE_TRY(c.din(0, reshaped(c, multiplied(c, dy, c.in(1)), x)));
  }
  if (c.needs(1)) {
    const GradientValue rows = reshaped(c, c.in(0), Shape{x.rows(), x.back()});
    BOWLINE_TRY(c.din(1, multiplied(c, dy, rows, true)));
  }
  if (c.inputs() == 3 && c.needs(2)) {
    BOWLINE_TRY(c.din(2, summed_to(c, dy, Shape{w[0]})));
  }
  return {};
}

// x w^T is a MatMul whose b is transposed.
TransposedInput with_transposed(const Attributes&, int i) {
  return {i < 2 ? Op::MatMul : Op::Invalid, mat_mul_attributes(i == 0, i != 1), 2};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const size_t in = c.last_axis(0);
  const size_t out = c.last_axis(0) == 0 ? static_cast<size_t>(c.shape(1)[0]) : c.in(1).size() / in;
  for (size_t at = 0; at < c.out(0).size(); ++at) {
    const size_t row = at / out;
    const size_t o = at % out;
    for (size_t i = 0; i < in; ++i) {
      c.add(0, at, c.in(0)[row * in + i] * c.in(1)[o * in + i]);
    }
    if (c.inputs() == 3) {
      c.add(0, at, c.in(2)[o]);
    }
  }
}

Tolerance tolerance(ToleranceContext& c) { return c.of_products(c.in(0).back(), 2); }

}  // namespace

extern const OpDef op_linear{
    .name = "Linear",
    .inputs = 2,
    .optional_inputs = 1,
    .costly = true,
    .encoded_inputs = 0b10,
    .infer = infer,
    .counted = counted::rows,
    .with_transposed = with_transposed,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::linear_op
