// Embedding: table rows selected by ids.
//
//   y[.., :] = table[ids[..], :]
//
// Shapes    table [rows, C], ids i32 [...]  ->  y [..., C].
// Errors    index_out_of_range: an id is outside [0, rows). Its row of y is zero.
// Quantized a frozen table may be quantized; y has the dequantized values.
// Gradient  EmbeddingGrad. Ids have no gradient.
#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::embedding_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_REQUIRE(c.in(0).rank() == 2, "The table has rank {}, not 2.", c.in(0).rank());
  BOWLINE_REQUIRE(c.in(1).rank() < kMaxRank,
                  "The ids have rank {}, which leaves no room for another axis.", c.in(1).rank());
  Shape y = c.in(1);
  y.push_back(c.in(0)[1]);
  return c.out(0, y);
}

Status gradient(GradientContext& c) {
  EmbeddingGradAttributesT a;
  a.rows = c.shape(c.in(0))[0];
  return c.din(0, c.add1(Op::EmbeddingGrad, {c.in(1), c.dout(0)}, Attributes::of(a)));
}

Status counted_axes(CountedContext& c) {
  BOWLINE_TRY(counted::none(c, 0, "the table must be static"));
  for (int a = 0; a < c.in(1).rank(); ++a) {
    c.mask(1, a, 0);  // 0 is a valid id
    c.count(0, a, c.dim(1, a));
  }
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto rows = static_cast<double>(c.shape(0)[0]);
  const size_t width = c.last_axis(0);
  for (size_t i = 0; i < c.in(1).size(); ++i) {
    const double id = c.in(1)[i];
    if (id < 0 || id >= rows) {
      c.outcome.bad_indices.push_back(id);
      continue;
    }
    for (size_t j = 0; j < width; ++j) {
      c.out(0)[i * width + j] = c.in(0)[static_cast<size_t>(id) * width + j];
    }
  }
}

}  // namespace

extern const OpDef op_embedding{
    .name = "Embedding",
    .inputs = 2,
    .types = "F, i32 -> F",
    .encoded_inputs = 0b1,
    .gathers = 0b1,
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::embedding_op
