// Expand: repeats a tensor along its axes of size 1, to the shape to which x and `dims` broadcast.
//
//   y[i] = x[j], where j is i without the leading axes that x lacks, and 0 on axes of size 1
//
// Shapes    x  ->  y of the shape to which the shape of x and `dims` broadcast by the rules of
//           NumPy. A 1 in `dims` keeps the size of x.
// Gradient  SumTo.
// Source    ONNX operators, Expand. expand of PyTorch uses -1 to keep a size.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::expand_op {
namespace {

Status infer(InferContext& c) {
  const auto* dims = c.attributes<ExpandAttributes>().dims();
  BOWLINE_TRY_ASSIGN(const Shape given, Shape::checked({dims->data(), dims->size()}));
  BOWLINE_TRY_ASSIGN(const Shape y, broadcast(c.in(0), given));
  return c.out(0, y);
}

Status gradient(GradientContext& c) { return c.din(0, summed_to(c, c.dout(0), c.shape(c.in(0)))); }

Status counted_axes(CountedContext& c) {
  const int missing = c.out(0).rank() - c.in(0).rank();
  for (int a = 0; a < c.in(0).rank(); ++a) {
    if (c.in(0)[a] != c.out(0)[a + missing]) {
      BOWLINE_TRY(counted::none(c, 0, a, a + 1, "an expanded axis must be static"));
    }
    c.count(0, a + missing, c.dim(0, a));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    c.out(0)[i.flat()] = c.in(0)[i.in_broadcast(c.shape(0))];
  }
}

}  // namespace

extern const OpDef op_expand{
    .name = "Expand",
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::expand_op
