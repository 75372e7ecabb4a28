// Transpose: reorders the axes.
//
//   y[i_p0, i_p1, ...] = x[i_0, i_1, ...] with p = permutation
//
// Shapes    x  ->  y, whose axis a is axis permutation[a] of x. Every axis is named once.
// Gradient  Transpose with the inverse permutation.
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::transpose_op {
namespace {

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  const auto* permutation = c.attributes<TransposeAttributes>().permutation();
  const size_t rank = permutation->size();
  BOWLINE_REQUIRE(rank == static_cast<size_t>(x.rank()),
                  "The permutation names {} axes, but the input has {}.", rank, x.rank());
  Shape y;
  uint32_t seen = 0;
  for (size_t a = 0; a < rank; ++a) {
    const int from = permutation->Get(static_cast<flatbuffers::uoffset_t>(a));
    BOWLINE_REQUIRE(from >= 0 && from < x.rank(),
                    "The permutation names axis {}, which the input {} does not have.", from, x);
    BOWLINE_REQUIRE((seen >> from & 1) == 0, "The permutation names axis {} twice.", from);
    seen |= 1u << from;
    y.push_back(x[from]);
  }
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  const int rank = c.shape(c.in(0)).rank();
  TransposeAttributesT inverse;
  inverse.permutation.resize(static_cast<size_t>(rank));
  for (int a = 0; a < rank; ++a) {
    const int from = c.attributes<TransposeAttributes>().permutation()->Get(
        static_cast<flatbuffers::uoffset_t>(a));
    inverse.permutation[static_cast<size_t>(from)] = a;
  }
  return c.din(0, c.add1(Op::Transpose, {c.dout(0)}, Attributes::of(inverse)));
}

Status counted_axes(CountedContext& c) {
  const auto* permutation = c.attributes<TransposeAttributes>().permutation();
  for (int a = 0; a < c.out(0).rank(); ++a) {
    c.count(0, a, c.dim(0, permutation->Get(static_cast<flatbuffers::uoffset_t>(a))));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const Shape& x = c.shape(0);
  for (Index i(c.out_shape(0)); i.valid(); i.next()) {
    std::array<int64_t, kMaxRank> at{};
    for (int a = 0; a < x.rank(); ++a) {
      const int from = c.attributes<TransposeAttributes>().permutation()->Get(
          static_cast<flatbuffers::uoffset_t>(a));
      at[static_cast<size_t>(from)] = i[a];
    }
    int64_t position = 0;
    for (int a = 0; a < x.rank(); ++a) {
      position = position * x[a] + at[static_cast<size_t>(a)];
    }
    c.out(0)[i.flat()] = c.in(0)[static_cast<size_t>(position)];
  }
}

}  // namespace

extern const OpDef op_transpose{
    .name = "Transpose",
    .role = OpRole::transpose,
    .types = "A -> A",
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::transpose_op
