// Fill: a constant tensor.
//
//   y = value, converted from f32 as Cast does
//
// Shapes    no input  ->  y of the shape `dims` and the dtype of the attribute.
// Gradient  none, because there is no input.
#include "ops/elementwise.h"
#include "ops/op.h"

namespace bowline::detail::fill_op {
namespace {

Status infer(InferContext& c) {
  const auto* dims = c.attributes<FillAttributes>().dims();
  BOWLINE_TRY_ASSIGN(const Shape y, Shape::checked({dims->data(), dims->size()}));
  return c.out(0, y, static_cast<DType>(c.attributes<FillAttributes>().dtype()));
}

Status gradient(GradientContext&) { return {}; }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (double& y : c.out(0)) {
    y = elementwise::cast_one(c.attributes<FillAttributes>().value(), DType::f32,
                              static_cast<DType>(c.attributes<FillAttributes>().dtype()));
  }
}

}  // namespace

extern const OpDef op_fill{
    .name = "Fill",
    .inputs = 0,
    .types = "-> A",
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::fill_op
