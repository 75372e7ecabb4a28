// RoundWeights: rounds 16-bit weights from their f32 masters.
//
//   weights = masters, rounded to nearest even; overflow gives infinity
//
// Operands  lists of storages: masters f32, weights f16 or bf16. Updates weights.
// Step      if the update was skipped, the masters are unchanged, and so are the weights.
// Gradient  none.
// Source    Micikevicius et al., "Mixed Precision Training", 2018, section 3.1.
#include "ops/elementwise.h"
#include "ops/op.h"

namespace bowline::detail::round_weights_op {
namespace {

// Lists have no shape.
Status infer(InferContext& c) { return c.out(0, c.in(1)); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = elementwise::cast_one(c.in(0)[i], DType::f32, c.dtype(1));
  }
}

}  // namespace

extern const OpDef op_round_weights{
    .name = "RoundWeights",
    .inputs = 2,
    .takes_lists = true,
    .list_inputs = 0b11,
    .types = "f32, F -> F",
    .updates = {{0, 1}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
};

}  // namespace bowline::detail::round_weights_op
