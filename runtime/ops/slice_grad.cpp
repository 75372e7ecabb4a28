// SliceGrad: the gradient of Slice. Puts a range back into its axis, with zeros around it.
//
//   dx[.., start + i, ..] = dy[.., i, ..], 0 elsewhere
//
// Shapes    dy of rank >= 1  ->  dx, whose axis has `size` elements; start + the size of dy <=
//           size.
// Gradient  none.
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::slice_grad_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<SliceGradAttributes>();
  Shape dx = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), dx.rank()));
  BOWLINE_REQUIRE(t.start() >= 0 && t.start() <= t.size() && dx[axis] <= t.size() - t.start(),
                  "A range of {} from {} lies outside the axis ({}).", dx[axis], t.start(),
                  t.size());
  dx[axis] = t.size();
  return c.out(0, dx);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<SliceGradAttributes>();
  const Shape& dx = c.out_shape(0);
  const int axis = c.axis<SliceGradAttributes>(dx.rank());
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    c.out(0)[i.in_whole(dx, axis, t.start())] = c.in(0)[i.flat()];
  }
}

}  // namespace

extern const OpDef op_slice_grad{
    .name = "SliceGrad",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::slice_grad_op
