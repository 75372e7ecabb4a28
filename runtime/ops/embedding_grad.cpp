// EmbeddingGrad: the gradient of the table of an Embedding.
//
//   dtable[r, :] = sum of dy[i, :] over all positions i with ids[i] = r, in increasing order of i
//
// Shapes    ids i32 [...], dy [..., C]  ->  dtable [rows, C]. Ids outside [0, rows) are ignored.
// Numerics  accumulated in f32. The order is fixed, so every run gives the same bits.
// Gradient  none.
#include "ops/op.h"

namespace bowline::detail::embedding_grad_op {
namespace {

Status infer(InferContext& c) {
  const Shape& dy = c.in(1);
  BOWLINE_REQUIRE(dy.rank() >= 1, "Input dy has rank 0.");
  BOWLINE_REQUIRE(Shape(dy.dims().first(static_cast<size_t>(dy.rank() - 1))) == c.in(0),
                  "Shape of dy ({}) is not the shape of the ids ({}) and a row.", dy, c.in(0));
  const int64_t rows = c.attributes<EmbeddingGradAttributes>().rows();
  BOWLINE_TRY_ASSIGN(const Shape table, Shape::checked(std::array{rows, dy.back()}));
  return c.out(0, table);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto rows = static_cast<double>(c.attributes<EmbeddingGradAttributes>().rows());
  const size_t width = c.last_axis(1);
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    const double id = c.in(0)[i];
    if (id < 0 || id >= rows) {
      c.outcome.may_set_error = true;
      continue;
    }
    for (size_t j = 0; j < width; ++j) {
      c.add(0, static_cast<size_t>(id) * width + j, c.in(1)[i * width + j]);
    }
  }
}

// All positions may have the same id.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(0).elements(), 0); }

}  // namespace

extern const OpDef op_embedding_grad{
    .name = "EmbeddingGrad",
    .inputs = 2,
    .types = "i32, F -> F",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::embedding_grad_op
