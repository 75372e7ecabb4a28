// Masks of attention: which keys a query sees besides what `causal` says, for inference and for oracles.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/op.h"

namespace bowline::attention {

// Input `i` is what `kind` says, if it is there.
inline Status check_mask(const InferContext& c, int i) {
  const AttentionMask kind = c.attributes<AttentionAttributes>().mask();
  const bool given = c.inputs() > i;
  BOWLINE_REQUIRE(!given || kind != AttentionMask::none,
                  "There is an input {}, and the attributes name no mask.", i);
  BOWLINE_REQUIRE(given || kind == AttentionMask::none, "The mask, input {}, is not there.", i);
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
  const Shape expected = kind == AttentionMask::padding ? Shape{k[0], k[1]} : Shape{k[0]};
  BOWLINE_REQUIRE(mask == expected, "Shape of the mask ({}) is not {}.", mask, expected);
  return {};
}

// How one query sees one key.
class Mask {
 public:
  Mask(const OracleContext& c, int i)
      : c_(c), i_(i), kind_(c.attributes<AttentionAttributes>().mask()) {
    const Shape& q = c.shape(0);
    scores_ = Shape{q[0], q[2], q[1], c.shape(1)[1]};
  }

  // What is added to the score; none: the query does not see the key.
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

  // The lengths that no sequence can have.
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

}  // namespace bowline::attention
