// Gru: one layer of gated recurrent units in one direction. The gate inputs are computed before.
//
//   r = sigmoid(gates_r[t] + h w_r^T),  z = sigmoid(gates_z[t] + h w_z^T)
//   n = tanh(gates_n[t] + r * (h w_n^T + bias_n))   if reset_after
//   n = tanh(gates_n[t] + (r * h) w_n^T + bias_n)   otherwise
//   h = (1 - z) * n + z * h
//   for t = 0, 1 ... T - 1, or with `reverse` from T - 1 down to 0
//
// Shapes    gates [T, B, 3H], w [3H, H], h0 [B, H], optional bias_n [H]  ->  y [T, B, H], h of
//           every step; and for the gradient activations [T, B, 3H], the gates after their
//           functions, and recurrent [T, B, H]: h w_n^T + bias_n if reset_after, else r * h.
// Numerics  sums, cell and the h between steps are f32 for every storage dtype. y is the rounded h.
// Gradient  GruGrad; MatMuls over all steps for w, and a sum for bias_n. The loss must depend only
//           on y.
// In place  activations on gates.
// Differs   ONNX orders the gates z, r, n; its default linear_before_reset = 0 is reset_after =
//           false. PyTorch and cuDNN always use reset_after.
// Source    Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014.
// Layout    the rows of w and the gates are in the order r, z, n. gates = x w_ih^T + b_ih (+ b_hr,
//           b_hz) is one Linear over all steps; b_hn is bias_n. The final h is step T - 1 of y,
//           with `reverse` step 0.
#include "ops/recurrent.h"

namespace bowline::detail::gru_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const recurrent::Layer layer, recurrent::check_layer(c.in(0), c.in(1), 3));
  BOWLINE_TRY(check_shape("h0", c.in(2), layer.state()));
  if (c.inputs() == 4) {
    BOWLINE_TRY(check_shape("bias_n", c.in(3), Shape{layer.hidden}));
  }
  return c.out_each({layer.states(), c.in(0), layer.states()});
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(
      !c.dout(1).valid() && !c.dout(2).valid(),
      "The loss depends on the activations or the recurrent part, which have no gradient.");
  GradientValues d = c.add(Op::GruGrad, {c.out(1), c.out(2), c.in(1), c.in(2), c.out(0), c.dout(0)},
                           c.attributes());
  d.resize(3);
  BOWLINE_TRY(c.din(0, d[0]));
  BOWLINE_TRY(c.din(2, d[2]));
  const recurrent::Layer layer = recurrent::layer_of(c.shape(c.in(0)), c.shape(c.in(1)));
  const int64_t rows = layer.steps * layer.batch;
  const Shape flat{rows, layer.hidden};
  const GradientValue d_new = reshaped(c, d[1], flat);
  if (c.inputs() == 4 && c.needs(3)) {
    BOWLINE_TRY(c.din(3, summed_to(c, d_new, Shape{layer.hidden})));
  }
  if (!c.needs(1)) {
    return {};
  }
  const auto& t = c.attributes<GruAttributes>();
  const GradientValue before = recurrent::previous_states(c, layer, c.in(2), c.out(0), t.reverse());
  const GradientValue d_both =
      sliced(c, reshaped(c, d[0], Shape{rows, 3 * layer.hidden}), 1, 0, 2 * layer.hidden);
  const GradientValue x_new = t.reset_after() ? before : reshaped(c, c.out(2), flat);
  return c.din(1, c.add1(Op::Concat,
                         {multiplied(c, d_both, before, true), multiplied(c, d_new, x_new, true)},
                         Attributes::of(ConcatAttributesT{})));
}

Status counted_axes(CountedContext& c) {
  constexpr counted::Axis kBatches[] = {{0, 1}, {2, 0}};
  if (c.inputs() == 4) {
    BOWLINE_TRY(counted::none(c, 3, "a weight must be static"));
  }
  return recurrent::count_layer(c, c.attributes<GruAttributes>().reverse(), kBatches);
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  using namespace recurrent;
  const Layer layer = layer_of(c.shape(0), c.shape(1));
  const auto steps = static_cast<size_t>(layer.steps);
  const auto batch = static_cast<size_t>(layer.batch);
  const auto units = static_cast<size_t>(layer.hidden);
  const auto& t = c.attributes<GruAttributes>();
  const Writer write(c);
  for (size_t b = 0; b < batch; ++b) {
    std::vector<Number> h;
    for (size_t j = 0; j < units; ++j) {
      h.push_back(given(c.in(2)[b * units + j]));
    }
    for (size_t s = 0; s < steps; ++s) {
      const size_t row = step_at(s, steps, t.reverse()) * batch + b;
      const auto gate_at = [&](size_t g, size_t j) { return (row * 3 + g) * units + j; };
      const auto product = [&](size_t g, size_t j, double first, std::span<const Number> x) {
        return dot({first, std::abs(first)}, c.in(1), (g * units + j) * units, 1, x);
      };
      std::vector<Number> reset(units), update(units), faded(units), next(units);
      for (size_t j = 0; j < units; ++j) {
        reset[j] = write(1, gate_at(0, j), sigmoid(product(0, j, c.in(0)[gate_at(0, j)], h)));
        update[j] = write(1, gate_at(1, j), sigmoid(product(1, j, c.in(0)[gate_at(1, j)], h)));
        faded[j] = reset[j] * h[j];
      }
      for (size_t j = 0; j < units; ++j) {
        const double bias = c.inputs() == 4 ? c.in(3)[j] : 0;
        const Number x = given(c.in(0)[gate_at(2, j)]);
        const Number made = product(2, j, bias, t.reset_after() ? h : faded);
        write(2, row * units + j, t.reset_after() ? made : faded[j]);
        const Number fresh =
            write(1, gate_at(2, j), tanh(x + (t.reset_after() ? reset[j] * made : made)));
        next[j] = write(0, row * units + j, rest(update[j]) * fresh + update[j] * h[j]);
      }
      h = next;
    }
  }
}

// A sum over the units and a gate. The reference implementation carries the error magnitudes from
// step to step.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(1)[1] + 1, 8); }

}  // namespace

extern const OpDef op_gru{
    .name = "Gru",
    .inputs = 3,
    .optional_inputs = 1,
    .outputs = 3,
    .costly = true,
    .types = "F -> F",
    .in_place = {{1, 0}},
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::gru_op
