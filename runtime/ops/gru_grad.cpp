// GruGrad: the gradient of Gru, from its results. The steps run backwards; dh comes from the
// following step:
//
//   dh += dy[t],  dz = dh * (h_before - n) * z (1 - z),  dn = dh * (1 - z) * (1 - n^2)
//   reset_after:  d_new = dn * r,  dr = dn * recurrent * r (1 - r)
//                 previous dh = dh * z + (dr, dz, d_new) w
//   otherwise:    d_new = dn,  d = d_new w_n,  dr = d * h_before * r (1 - r)
//                 previous dh = dh * z + d * r + (dr, dz) w_rz
//   finally dh0 = dh
//
// Shapes    activations [T, B, 3H], recurrent [T, B, H], w [3H, H], h0 [B, H], y [T, B, H], dy [T,
//           B, H]  ->  dgates [T, B, 3H] = (dr, dz, dn), d_new [T, B, H], dh0 [B, H]. The gate
//           order and the attributes are those of Gru. d_new is the gradient of the product with
//           w_n and of bias_n.
// Numerics  f32 for every storage dtype, also between steps.
// Gradient  none. The gradients of w and bias_n are products and sums of the results.
// In place  dgates on activations.
#include "ops/recurrent.h"

namespace bowline::detail::gru_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const recurrent::Layer layer, recurrent::check_layer(c.in(0), c.in(2), 3));
  BOWLINE_TRY(check_shape("the recurrent part", c.in(1), layer.states()));
  BOWLINE_TRY(check_shape("h0", c.in(3), layer.state()));
  BOWLINE_TRY(check_shape("y", c.in(4), layer.states()));
  BOWLINE_TRY(check_shape("dy", c.in(5), layer.states()));
  return c.out_each({c.in(0), layer.states(), layer.state()});
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  using namespace recurrent;
  const Layer layer = layer_of(c.shape(0), c.shape(2));
  const auto steps = static_cast<size_t>(layer.steps);
  const auto batch = static_cast<size_t>(layer.batch);
  const auto units = static_cast<size_t>(layer.hidden);
  const auto& t = c.attributes<GruAttributes>();
  const std::span<const double> w = c.in(2);
  const Writer write(c);
  for (size_t b = 0; b < batch; ++b) {
    std::vector<Number> dh(units);
    for (size_t s = steps; s-- > 0;) {
      const size_t row = step_at(s, steps, t.reverse()) * batch + b;
      const size_t before = s > 0 ? step_at(s - 1, steps, t.reverse()) * batch + b : 0;
      const auto gate = [&](size_t g, size_t j) {
        return given(c.in(0)[(row * 3 + g) * units + j]);
      };
      const auto was = [&](size_t j) {
        return given(s > 0 ? c.in(4)[before * units + j] : c.in(3)[b * units + j]);
      };
      std::vector<Number> through(3 * units);  // the gradient of the products with w
      const std::span<Number> d_reset(through.data(), units);
      const std::span<Number> d_update(through.data() + units, units);
      const std::span<Number> d_new(through.data() + 2 * units, units);
      for (size_t j = 0; j < units; ++j) {
        const Number r = gate(0, j), z = gate(1, j), n = gate(2, j);
        const double dy = c.in(5)[row * units + j];
        dh[j] = dh[j] + given(dy);
        d_update[j] =
            write(0, (row * 3 + 1) * units + j, dh[j] * (was(j) + negative(n)) * sigmoid_slope(z));
        const Number dn = write(0, (row * 3 + 2) * units + j, dh[j] * rest(z) * tanh_slope(n));
        d_new[j] = write(1, row * units + j, t.reset_after() ? dn * r : dn);
        if (t.reset_after()) {
          d_reset[j] = dn * given(c.in(1)[row * units + j]) * sigmoid_slope(r);
        }
        dh[j] = dh[j] * z;
      }
      for (size_t j = 0; j < units; ++j) {
        if (!t.reset_after()) {
          const Number d = dot({}, w, 2 * units * units + j, units, d_new);
          d_reset[j] = d * was(j) * sigmoid_slope(gate(0, j));
          dh[j] = dh[j] + d * gate(0, j);
        }
        write(0, row * 3 * units + j, d_reset[j]);
      }
      const size_t through_h = t.reset_after() ? 3 * units : 2 * units;
      for (size_t j = 0; j < units; ++j) {
        dh[j] = dot(dh[j], w, j, units, std::span(through).first(through_h));
      }
    }
    for (size_t j = 0; j < units; ++j) {
      write(2, b * units + j, dh[j]);
    }
  }
}

// A sum over all rows of w. The reference implementation carries the error magnitudes from step to
// step.
Tolerance tolerance(ToleranceContext& c) { return Tolerance::of_reduction(c.in(2)[0] + 1, 8); }

}  // namespace

extern const OpDef op_gru_grad{
    .name = "GruGrad",
    .inputs = 6,
    .outputs = 3,
    .types = "F -> F",
    .in_place = {{0, 0}},
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::gru_grad_op
