// LstmGrad: the gradient of Lstm, from its results. The steps run backwards; dc comes from the
// following step:
//
//   dh = dy[t] + (dgates of the following step) w
//   dc += dc_in[t] + dh * o * (1 - tanh(c)^2)
//   di = dc * g * i (1 - i),  df = dc * c_before * f (1 - f)
//   dg = dc * i * (1 - g^2),  do = dh * tanh(c) * o (1 - o)
//   previous dc = dc * f
//   finally dh0 = (dgates of the first step) w,  dc0 = dc
//
// Shapes    activations [T, B, 4H], w [4H, H], c0 f32 [B, H], c f32 [T, B, H], dy [T, B, H],
//           optional dc_in f32 [T, B, H]  ->  dgates [T, B, 4H], dh0 [B, H], dc0 f32 [B, H]. The
//           gate order and `reverse` are those of Lstm.
// Numerics  f32 for every storage dtype, also between steps.
// Gradient  none. The gradient of w is a MatMul of dgates with the previous states of the steps.
// In place  dgates on activations.
#include "ops/recurrent.h"

namespace bowline::detail::lstm_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const recurrent::Layer layer, recurrent::check_layer(c.in(0), c.in(1), 4));
  BOWLINE_TRY(check_shape("c0", c.in(2), layer.state()));
  BOWLINE_TRY(check_shape("c", c.in(3), layer.states()));
  BOWLINE_TRY(check_shape("dy", c.in(4), layer.states()));
  if (c.inputs() == 6) {
    BOWLINE_TRY(check_shape("dc", c.in(5), layer.states()));
  }
  return c.out_each({c.in(0), layer.state(), layer.state()});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  using namespace recurrent;
  const Layer layer = layer_of(c.shape(0), c.shape(1));
  const auto steps = static_cast<size_t>(layer.steps);
  const auto batch = static_cast<size_t>(layer.batch);
  const auto units = static_cast<size_t>(layer.hidden);
  const bool reverse = c.attributes<LstmAttributes>().reverse();
  const Writer write(c);
  for (size_t b = 0; b < batch; ++b) {
    std::vector<Number> dc(units), dgates;  // of the following step; the last step has none
    const auto dh_of = [&](size_t j, const Number& dy) {
      return dot(dy, c.in(1), j, units, dgates);
    };
    for (size_t s = steps; s-- > 0;) {
      const size_t row = step_at(s, steps, reverse) * batch + b;
      const size_t before = s > 0 ? step_at(s - 1, steps, reverse) * batch + b : 0;
      std::vector<Number> made(4 * units);
      for (size_t j = 0; j < units; ++j) {
        const size_t at = row * units + j;
        Number gate[4];
        for (size_t g = 0; g < 4; ++g) {
          gate[g] = given(c.in(0)[(row * 4 + g) * units + j]);
        }
        const auto& [i, f, g, o] = gate;
        const Number squashed = tanh(given(c.in(3)[at]));
        const Number was = given(s > 0 ? c.in(3)[before * units + j] : c.in(2)[b * units + j]);
        const Number dh = dh_of(j, {c.in(4)[at], std::abs(c.in(4)[at])});
        if (c.inputs() == 6) {
          dc[j] = dc[j] + given(c.in(5)[at]);
        }
        dc[j] = dc[j] + dh * o * tanh_slope(squashed);
        const Number d[4] = {dc[j] * g * sigmoid_slope(i), dc[j] * was * sigmoid_slope(f),
                             dc[j] * i * tanh_slope(g), dh * squashed * sigmoid_slope(o)};
        for (size_t k = 0; k < 4; ++k) {
          made[k * units + j] = d[k];
          write(0, (row * 4 + k) * units + j, d[k]);
        }
        dc[j] = dc[j] * f;
      }
      dgates = made;
    }
    for (size_t j = 0; j < units; ++j) {
      write(1, b * units + j, dh_of(j, given(0)));
      write(2, b * units + j, dc[j]);
    }
  }
}

// A sum over all rows of w. The reference implementation carries the error magnitudes from step to
// step.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(1)[0] + 1, 8); }

}  // namespace

extern const OpDef op_lstm_grad{
    .name = "LstmGrad",
    .inputs = 5,
    .optional_inputs = 1,
    .outputs = 3,
    .types = "F, F, f32, f32, F, f32 -> F, F, f32",
    .in_place = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::lstm_grad_op
