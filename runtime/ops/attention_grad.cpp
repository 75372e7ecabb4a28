// AttentionGrad: the gradient of Attention, from its results.
//
//   p[i, j]  = exp(s[i, j] - lse[i]) for the keys that row i sees, with s, the soft-cap c, the
//              window and the masks (input 6) of Attention
//   delta[i] = sum over d of dout[i, d] * out[i, d]
//   ds[i, j] = scale * p[i, j] * (sum over d of dout[i, d] * v[j, d] - delta[i])
//              with a soft-cap times 1 - (s[i, j] / c)^2
//   dq[i, :] = sum over j of ds[i, j] * k[j, :]
//   dk[j, :] = sum over i of ds[i, j] * q[i, :],  dv[j, :] = sum over i of p[i, j] * dout[i, :]
//              (both over all query heads that read the key head)
//
// Shapes    q, out and dout [B, Tq, Hq, D], k and v [B, Tk, Hkv, D], lse [B, Hq, Tq]  ->  dq, dk,
//           dv of the shapes of q, k, v.
// Numerics  accumulated in f32. Memory grows with Tq + Tk, not with Tq * Tk.
// Gradient  none.
// Source    Dao et al., "FlashAttention", 2022, appendix B.2.
#include <algorithm>
#include <cmath>

#include "ops/attention.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::attention_grad_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY(attention::check_operands(c));
  const Shape& q = c.in(0);
  const Shape& k = c.in(1);
  BOWLINE_REQUIRE(c.in(3) == q && c.in(5) == q,
                  "Shapes of out ({}) and dout ({}) are not the shape of q ({}).", c.in(3), c.in(5),
                  q);
  const Shape lse{q[0], q[2], q[1]};
  BOWLINE_REQUIRE(c.in(4) == lse, "Shape of lse ({}) is not {}.", c.in(4), lse);
  BOWLINE_TRY(attention::check_mask(c, 6));
  return c.out_each({q, k, k});
}

// A sum of products, and the sum of their magnitudes.
struct Dot {
  double value = 0;
  double magnitude = 0;
};

[[maybe_unused]] Dot dot(std::span<const double> a, std::span<const double> b) {
  Dot out;
  for (size_t d = 0; d < a.size(); ++d) {
    out.value += a[d] * b[d];
    out.magnitude += std::abs(a[d] * b[d]);
  }
  return out;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AttentionAttributes>();
  const Shape& q = c.shape(0);
  const Shape& k = c.shape(1);
  const auto dim = static_cast<size_t>(q[3]);
  const double scale =
      t.scale() == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : static_cast<double>(t.scale());
  const std::span<double> magnitude[3] = {c.zero_magnitude(0), c.zero_magnitude(1),
                                          c.zero_magnitude(2)};
  const attention::Mask mask(c, 6);
  c.outcome.may_set_error = !mask.bad_lengths().empty();
  for (Index i(Shape{q[0], q[2], q[1]}); i.valid(); i.next()) {  // batch, head, query
    const int64_t kv_head = i[1] / (q[2] / k[2]);
    const auto row = static_cast<size_t>((i[0] * q[1] + i[2]) * q[2] + i[1]) * dim;
    const auto dout = c.in(5).subspan(row, dim);
    const double lse = c.in(4)[i.flat()];
    const Dot delta = dot(dout, c.in(3).subspan(row, dim));
    const auto [first, seen] = attention::keys_of(t, i[2], q[1], k[1]);
    for (int64_t j = first; j < seen; ++j) {
      const std::optional<double> added = mask.of(i[0], i[1], i[2], j);
      if (!added) {
        continue;
      }
      const auto key = static_cast<size_t>((i[0] * k[1] + j) * k[2] + kv_head) * dim;
      const Dot s = dot(c.in(0).subspan(row, dim), c.in(1).subspan(key, dim));
      const Dot dp = dot(dout, c.in(2).subspan(key, dim));
      const attention::Score score =
          attention::capped(t, scale * s.value, std::abs(scale) * s.magnitude);
      const double p = std::exp(score.value + *added - lse);
      const double ds = scale * p * score.slope * (dp.value - delta.value);
      const double p_size = p * (1 + score.magnitude + std::abs(*added) + std::abs(lse));
      const double ds_size = std::abs(scale) * (dp.magnitude + delta.magnitude) *
                             (p_size * score.slope + p * score.slope_magnitude);
      for (size_t d = 0; d < dim; ++d) {
        c.out(0)[row + d] += ds * c.in(1)[key + d];
        c.out(1)[key + d] += ds * c.in(0)[row + d];
        c.out(2)[key + d] += p * dout[d];
        magnitude[0][row + d] += ds_size * std::abs(c.in(1)[key + d]);
        magnitude[1][key + d] += ds_size * std::abs(c.in(0)[row + d]);
        magnitude[2][key + d] += p_size * std::abs(dout[d]);
      }
    }
  }
}

// Sums over the head size, the keys, and the queries of all heads of a group.
Tolerance tolerance(ToleranceContext& c) {
  const int64_t queries = c.in(0)[1] * (c.in(0)[2] / c.in(1)[2]);
  return Tolerance::of_reduction(std::max({c.in(0)[3], c.in(1)[1], queries}), 8);
}

}  // namespace

extern const OpDef op_attention_grad{
    .name = "AttentionGrad",
    .inputs = 6,
    .optional_inputs = 1,
    .outputs = 3,
    .types = "F, F, F, F, f32, F, A -> F",
    .infer = infer,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::attention_grad_op
