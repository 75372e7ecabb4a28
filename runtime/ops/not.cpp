// Not: logical not.
//
//   y = not x
//
// Shapes    any x bool  ->  y bool of the shape of x.
// Gradient  none, because the input is bool.
// In place  on x.
#include "ops/elementwise.h"

namespace bowline::detail::not_op {
namespace {

elementwise::Point value(double x, const Attributes&) { return {x != 0 ? 0.0 : 1.0, 0}; }

}  // namespace

extern const OpDef op_not = elementwise::definition<value>("Not", exactly, nullptr, "T -> T");

}  // namespace bowline::detail::not_op
