// Dropout: sets random elements to zero while training, and scales the others up.
//
//   y[i] = kept(i) ? x[i] / (1 - rate) : 0
//   kept(i): word i % 4 of philox({i / 4, stream, iteration, counter}, seed) >= rate * 2^32
//
// Shapes    any x  ->  y of the shape of x. Without training, y = x.
// Random    `iteration` is the iteration of the enclosing Repeat (0 outside). counter and seed are
//           per-step scalars. The backward pass draws the same random values again, so no mask is
//           stored. A dropped NaN becomes 0.
// Gradient  Dropout of dy with the same attributes.
// In place  on x.
// Source    Srivastava et al., "Dropout", 2014. philox: base/random.h.
//! step training: u32 = 0, seed: u64 = 0, counter: u32 = 0
#include "base/random.h"
#include "ops/counted.h"
#include "ops/op.h"

namespace bowline::detail::dropout_op {
namespace {

Status infer(InferContext& c) {
  const float rate = c.attributes<DropoutAttributes>().rate();
  BOWLINE_REQUIRE(rate >= 0 && rate < 1, "Rate {} lies outside [0, 1).", rate);
  return c.out(0, c.in(0));
}

Status gradient(GradientContext& c) {
  return c.din(0, c.add1(Op::Dropout, {c.dout(0)}, c.attributes()));
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<DropoutAttributes>();
  const double rate = t.rate();
  const uint64_t seed = c.step(step::dropout::seed);
  const uint32_t counter = c.step(step::dropout::counter);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  for (size_t i = 0; i < c.in(0).size(); ++i) {
    if (c.step(step::dropout::training) == 0) {
      c.out(0)[i] = c.in(0)[i];
      continue;
    }
    const RandomBlock words =
        philox({static_cast<uint32_t>(i / 4), t.stream(), c.facts.iteration, counter}, key);
    c.out(0)[i] = words[i % 4] >= dropout_threshold(rate) ? c.in(0)[i] / (1 - rate) : 0;
  }
}

}  // namespace

extern const OpDef op_dropout{
    .name = "Dropout",
    .in_place = {{0, 0}},
    .only_trains = true,
    .infer = infer,
    .counted = counted::elementwise,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    // Three roundings: 1 - rate, its reciprocal, the product.
    .tolerance = roundings<3>,
};

}  // namespace bowline::detail::dropout_op
