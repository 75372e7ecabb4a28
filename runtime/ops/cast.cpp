// Cast: the same numbers in another dtype.
//
//   y[i] = x[i] as `to`
//
//   to a float           to nearest even; what is too large becomes infinite. An integer becomes an f32 first.
//   a float to integers  towards zero; what lies outside the range becomes its nearest end, NaN becomes 0.
//   between integers     the low bits, two's complement.
//   to bool              x != 0; NaN is true.
//   from bool            0 or 1.
//
// Shapes    any x of any dtype  ->  y of the shape of x and the dtype `to`.
// Gradient  Cast of dy to the dtype of x, where both are floats; the others have none.
// Source    ONNX operators, Cast (the saturation of floats is ours: ONNX leaves it open).
#include <cmath>

#include "ops/counted.h"
#include "ops/op.h"

namespace bowline {
namespace {

DType target(const Attributes& attributes) {
  return static_cast<DType>(attributes.as<CastAttributes>().to());
}

Status infer(InferContext& c) {
  return c.out(0, c.in(0), static_cast<DType>(c.attributes<CastAttributes>().to()));
}

Status gradient(GradientContext& c) {
  CastAttributesT back;
  back.to = static_cast<file::DType>(c.dtype(c.in(0)));
  return c.din(0, c.add1(Op::Cast, {c.dout(0)}, Attributes::of(back)));
}

// Smallest and largest number of an integer dtype.
struct Range {
  double least;
  double most;
};
[[maybe_unused]] Range range_of(DType t) {
  const int bits = 8 * static_cast<int>(size_of(t));
  return t == DType::u8 ? Range{0, 255}
                        : Range{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

[[maybe_unused]] double cast_one(double x, DType from, DType to) {
  if (is_float(to)) {
    return is_float(from) ? x : static_cast<double>(static_cast<float>(x));
  }
  if (to == DType::boolean) {
    return x != 0 ? 1 : 0;
  }
  const auto [least, most] = range_of(to);
  if (is_float(from)) {
    return std::isnan(x) ? 0 : std::clamp(std::trunc(x), least, most);
  }
  const double count = most - least + 1;
  return x - std::floor((x - least) / count) * count;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = cast_one(c.in(0)[i], c.dtype(0), target(c.attributes()));
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_cast;
const OpDef op_cast{
    .name = "Cast",
    .derives_copies = true,
    .types = "A -> B",
    .infer = infer,
    .counted = counted::elementwise,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline
