// Attention: softmax-weighted sums of values, per head.
//
//   s[i, j] = scale * sum over d of q[i, d] * k[j, d],  where scale = 0 means 1 / sqrt(D)
//             soft-capping, if c > 0:  s[i, j] = c * tanh(s[i, j] / c)
//   p[i, :] = softmax of s[i, :] over the keys that row i sees:
//             all keys; if causal, j <= i + (Tk - Tq); with a window w > 0, the last w of these;
//             always without the keys that the mask hides
//   out[i, :] = sum over j of p[i, j] * v[j, :],  lse[i] = log(sum over j of exp(s[i, j]))
//
// Shapes    q [B, Tq, Hq, D], k and v [B, Tk, Hkv, D]  ->  out [B, Tq, Hq, D], lse [B, Hq, Tq]. Hq
//           is a multiple of Hkv; query head h reads key and value head h / (Hq / Hkv). The
//           soft-cap is at most 1e6. A window requires causal. A row that sees no key has out 0 and
//           lse -inf.
// Masks     input 3; the attribute `mask` tells its kind:
//             additive  dtype of q, broadcast to [B, Hq, Tq, Tk] by the rules of NumPy: added to s.
//                       -inf hides the key.
//             padding   bool [B, Tk]: true makes the key visible to all queries.
//             lengths   i32 [B]: keys [0, length) are visible. A length outside [0, Tk] is
//                       clamped and reported as an out-of-range index.
//           A key that the mask hides contributes nothing: NaN or infinity in its row of k or v
//           does not reach any result or gradient.
// Quantized k and v may be quantized, for example a KV cache to which WriteRows writes quantized
//           values.
// Dynamic   axis 1 of q, k and v; Tq and Tk are then the current sizes. Rows of q behind the
//           current size see no key.
// Numerics  accumulated in f32. Memory grows with Tq + Tk, not with Tq * Tk.
// Gradient  AttentionGrad. Padding and lengths have no gradient. The gradient of an additive mask
//           is refused, because it has the size of all scores. lse must not contribute to the loss.
// Differs   PyTorch returns NaN for a row that sees no key, and NaN of hidden keys reaches its
//           results.
// Source    Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA", 2023 (grouped
//           heads); Beltagy et al., "Longformer", 2020 (window); Gemma Team, "Gemma 2", 2024,
//           section 2 (softcap).
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"

