// Fill: a constant tensor.
//
//   y = value
//
// Shapes    no input  ->  y f32 of shape dims.
// Gradient  none is asked for: there is no input.
#include "ops/op.h"

namespace bowline {
namespace {

Status infer(InferContext& c) {
  const auto* dims = c.attributes<FillAttributes>().dims();
  BOWLINE_ASSIGN(const Shape y, Shape::checked({dims->data(), dims->size()}));
  return c.out(0, y);
}

Status gradient(GradientContext&) { return {}; }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (double& y : c.out(0)) {
    y = c.attributes<FillAttributes>().value();
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_fill;
const OpDef op_fill{
    .name = "Fill",
    .inputs = 0,
    .types = "-> f32",
    .infer = infer,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
