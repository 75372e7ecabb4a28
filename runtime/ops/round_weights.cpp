// RoundWeights: weights in 16 bits from their masters.
//
//   weights = masters, to nearest even; what is too large becomes infinite
//
// Operands  lists of storages: masters f32, weights f16 or bf16. Updates weights.
// Step      after an update that did nothing the masters are as before, and so are the weights.
// Gradient  none.
// Source    Micikevicius et al., "Mixed Precision Training", 2018, section 3.1.
#include "ops/elementwise.h"
#include "ops/op.h"

namespace bowline::detail::round_weights_op {
namespace {

// Lists have no shape of their own.
Status infer(InferContext& c) { return c.out(0, c.in(1)); }

[[maybe_unused]] void oracle(const OracleContext& c) {
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    c.out(0)[i] = elementwise::cast_one(c.in(0)[i], DType::f32, c.dtype(1));
  }
}

Tolerance tolerance(ToleranceContext&) { return Tolerance::exact(); }

}  // namespace

extern const OpDef op_round_weights;
const OpDef op_round_weights{
    .name = "RoundWeights",
    .inputs = 2,
    .takes_lists = true,
    .list_inputs = 0b11,
    .types = "f32, F -> F",
    .updates = {{0, 1}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::round_weights_op
