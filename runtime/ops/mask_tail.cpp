// MaskTail: a neutral value behind the count of an axis.
//
//   y[.., i, ..] = i < count ? x[.., i, ..] : fill   along `axis`
//
// Bowline puts it in front of an operator that mixes the elements of a counted axis:
// graph/counted.h.
//
// Shapes    x of rank >= 1  ->  y of the shape of x. In an integer dtype fill is a whole number.
// Counted   x along the axis: that is the count. Otherwise y = x.
// Gradient  none: a training binds counted dims (graph/counted.h).
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
      "Fill {} is no whole number that an f32 holds.", t.fill());
  return c.out(0, c.in(0));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<MaskTailAttributes>();
  const int axis = t.axis() < 0 ? t.axis() + c.shape(0).rank() : t.axis();
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    c.out(0)[i.flat()] =
        i[axis] < c.extent(0, axis) ? c.in(0)[i.flat()] : static_cast<double>(t.fill());
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_mask_tail;
const OpDef op_mask_tail{
    .name = "MaskTail",
    .types = "A -> A",
    .in_place = {{0, 0}},
    .reads_counts = true,
    .masks_tail = true,
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::mask_tail_op
