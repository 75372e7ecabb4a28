// ScatterElements: replaces single elements along an axis, or combines them with updates.
//
//   y = data;  y[.., indices[.., i, ..], ..] = f(itself, updates[.., i, ..])
//   for i = 0, 1, ... along the axis
//
//   f(y, u) = u (`none`; the last of equal indices wins), y + u, y * u, max(y, u) or min(y, u)
//
// Shapes    data of rank >= 1; updates of the same rank, and no larger than data along every other
//           axis; indices i32 of the shape of updates, or with size 1 where they are the same along
//           an axis  ->  y of the shape of data. Negative indices count from the end of the axis.
// Numerics  sums and products are accumulated in f32 and rounded once. Integers wrap around. max
//           and min return NaN if an operand is NaN. `none` takes any dtype; the other reductions
//           take numeric dtypes.
// Errors    index_out_of_range: an index is outside [-n, n) for an axis of size n. Its update is
//           ignored.
// Gradient  `add`: data gets dy, and updates gets GatherElements of dy. `none`: data gets dy with
//           zeros where an element was replaced; the last update of an index gets the dy of its
//           element, and the others get 0 (in PyTorch, all updates of equal indices get it). The
//           gradient of other reductions is refused.
// Source    ONNX operators, ScatterElements, whose indices have the shape of updates.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/gather.h"

namespace bowline::detail::scatter_elements_op {
namespace {

const char* name_of(ScatterReduction reduction) {
  constexpr const char* kNames[] = {"none", "add", "mul", "max", "min"};
  return kNames[static_cast<size_t>(reduction)];
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<ScatterElementsAttributes>();
  const Shape& data = c.in(0);
  const Shape& indices = c.in(1);
  const Shape& updates = c.in(2);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), data.rank()));
  BOWLINE_TRY(gather::check_within("updates", updates, data, axis));
  bool fits = indices.rank() == updates.rank();
  for (int a = 0; fits && a < updates.rank(); ++a) {
    fits = indices[a] == updates[a] || (a != axis && indices[a] == 1);
  }
  BOWLINE_REQUIRE(fits, "Shape of the indices ({}) does not fit the updates ({}).", indices,
                  updates);
  BOWLINE_REQUIRE(t.reduction() == ScatterReduction::none || c.dtype(0) != DType::boolean,
                  "The reduction \"{}\" does not support bool.", name_of(t.reduction()));
  return c.out(0, data);
}

// Marks the last update of each index: scatters 0, 1, ... and compares.
GradientValue last_ones(GradientContext& c, GradientValue indices, const Shape& updates, int axis) {
  CumSumAttributesT count;
  count.axis = axis;
  count.exclusive = true;
  const GradientValue ones = filled(c, updates, DType::i32, 1);
  const GradientValue number = c.add1(Op::CumSum, {ones}, Attributes::of(count));
  const GradientValue none = filled(c, c.shape(c.in(0)), DType::i32, 0);
  const GradientValue left =
      gather::scattered(c, none, indices, number, axis, ScatterReduction::none);
  return c.add1(Op::Equal, {gather::gathered(c, left, indices, axis), number});
}

Status gradient(GradientContext& c) {
  const auto reduction = c.attributes<ScatterElementsAttributes>().reduction();
  BOWLINE_REQUIRE_CODE(reduction == ScatterReduction::none || reduction == ScatterReduction::add,
                       Code::unsupported, "ScatterElements with \"{}\" is not differentiable.",
                       name_of(reduction));
  const bool replaces = reduction == ScatterReduction::none;
  const Shape updates = c.shape(c.in(2));
  const DType type = c.dtype(c.in(0));
  const int axis = c.axis<ScatterElementsAttributes>(updates.rank());
  if (c.needs(0)) {
    BOWLINE_TRY(c.din(0, replaces
                             ? gather::scattered(c, c.dout(0), c.in(1), filled(c, updates, type, 0),
                                                 axis, ScatterReduction::none)
                             : c.dout(0)));
  }
  if (!c.needs(2)) {
    return {};
  }
  const GradientValue indices = broadcast_to(c, c.in(1), updates);
  const GradientValue found = gather::gathered(c, c.dout(0), indices, axis);
  return c.din(2, replaces ? c.add1(Op::Where, {last_ones(c, indices, updates, axis), found,
                                                filled(c, updates, type, 0)})
                           : found);
}

// Lines of updates behind the current size only write into lines of data behind the current size.
Status counted_axes(CountedContext& c) {
  const int axis = c.axis<ScatterElementsAttributes>(c.in(0).rank());
  for (int a = 0; a < c.in(0).rank(); ++a) {
    for (const int i : {0, 1, 2}) {
      const bool is_one = i == 1 && c.in(1)[a] == 1 && c.dim(1, a) == c.kNone;
      if (c.dim(i, a) != c.kNone && a == axis) {
        return c.refuse(i, a, "a scattered axis must be static");
      }
      if (c.dim(i, a) != c.dim(0, a) && !is_one) {
        const int counted = c.dim(i, a) != c.kNone ? i : 0;
        return c.refuse(
            counted, a,
            format("the same axis of input {} does not match it", counted == 0 ? i : 0));
      }
    }
    c.mask(1, a, 0);
    c.count(0, a, c.dim(0, a));
  }
  return {};
}

double joined(ScatterReduction reduction, double y, double update) {
  switch (reduction) {
    case ScatterReduction::none:
      return update;
    case ScatterReduction::add:
      return y + update;
    case ScatterReduction::mul:
      return y * update;
    case ScatterReduction::max:
      return std::isnan(y) || y > update ? y : update;
    case ScatterReduction::min:
      break;
  }
  return std::isnan(y) || y < update ? y : update;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto reduction = c.attributes<ScatterElementsAttributes>().reduction();
  const Shape& data = c.shape(0);
  const int axis = c.axis<ScatterElementsAttributes>(data.rank());
  const auto magnitude = c.zero_magnitude(0);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = c.in(0)[i];
    magnitude[i] = std::abs(c.in(0)[i]);
  }
  for (Index i(c.shape(2)); i.valid(); i.next()) {
    const double index = c.in(1)[i.in_broadcast(c.shape(1))];
    const auto element = gather::element(index, data[axis]);
    if (!element) {
      c.outcome.bad_indices.push_back(index);
      continue;
    }
    const size_t at = i.in_whole(data, axis, *element - i[axis]);
    const double update = c.in(2)[i.flat()];
    c.out(0)[at] = elementwise::wrapped(joined(reduction, c.out(0)[at], update), c.dtype(0));
    magnitude[at] = reduction == ScatterReduction::add ? magnitude[at] + std::abs(update)
                                                       : std::abs(c.out(0)[at]);
  }
}

// Sums and products of at most all updates along the axis.
Tolerance tolerance(ToleranceContext& c) {
  const auto& t = c.attributes<ScatterElementsAttributes>();
  const Shape& updates = c.in(2);
  const bool rounds =
      t.reduction() == ScatterReduction::add || t.reduction() == ScatterReduction::mul;
  return rounds ? Tolerance::of_reduction(
                      updates[c.axis<ScatterElementsAttributes>(updates.rank())] + 1, 0)
                : Tolerance::exact();
}

}  // namespace

extern const OpDef op_scatter_elements{
    .name = "ScatterElements",
    .inputs = 3,
    .types = "A, i32, A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::scatter_elements_op
