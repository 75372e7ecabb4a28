// MaskTail: replaces the elements behind the current size of a dynamic axis by a neutral value.
//
//   y[.., i, ..] = i < size ? x[.., i, ..] : fill   along `axis`
//
// The library inserts MaskTail before an operator that combines the elements of a dynamic axis
// (graph/counted.h).
//
// Shapes    x of rank >= 1  ->  y of the shape of x. For an integer dtype, fill is an integer.
// Dynamic   x along `axis`, with its current size. If the axis is static, y = x.
// Gradient  none, because training makes dynamic dimensions static (graph/counted.h).
// In place  on x.
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::mask_tail_op {
namespace {

Status infer(InferContext& c) {
  const auto& t = c.attributes<MaskTailAttributes>();
  BOWLINE_TRY(normalise_axis(t.axis(), c.in(0).rank()).status());
  BOWLINE_REQUIRE(
      is_float(c.dtype(0)) || (std::abs(t.fill()) < 0x1p24f && t.fill() == std::floor(t.fill())),
      "Fill {} is not an integer that f32 can represent.", t.fill());
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<MaskTailAttributes>();
  const int axis = c.axis<MaskTailAttributes>(c.shape(0).rank());
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    c.out(0)[i.flat()] =
        i[axis] < c.extent(0, axis) ? c.in(0)[i.flat()] : static_cast<double>(t.fill());
  }
}

}  // namespace

extern const OpDef op_mask_tail{
    .name = "MaskTail",
    .role = OpRole::mask_tail,
    .types = "A -> A",
    .in_place = {{0, 0}},
    .reads_counts = true,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::mask_tail_op
