// Scores and masks of attention, shared by shape inference and the reference implementations.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op.h"

namespace bowline::detail::attention {

// Checks q, k and v (inputs 0, 1 and 2), and the attributes of the scores.
inline Status check_operands(const InferContext& c) {
  const Shape& q = c.in(0);
  const Shape& k = c.in(1);
  for (const int i : {0, 1, 2}) {
    BOWLINE_REQUIRE(c.in(i).rank() == 4, "Input {} has rank {}, not 4.", i, c.in(i).rank());
  }
  BOWLINE_TRY(check_shape("v", c.in(2), "k", k));
  BOWLINE_REQUIRE(q[0] == k[0] && q[3] == k[3], "Batch or head size of q ({}) differs from k ({}).",
                  q, k);
  BOWLINE_REQUIRE(q[3] >= 1 && k[2] >= 1 && q[2] % k[2] == 0,
                  "{} query heads are not a multiple of {} key heads, or the heads are empty.",
                  q[2], k[2]);
  const auto& t = c.attributes<AttentionAttributes>();
  constexpr float kMostSoftcap = 1e6f;
  BOWLINE_REQUIRE(t.softcap() >= 0 && t.softcap() <= kMostSoftcap,
                  "The softcap {} is not within 0 .. {}.", t.softcap(), kMostSoftcap);
  BOWLINE_REQUIRE(t.window() == 0 || t.causal(), "A window of {} keys requires causal attention.",
                  t.window());
  return {};
}

// Keys [first, end) that a query sees unless a mask hides them.
struct Keys {
  int64_t first = 0;
  int64_t end = 0;
};
inline Keys keys_of(const AttentionAttributes& t, int64_t query, int64_t queries, int64_t keys) {
  const int64_t end = t.causal() ? std::clamp<int64_t>(query + keys - queries + 1, 0, keys) : keys;
  return {t.window() == 0 ? 0 : std::max<int64_t>(query + keys - queries + 1 - t.window(), 0), end};
}

// A score, and its derivative with respect to the score before soft-capping. Each has the magnitude
// against which its rounding error is measured.
struct Score {
  double value = 0;
  double magnitude = 0;
  double slope = 1;
  double slope_magnitude = 0;
};
// Applies soft-capping. `magnitude` is the sum of the magnitudes of the terms of the uncapped
// score.
inline Score capped(const AttentionAttributes& t, double score, double magnitude) {
  if (t.softcap() == 0) {
    return {score, magnitude};
  }
  const double cap = static_cast<double>(t.softcap());
  const double part = std::tanh(score / cap);
  const double size = magnitude + cap * std::abs(part);
  return {cap * part, size, 1 - part * part, 1 + 2 * std::abs(part) * size / cap};
}

// Checks optional input `i` against the mask kind of the attributes.
inline Status check_mask(const InferContext& c, int i) {
  const AttentionMask kind = c.attributes<AttentionAttributes>().mask();
  const bool given = c.inputs() > i;
  BOWLINE_REQUIRE(!given || kind != AttentionMask::none,
                  "Input {} is a mask, but the attribute mask is \"none\".", i);
  BOWLINE_REQUIRE(given || kind == AttentionMask::none, "The mask (input {}) is missing.", i);
  if (!given) {
    return {};
  }
  const Shape& q = c.in(0);
  const Shape& k = c.in(1);
  const Shape& mask = c.in(i);
  const DType type = kind == AttentionMask::additive  ? c.dtype(0)
                     : kind == AttentionMask::padding ? DType::boolean
                                                      : DType::i32;
  BOWLINE_REQUIRE(c.dtype(i) == type, "The mask has dtype {}, not {}.", c.dtype(i), type);
  if (kind == AttentionMask::additive) {
    const Shape scores{q[0], q[2], q[1], k[1]};
    const Result<Shape> both = broadcast(mask, scores);
    BOWLINE_REQUIRE(both.ok() && both.value() == scores,
                    "The mask {} does not broadcast to the scores {}.", mask, scores);
    return {};
  }
  return check_shape("the mask", mask,
                     kind == AttentionMask::padding ? Shape{k[0], k[1]} : Shape{k[0]});
}

// Decides whether a query sees a key.
class Mask {
 public:
  Mask(const OracleContext& c, int i)
      : c_(c), i_(i), kind_(c.attributes<AttentionAttributes>().mask()) {
    const Shape& q = c.shape(0);
    scores_ = Shape{q[0], q[2], q[1], c.shape(1)[1]};
  }

  // Returns the value that is added to the score, or nullopt if the mask hides the key.
  std::optional<double> of(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    if (kind_ == AttentionMask::additive) {
      const int64_t at[] = {batch, head, query, key};
      const Shape& shape = c_.shape(i_);
      size_t position = 0;
      for (int a = 0; a < shape.rank(); ++a) {
        const int64_t index = shape[a] == 1 ? 0 : at[a + 4 - shape.rank()];
        position = position * static_cast<size_t>(shape[a]) + static_cast<size_t>(index);
      }
      const double added = c_.in(i_)[position];
      return added == kHidden ? std::nullopt : std::optional(added);
    }
    const bool seen = kind_ == AttentionMask::none ||
                      (kind_ == AttentionMask::padding
                           ? c_.in(i_)[static_cast<size_t>(batch * scores_[3] + key)] != 0
                           : static_cast<double>(key) < c_.in(i_)[static_cast<size_t>(batch)]);
    return seen ? std::optional(0.0) : std::nullopt;
  }

  // Returns the lengths that are out of range.
  std::vector<double> bad_lengths() const {
    std::vector<double> bad;
    for (int64_t b = 0; kind_ == AttentionMask::lengths && b < scores_[0]; ++b) {
      const double length = c_.in(i_)[static_cast<size_t>(b)];
      if (length < 0 || length > static_cast<double>(scores_[3])) {
        bad.push_back(length);
      }
    }
    return bad;
  }

 private:
  const OracleContext& c_;
  int i_;
  AttentionMask kind_;
  Shape scores_;
};

}  // namespace bowline::detail::attention