namespace bowline::detail::attention_op {
namespace {

Status infer(InferContext& c) {
  BOWLINE_TRY(attention::check_operands(c));
  const Shape& q = c.in(0);
  BOWLINE_TRY(attention::check_mask(c, 3));
  return c.out_each({q, Shape{q[0], q[2], q[1]}});
}

Status gradient(GradientContext& c) {
  BOWLINE_REQUIRE(!c.dout(1).valid(), "The loss depends on lse, which has no gradient.");
  GradientValues in = {c.in(0), c.in(1), c.in(2), c.out(0), c.out(1), c.dout(0)};
  if (c.inputs() == 4) {
    const bool added = c.attributes<AttentionAttributes>().mask() == AttentionMask::additive;
    BOWLINE_REQUIRE_CODE(
        !added || !c.needs(3), Code::unsupported,
        "The loss depends on the additive mask of Attention, which has no gradient.");
    in.push_back(c.in(3));
  }
  return c.din_each(c.add(Op::AttentionGrad, in, c.attributes()));
}

Status counted_axes(CountedContext& c) {
  for (const int i : {0, 1, 2}) {
    BOWLINE_TRY(counted::none(c, i, 2, 4, "the head size must be static"));
    c.read_count(i, 1);
  }
  BOWLINE_TRY_ASSIGN(const int batch, counted::common(c, {{0, 0}, {1, 0}, {2, 0}}));
  BOWLINE_TRY(counted::common(c, {{1, 1}, {2, 1}}).status());
  if (c.inputs() == 4) {
    BOWLINE_TRY(counted::none(c, 3, "a mask must be static"));
  }
  c.count(0, 0, batch);
  c.count(1, 0, batch);
  c.count(0, 1, c.dim(0, 1));
  c.count(1, 2, c.dim(0, 1));
  return {};
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<AttentionAttributes>();
  const Shape& q = c.shape(0);
  const Shape& k = c.shape(1);
  const int64_t queries = c.extent(0, 1), keys = c.extent(1, 1);
  const auto dim = static_cast<size_t>(q[3]);
  const double scale =
      t.scale() == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : static_cast<double>(t.scale());
  const auto out_magnitude = c.zero_magnitude(0);
  const auto lse_magnitude = c.zero_magnitude(1);
  const attention::Mask mask(c, 3);
  c.outcome.bad_indices = mask.bad_lengths();
  for (Index i(Shape{q[0], q[2], q[1]}); i.valid(); i.next()) {  // batch, head, query
    const int64_t kv_head = i[1] / (q[2] / k[2]);
    const auto row = static_cast<size_t>((i[0] * q[1] + i[2]) * q[2] + i[1]) * dim;
    const auto key = [&](int64_t j) {
      return static_cast<size_t>((i[0] * k[1] + j) * k[2] + kv_head) * dim;
    };
    const auto [first, seen] =
        i[2] < queries ? attention::keys_of(t, i[2], queries, keys) : attention::Keys{0, 0};
    std::vector<double> s, lost;
    std::vector<int64_t> shown;
    for (int64_t j = first; j < seen; ++j) {
      const std::optional<double> added = mask.of(i[0], i[1], i[2], j);
      if (!added) {
        continue;
      }
      shown.push_back(j);
      double dot = 0, terms = 0;
      for (size_t d = 0; d < dim; ++d) {
        dot += c.in(0)[row + d] * c.in(1)[key(j) + d];
        terms += std::abs(c.in(0)[row + d] * c.in(1)[key(j) + d]);
      }
      const attention::Score score = attention::capped(t, scale * dot, std::abs(scale) * terms);
      s.push_back(score.value + *added);
      lost.push_back(score.magnitude + std::abs(*added));
    }
    if (s.empty()) {
      c.out(1)[i.flat()] = -std::numeric_limits<double>::infinity();
      continue;
    }
    const double top = *std::max_element(s.begin(), s.end());
    double sum = 0, lost_mean = 0;
    for (size_t j = 0; j < s.size(); ++j) {
      sum += std::exp(s[j] - top);
      lost_mean += std::exp(s[j] - top) * (lost[j] + std::abs(s[j] - top));
    }
    lost_mean /= sum;
    c.out(1)[i.flat()] = top + std::log(sum);
    lse_magnitude[i.flat()] = std::abs(top) + std::log(sum) + 1 + lost_mean;
    for (size_t j = 0; j < s.size(); ++j) {
      const double p = std::exp(s[j] - top) / sum;
      for (size_t d = 0; d < dim; ++d) {
        const double v = c.in(2)[key(shown[j]) + d];
        c.out(0)[row + d] += p * v;
        out_magnitude[row + d] +=
            p * std::abs(v) * (1 + lost[j] + std::abs(s[j] - top) + lost_mean);
      }
    }
  }
}

// Sums over the head size and over the keys, and exponentials of rounded arguments.
Tolerance tolerance(ToleranceContext& c) {
  return Tolerance::of_reduction(std::max(c.in(0)[3], c.in(1)[1]), 8);
}

}  // namespace

extern const OpDef op_attention{
    .name = "Attention",
    .inputs = 3,
    .optional_inputs = 1,
    .outputs = 2,
    .costly = true,
    .types = "F, F, F, A -> F, f32",
    .encoded_inputs = 0b110,
    .reads_counts = true,
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    .tolerance = tolerance,
};

}  // namespace bowline::detail::attention_op
