// Cast: converts values to another dtype.
//
//   y[i] = x[i] as `to`
//
//   to a float           round to nearest even; overflow gives infinity. Integers become f32 first.
//   float to integer     round towards zero; saturate at the range of the dtype; NaN gives 0.
//   integer to integer   keep the low bits (two's complement).
//   to bool              x != 0; NaN gives true.
//   from bool            0 or 1.
//
// Shapes    x of any shape and dtype  ->  y of the shape of x and the dtype `to`.
// Gradient  if both dtypes are floats, Cast of dy to the dtype of x. Otherwise none.
// Source    ONNX operators, Cast. ONNX does not specify the saturation of floats.
#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/op.h"

namespace bowline::detail::cast_op {
namespace {

DType target(const Attributes& attributes) {
  return static_cast<DType>(attributes.as<CastAttributes>().to());
}

Status infer(InferContext& c) {
  return c.out(0, c.in(0), static_cast<DType>(c.attributes<CastAttributes>().to()));
}

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::Cast, {c.dout(0)}, cast_attributes(c.dtype(c.in(0)))));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = elementwise::cast_one(c.in(0)[i], c.dtype(0), target(c.attributes()));
  }
}

}  // namespace

extern const OpDef op_cast{
    .name = "Cast",
    .derived_copy = DerivedCopy::by_element,
    .types = "A -> B",
    .infer = infer,
    .counted = counted::elementwise,
    .gradient = gradient,
    .keeps_loss_weight = 0b1,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::cast_op
