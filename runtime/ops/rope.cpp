// Rope: rotary position embedding. Rotates pairs of channels by angles proportional to the
// position.
//
//   angle_j = (position + position_offset) * f_j, negated if `inverse`
//   f_j = base^(-2j / rotary_dims),  0 <= j < rotary_dims / 2;  or frequencies[j], if given
//   y[a_j] = x[a_j] * cos(angle_j) - x[b_j] * sin(angle_j)
//   y[b_j] = x[b_j] * cos(angle_j) + x[a_j] * sin(angle_j)
//   pairs (a_j, b_j): (j, j + rotary_dims / 2); if interleaved, (2j, 2j + 1)
//   Frequency scaling, if factor is not 1, with u = original_length * f_j / (2 pi), the number of
//   turns of the pair over the training length:
//     u <= low_frequency_factor    f_j / factor
//     u >= high_frequency_factor   f_j
//     otherwise                    (1 - s) f_j / factor + s f_j,  s = (u - low_frequency_factor)
//                                  / (high_frequency_factor - low_frequency_factor)
//
// Shapes    x [batch, seq, heads, head_dim], optional positions i32 [seq] or [batch, seq]  ->  y of
//           the shape of x. Without positions, the index on axis 1 is the position. rotary_dims is
//           even and at most head_dim; 0 means head_dim. Channels from rotary_dims on are copied.
//           frequencies: radians per position, one for each of the rotary_dims / 2 pairs, or none.
// Domain    1 <= base <= 1e9, 0 <= frequencies <= 1, 0 <= position_offset <= 2^24, and positions
//           from -2^24 to 2^24. Outside of this domain, angles differ between devices.
// Gradient  Rope with the opposite `inverse`.
// In place  on x.
// Source    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021. Pairs
//           without interleaving: GPT-NeoX. Frequency scaling: Llama 3.1 (Dubey et al., 2024).
#include <cmath>

#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"
#include "ops/rotation.h"

namespace bowline::detail {

Status check_rotation(const RopeAttributesT& t, int64_t head_dim) {
  const int64_t dims = t.rotary_dims == 0 ? head_dim : t.rotary_dims;
  BOWLINE_REQUIRE(dims >= 0 && dims <= head_dim && dims % 2 == 0,
                  "rotary_dims ({}) is odd or outside the head size ({}).", dims, head_dim);
  BOWLINE_REQUIRE(t.base >= 1 && t.base <= 1e9f, "Base {} lies outside 1..1e9.", t.base);
  constexpr int64_t kMost = int64_t{1} << 24;
  BOWLINE_REQUIRE(t.position_offset >= 0 && t.position_offset <= kMost,
                  "Position offset {} lies outside 0..{}.", t.position_offset, kMost);
  BOWLINE_REQUIRE(t.factor >= 1 && t.factor <= 1e6f, "Factor {} lies outside 1..1e6.", t.factor);
  if (t.factor != 1) {
    BOWLINE_REQUIRE(t.low_frequency_factor > 0 && t.high_frequency_factor > t.low_frequency_factor,
                    "The frequency factors {} and {} are not positive and ascending.",
                    t.low_frequency_factor, t.high_frequency_factor);
    BOWLINE_REQUIRE(t.original_length >= 1 && t.original_length <= kMost,
                    "Original length {} lies outside 1..{}.", t.original_length, kMost);
  }
  if (!t.frequencies.empty()) {
    BOWLINE_REQUIRE(std::ssize(t.frequencies) == dims / 2,
                    "{} frequencies are given, but {} pairs are rotated.", t.frequencies.size(),
                    dims / 2);
    for (const float f : t.frequencies) {
      BOWLINE_REQUIRE(f >= 0 && f <= 1, "Frequency {} lies outside 0..1.", f);
    }
  }
  return {};
}

}  // namespace bowline::detail

