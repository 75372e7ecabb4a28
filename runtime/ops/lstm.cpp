// Lstm: one layer of long short-term memory in one direction. The gate inputs are computed before.
//
//   (i, f, g, o) = gates[t] + h w^T        i, f, o through sigmoid, g through tanh
//   c = f * c + i * g,  h = o * tanh(c)
//   for t = 0, 1 ... T - 1, or with `reverse` from T - 1 down to 0
//
// Shapes    gates [T, B, 4H], w [4H, H], h0 [B, H], c0 f32 [B, H]  ->  y [T, B, H], h of every
//           step; c f32 [T, B, H], c of every step; and activations [T, B, 4H], the gates after
//           their functions, for the gradient.
// Numerics  sums, cell and the h and c between steps are f32 for every storage dtype. y is the
//           rounded h.
// Gradient  LstmGrad, and a MatMul over all steps for w. The loss must not depend on activations.
// In place  activations on gates.
// Differs   ONNX orders the gates i, o, f, g, and has peepholes, clipping and other activations,
//           which this operator lacks.
// Source    Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with the forget gate of
//           Gers et al., 2000. The gate order is that of PyTorch and cuDNN.
// Layout    the rows of w and the gates are in the order i, f, g, o. gates = x w_ih^T + b_ih + b_hh
//           is one Linear over all steps. Each layer and direction is a node of its own. The final
//           h and c are step T - 1 of y and c, with `reverse` step 0.
#include "ops/recurrent.h"

namespace bowline::detail::lstm_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const recurrent::Layer layer, recurrent::check_layer(c.in(0), c.in(1), 4));
  BOWLINE_TRY(check_shape("h0", c.in(2), layer.state()));
  BOWLINE_TRY(check_shape("c0", c.in(3), layer.state()));
  return c.out_each({layer.states(), layer.states(), c.in(0)});
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(!c.dout(2).valid(),
                  "The loss depends on the activations, which have no gradient.");
  GradientValues in = {c.out(2), c.in(1), c.in(3), c.out(1), c.dout(0)};
  if (c.dout(1).valid()) {
    in.push_back(c.dout(1));
  }
  GradientValues d = c.add(Op::LstmGrad, in, c.attributes());
  d.resize(3);
  BOWLINE_TRY(c.din(0, d[0]));
  BOWLINE_TRY(c.din(2, d[1]));
  BOWLINE_TRY(c.din(3, d[2]));
  if (!c.needs(1)) {
    return {};
  }
  const recurrent::Layer layer = recurrent::layer_of(c.shape(c.in(0)), c.shape(c.in(1)));
  const bool reverse = c.attributes<LstmAttributes>().reverse();
  const GradientValue rows = reshaped(c, d[0], Shape{layer.steps * layer.batch, 4 * layer.hidden});
  const GradientValue before = recurrent::previous_states(c, layer, c.in(2), c.out(0), reverse);
  return c.din(1, multiplied(c, rows, before, true));
}

Status counted_axes(CountedContext& c) {
  constexpr counted::Axis kBatches[] = {{0, 1}, {2, 0}, {3, 0}};
  return recurrent::count_layer(c, c.attributes<LstmAttributes>().reverse(), kBatches);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  using namespace recurrent;
  const Layer layer = layer_of(c.shape(0), c.shape(1));
  const auto steps = static_cast<size_t>(layer.steps);
  const auto batch = static_cast<size_t>(layer.batch);
  const auto units = static_cast<size_t>(layer.hidden);
  const Writer write(c);
  for (size_t b = 0; b < batch; ++b) {
    std::vector<Number> h, cell;
    for (size_t j = 0; j < units; ++j) {
      h.push_back(given(c.in(2)[b * units + j]));
      cell.push_back(given(c.in(3)[b * units + j]));
    }
    for (size_t s = 0; s < steps; ++s) {
      const size_t row = step_at(s, steps, c.attributes<LstmAttributes>().reverse()) * batch + b;
      std::vector<Number> next(units);
      for (size_t j = 0; j < units; ++j) {
        Number gate[4];
        for (size_t g = 0; g < 4; ++g) {
          const size_t at = (row * 4 + g) * units + j;
          const double x = c.in(0)[at];
          const Number sum = dot({x, std::abs(x)}, c.in(1), (g * units + j) * units, 1, h);
          gate[g] = write(2, at, g == 2 ? tanh(sum) : sigmoid(sum));
        }
        cell[j] = write(1, row * units + j, gate[1] * cell[j] + gate[0] * gate[2]);
        next[j] = write(0, row * units + j, gate[3] * tanh(cell[j]));
      }
      h = next;
    }
  }
}

// A sum over the units and a gate. The reference implementation carries the error magnitudes from
// step to step.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(1)[1] + 1, 8); }

}  // namespace

extern const OpDef op_lstm{
    .name = "Lstm",
    .inputs = 4,
    .outputs = 3,
    .costly = true,
    .types = "F, F, F, f32 -> F, f32, F",
    .in_place = {{2, 0}},
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::lstm_op
