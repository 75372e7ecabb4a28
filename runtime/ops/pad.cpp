// Pad: adds elements around a tensor, or crops it.
//
//   y[.., i, ..] = x[.., i - begin, ..] inside x; outside of x
//     constant   value
//     edge       the nearest element
//     reflect    the element mirrored at the edge; the edge itself is not repeated
//     wrap       the element of the periodic continuation of x
//
// Shapes    x  ->  y, whose axes have begin + end more elements. begin and end have one entry per
//           axis. A negative entry crops; the other entries then pad the cropped tensor (as ONNX
//           Runtime does).
// Limits    reflect pads at most size - 1 elements, as PyTorch (NumPy reflects repeatedly). wrap
//           repeats x as often as needed, as NumPy (PyTorch's circular repeats once).
// Numerics  exact. value is converted to the dtype of x as Cast does.
// Gradient  constant: Pad of dy with negated entries. Other modes: PadGrad.
// Source    ONNX operators, Pad.
#include "ops/counted.h"
#include "ops/elementwise.h"
#include "ops/padding.h"

namespace bowline::detail::pad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const auto axes, padding::axes_of(c.attributes<PadAttributes>(), c.in(0)));
  Shape y;
  for (const PaddedAxis& axis : axes) {
    y.push_back(axis.whole);
  }
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  PadAttributesT t;
  c.attributes<PadAttributes>().UnPackTo(&t);
  if (t.mode != PadMode::constant) {
    return c.din(0, padding::gradient_of(c, t));
  }
  t.value = 0;
  for (auto* pads : {&t.begin, &t.end}) {
    for (int64_t& pad : *pads) {
      pad = -pad;
    }
  }
  return c.din(0, c.add1(Op::Pad, {c.dout(0)}, Attributes::of(t)));
}

Status counted_axes(CountedContext& c) {
  const auto& t = c.attributes<PadAttributes>();
  for (int a = 0; a < c.in(0).rank(); ++a) {
    const auto i = static_cast<uint32_t>(a);
    if (t.begin()->Get(i) != 0 || t.end()->Get(i) != 0) {
      BOWLINE_TRY(counted::none(c, 0, a, a + 1, "a padded axis must be static"));
    }
  }
  return counted::elementwise(c);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<PadAttributes>();
  const auto axes = padding::axes_of(t, c.shape(0)).value();
  const DType type = c.dtype(0);
  const double value =
      is_float(type) ? static_cast<double>(t.value())
                     : elementwise::cast_one(static_cast<double>(t.value()), DType::f32, type);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    const int64_t at = padding::position_of(axes, t.mode(), i);
    c.out(0)[i.flat()] = at < 0 ? value : c.in(0)[static_cast<size_t>(at)];
  }
}

}  // namespace

extern const OpDef op_pad{
    .name = "Pad",
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::pad_op
