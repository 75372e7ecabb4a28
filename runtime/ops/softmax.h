// Parts shared by Softmax, LogSoftmax and their gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::softmax {

// Shape inference of the operator `op` or of its gradient. `x` names input 0 in messages; input 1
// of the gradient is dy.
inline Status infer(InferContext& c, std::string_view op, std::string_view x) {
  const Shape& shape = c.in(0);
  BOWLINE_REQUIRE(shape.rank() >= 1, "Input {} has rank 0.", x);
  if (c.inputs() == 2) {
    BOWLINE_TRY(check_shape("dy", c.in(1), x, shape));
  }
  const int axis = c.attributes<SoftmaxAttributes>().axis();
  BOWLINE_TRY_ASSIGN(const int normalised, normalise_axis(axis, shape.rank()));
  BOWLINE_REQUIRE_CODE(normalised == shape.rank() - 1, Code::unsupported,
                       "{} over axis {} of {} is not implemented; it runs over the last axis.", op,
                       axis, shape);
  return c.out(0, shape);
}

inline Status counted_axes(CountedContext& c) {
  c.mask(0, c.in(0).rank() - 1, -std::numeric_limits<double>::infinity());
  return counted::elementwise(c);
}

}  // namespace bowline::detail::softmax
