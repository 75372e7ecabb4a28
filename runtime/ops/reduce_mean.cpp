// ReduceMean: the mean over some axes.
//
//   y[kept axes] = (sum of x over `axes`) / n, where n is the number of elements per sum
//
// Shapes    x  ->  y without the reduced axes. With keep_dims, they remain with size 1. If `axes`
//           is empty, all axes are reduced.
// Numerics  accumulated in f32. The mean of no elements is NaN.
// Gradient  BroadcastTo of dy / n.
#include <cmath>

#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"
#include "ops/reduced.h"

namespace bowline::detail::reduce_mean_op {
namespace {

Status gradient(GradientContext& c) {
  const Shape x = c.shape(c.in(0));
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), x));
  const GradientValue d = scaled(c, c.dout(0), 1 / static_cast<float>(r.length));
  return c.din(0, broadcast_to(c, reshaped(c, d, r.kept), x));
}

// The number of elements, if the mean covers all of them.
std::optional<LossWeight> loss_weight(GradientContext& c) {
  return c.shape(c.out(0)).elements() == 1
             ? std::optional(LossWeight{{}, static_cast<double>(c.shape(c.in(0)).elements())})
             : std::nullopt;
}

Status counted_axes(CountedContext& c) {
  return count_reduced(c, [&](int axis) {
    return counted::none(c, 0, axis, axis + 1, "the mean needs a static number of elements");
  });
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Reduced r = reduced(c.attributes<ReduceAttributes>(), c.shape(0)).value();
  const auto n = static_cast<double>(r.length);
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    const size_t j = i.in_broadcast(r.kept);
    c.out(0)[j] += c.in(0)[i.flat()];
    magnitude[j] += std::abs(c.in(0)[i.flat()]) / n;
  }
  for (double& y : c.out(0)) {
    y /= n;
  }
}

}  // namespace

extern const OpDef op_reduce_mean{
    .name = "ReduceMean",
    .stays_f32 = true,
    .infer = infer_reduced,
    .counted = counted_axes,
    .gradient = gradient,
    .loss_weight = loss_weight,
    .keeps_loss_weight = 0b1,
    .loss_terms = LossTerms::total,
    .oracle = BOWLINE_ORACLE(oracle),
    // One sum, then a division, or a product with the rounded 1 / n.
    .tolerance = reduced_tolerance<2>,
};

}  // namespace bowline::detail::reduce_mean_op