namespace bowline::detail::rope_op {
namespace {

int64_t rotated(const RopeAttributes& t, const Shape& x) {
  return t.rotary_dims() == 0 ? x.back() : t.rotary_dims();
}

Status infer(InferContext& c) {
  const Shape& x = c.in(0);
  const auto& t = c.attributes<RopeAttributes>();
  BOWLINE_REQUIRE(x.rank() == 4, "Input x has rank {}, not 4.", x.rank());
  RopeAttributesT own;
  t.UnPackTo(&own);
  BOWLINE_TRY(check_rotation(own, x.back()));
  if (c.inputs() == 2) {
    const Shape row{x[1]};
    const Shape all{x[0], x[1]};
    BOWLINE_REQUIRE(c.in(1) == row || c.in(1) == all,
                    "Shape of the positions ({}) is neither {} nor {}.", c.in(1), row, all);
  }
  return c.out(0, x);
}

Status gradient(GradientContext& c) {
  RopeAttributesT back;
  c.attributes<RopeAttributes>().UnPackTo(&back);
  back.inverse = !back.inverse;
  GradientValues in = {c.dout(0)};
  if (c.inputs() == 2) {
    in.push_back(c.in(1));
  }
  return c.din(0, c.add1(Op::Rope, in, Attributes::of(back)));
}

Status counted_axes(CountedContext& c) {
  counted::pass(c, 0, 3);
  if (c.inputs() == 2) {
    const int last = c.in(1).rank() - 1;
    BOWLINE_TRY(counted::common(c, {{0, 1}, {1, last}}).status());
    if (last == 1) {
      BOWLINE_TRY(counted::common(c, {{0, 0}, {1, 0}}).status());
    }
  }
  return counted::none(c, 0, 3, 4, "the head size must be static");
}

// Radians per position of pair j.
[[maybe_unused]] double frequency_of(const RopeAttributes& t, size_t j, size_t dims) {
  if (t.frequencies()->size() != 0) {
    return static_cast<double>(t.frequencies()->Get(static_cast<flatbuffers::uoffset_t>(j)));
  }
  const double power = -2.0 * static_cast<double>(j) / static_cast<double>(dims);
  const double f = std::pow(static_cast<double>(t.base()), power);
  if (t.factor() == 1) {
    return f;
  }
  const double wavelength = 2 * std::acos(-1.0) / f;
  const auto length = static_cast<double>(t.original_length());
  const double low = static_cast<double>(t.low_frequency_factor());
  const double high = static_cast<double>(t.high_frequency_factor());
  const double slow = f / static_cast<double>(t.factor());
  if (wavelength >= length / low) {
    return slow;
  }
  if (wavelength <= length / high) {
    return f;
  }
  const double smooth = (length / wavelength - low) / (high - low);
  return (1 - smooth) * slow + smooth * f;
}

[[maybe_unused]] void oracle(const OracleContext& c) {
  const auto& t = c.attributes<RopeAttributes>();
  const Shape& shape = c.shape(0);
  const auto dims = static_cast<size_t>(rotated(t, shape));
  const size_t head = c.last_axis(0);
  const auto magnitude = c.zero_magnitude(0);
  for (Index i(Shape(shape.dims().first(3))); i.valid(); i.next()) {
    const auto row = static_cast<size_t>(
        c.inputs() == 2 && c.shape(1).rank() == 2 ? i[0] * shape[1] + i[1] : i[1]);
    const double index = c.inputs() == 2 ? c.in(1)[row] : static_cast<double>(i[1]);
    const double position = index + static_cast<double>(t.position_offset());
    const size_t at = i.flat() * head;
    for (size_t d = dims; d < head; ++d) {
      c.out(0)[at + d] = c.in(0)[at + d];
    }
    for (size_t j = 0; j < dims / 2; ++j) {
      const double angle = position * frequency_of(t, j, dims) * (t.inverse() ? -1 : 1);
      const size_t a = at + (t.interleaved() ? 2 * j : j);
      const size_t b = t.interleaved() ? a + 1 : a + dims / 2;
      const double xa = c.in(0)[a];
      const double xb = c.in(0)[b];
      c.out(0)[a] = xa * std::cos(angle) - xb * std::sin(angle);
      c.out(0)[b] = xb * std::cos(angle) + xa * std::sin(angle);
      magnitude[a] = (std::abs(xa) + std::abs(xb)) * (1 + std::abs(angle));
      magnitude[b] = magnitude[a];
    }
  }
}

}  // namespace

extern const OpDef op_rope{
    .name = "Rope",
    .optional_inputs = 1,
    .types = "F, i32 -> F",
    .in_place = {{0, 0}},
    .infer = infer,
    .counted = counted_axes,
    .gradient = gradient,
    .oracle = BOWLINE_ORACLE(oracle),
    // The angle has the roundings of a power of the base and of a product.
    .tolerance = roundings<8>,
};

}  // namespace bowline::detail::rope_op
