// Split: parts of a tensor along an axis.
//
//   y_k[.., i, ..] = x[.., offset_k + i, ..], offset_k = sum of the sizes before k
//
// Shapes    x of rank >= 1  ->  one y per size. The sizes add up to the size of the axis.
// Gradient  Concat of the gradients, with zeros for parts that do not affect the loss.
#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::split_op {
namespace {

int count_outputs(const Attributes& attributes) {
  return static_cast<int>(attributes.as<SplitAttributes>().sizes()->size());
}

Status infer(InferContext& c) {
  const auto& t = c.attributes<SplitAttributes>();
  Shape y = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), y.rank()));
  int64_t sum = 0;
  for (uint32_t k = 0; k < t.sizes()->size(); ++k) {
    const int64_t size = t.sizes()->Get(k);
    BOWLINE_REQUIRE(size >= 0, "Size {} is negative: {}.", k, size);
    y[axis] = size;
    sum += size;
    BOWLINE_TRY(c.out(static_cast<int>(k), y));
  }
  BOWLINE_REQUIRE(t.sizes()->size() > 0, "There are no sizes.");
  BOWLINE_REQUIRE(sum == c.in(0)[axis], "The sizes add up to {}, but the axis has {} elements.",
                  sum, c.in(0)[axis]);
  return {};
}

Status gradient(GradientContext& c) {
  const auto& t = c.attributes<SplitAttributes>();
  GradientValues parts;
  for (int k = 0; k < count_outputs(c.attributes()); ++k) {
    GradientValue part = c.dout(k);
    if (!part.valid()) {
      part = zeros_like(c, c.out(k));
    }
    parts.push_back(part);
  }
  ConcatAttributesT a;
  a.axis = t.axis();
  return c.din(0, c.add1(Op::Concat, parts, Attributes::of(a)));
}

Status counted_axes(CountedContext& c) {
  const auto& t = c.attributes<SplitAttributes>();
  const int axis = c.axis<SplitAttributes>(c.in(0).rank());
  BOWLINE_TRY(counted::none(c, 0, axis, axis + 1, "a split axis must be static"));
  for (int k = 0; k < static_cast<int>(t.sizes()->size()); ++k) {
    counted::pass(c, 0, c.in(0).rank(), k);
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<SplitAttributes>();
  const Shape& x = c.shape(0);
  const int axis = c.axis<SplitAttributes>(x.rank());
  int64_t offset = 0;
  for (int k = 0; k < static_cast<int>(t.sizes()->size()); ++k) {
    for (Index i(c.out_shape(k)); i.valid(); i.next()) {
      c.out(k)[i.flat()] = c.in(0)[i.in_whole(x, axis, offset)];
    }
    offset += c.out_shape(k)[axis];
  }
}

}  // namespace

extern const OpDef op_split{
    .name = "Split",
    .count_outputs = count_outputs,
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::split_op
