// Rules for dynamic dimensions (OpDef::counted) that several operators share.
#pragma once

#include <initializer_list>

#include "ops/op.h"

namespace bowline::detail::counted {

struct Axis {
  int input = 0;
  int axis = 0;
};

// Returns the dimension shared by all axes that are combined into one output axis. A static axis of
// size 1 is broadcast.
// Errors  unsupported: the axes do not all have the same dynamic dimension.
inline Result<int> common(const CountedContext& c, std::span<const Axis> axes) {
  const auto first =
      std::ranges::find_if(axes, [&](const Axis& a) { return c.dim(a.input, a.axis) != c.kNone; });
  if (first == axes.end()) {
    return c.kNone;
  }
  const int dim = c.dim(first->input, first->axis);
  for (const Axis& a : axes) {
    const int other = c.dim(a.input, a.axis);
    if (other != dim && !(other == c.kNone && c.in(a.input)[a.axis] == 1)) {
      return c.refuse(first->input, first->axis,
                      format("axis {} of input {} does not match it", a.axis, a.input));
    }
  }
  return dim;
}
inline Result<int> common(const CountedContext& c, std::initializer_list<Axis> axes) {
  return common(c, std::span(axes.begin(), axes.size()));
}

// Refuses dynamic dimensions in axes [begin, end) of an input.
inline Status none(const CountedContext& c, int input, int begin, int end, std::string_view why) {
  for (int a = begin; a < end; ++a) {
    if (c.dim(input, a) != c.kNone) {
      return c.refuse(input, a, why);
    }
  }
  return {};
}
inline Status none(const CountedContext& c, int input, std::string_view why) {
  return none(c, input, 0, c.in(input).rank(), why);
}

// Axes [begin, end) of output `o` have the dimensions of the same axes of input 0.
inline void pass(CountedContext& c, int begin, int end, int o = 0) {
  for (int a = begin; a < end; ++a) {
    c.count(o, a, c.dim(0, a));
  }
}

// Rule for elementwise operators with one input.
inline Status elementwise(CountedContext& c) {
  pass(c, 0, c.in(0).rank());
  return {};
}

// The first `inputs` inputs are broadcast over all axes of output 0 except the last `without` axes.
// All operands have these last axes.
inline Status broadcast(CountedContext& c, int inputs, int without) {
  const int rank = c.out(0).rank() - without;
  for (int o = 0; o < rank; ++o) {
    std::vector<Axis> axes;
    for (int i = 0; i < inputs; ++i) {
      const int a = o - (rank - (c.in(i).rank() - without));
      if (a >= 0) {
        axes.push_back({i, a});
      }
    }
    BOWLINE_TRY_ASSIGN(const int dim, common(c, axes));
    c.count(0, o, dim);
  }
  return {};
}
inline Status broadcast(CountedContext& c) { return broadcast(c, 2, 0); }
inline Status broadcast_all(CountedContext& c) { return broadcast(c, c.inputs(), 0); }

// The operator combines the elements of the last axis of input 0, so this axis must be static.
inline Status rows(CountedContext& c) {
  const int last = c.in(0).rank() - 1;
  pass(c, 0, last);
  BOWLINE_TRY(none(c, 0, last, last + 1, "the last axis must be static"));
  for (int i = 1; i < c.inputs(); ++i) {
    BOWLINE_TRY(none(c, i, "a weight must be static"));
  }
  return {};
}

}  // namespace bowline::detail::counted
