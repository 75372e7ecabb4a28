// Parts shared by ReduceMax, ReduceMin, ArgMax, ArgMin and TopK: the order of two values.
#pragma once

#include <cmath>
#include <limits>

#include "ops/build.h"
#include "ops/counted.h"
#include "ops/index.h"
#include "ops/op.h"
#include "ops/reduced.h"

namespace bowline::detail::extreme {

// True if a is larger than b (smaller, if `largest` is false). NaN precedes every other value in
// both orders.
inline bool beats(bool largest, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::isnan(a) && !std::isnan(b);
  }
  return largest ? a > b : a < b;
}

// The value that no other value follows: the neutral element of the reduction.
inline double neutral(bool largest) {
  return largest ? -std::numeric_limits<double>::infinity()
                 : std::numeric_limits<double>::infinity();
}

inline Status infer(InferContext& c) {
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), c.in(0)));
  BOWLINE_REQUIRE(r.length > 0, "The reduced axes of {} are empty and have no minimum or maximum.",
                  c.in(0));
  return c.out(0, r.result);
}

// dx = dy / count where x equals y, and 0 elsewhere. `count` is the number of elements equal to y.
// Counting and division are in f32.
inline Status gradient(GradientContext& c) {
  const Shape x = c.shape(c.in(0));
  const DType type = c.dtype(c.in(0));
  BOWLINE_TRY_ASSIGN(const Reduced r, reduced(c.attributes<ReduceAttributes>(), x));
  const GradientValue y = broadcast_to(c, reshaped(c, c.out(0), r.kept), x);
  const GradientValue mask = cast_to(c, c.add1(Op::Equal, {c.in(0), y}), DType::f32);
  const GradientValue count = summed_to(c, mask, r.kept);
  const GradientValue dy = cast_to(c, reshaped(c, c.dout(0), r.kept), DType::f32);
  const GradientValue share = c.add1(Op::Div, {dy, count});
  return c.din(0, cast_to(c, c.add1(Op::Mul, {mask, share}), type));
}

template <bool kLargest>
Status counted_axes(CountedContext& c) {
  return mask_reduced(c, neutral(kLargest));
}

template <bool kLargest>
void oracle(const OracleContext& c) {
  const Reduced r = reduced(c.attributes<ReduceAttributes>(), c.shape(0)).value();
  std::vector<bool> known(c.out(0).size());
  for (Index i(c.shape(0)); i.valid(); i.next()) {
    const size_t j = i.in_broadcast(r.kept);
    if (!known[j] || beats(kLargest, c.in(0)[i.flat()], c.out(0)[j])) {
      c.out(0)[j] = c.in(0)[i.flat()];
      known[j] = true;
    }
  }
}

template <bool kLargest>
constexpr OpDef reduction(const char* name) {
  return {.name = name,
          .types = "N -> N",
          .infer = infer,
          .counted = counted_axes<kLargest>,
          .gradient = gradient,
          .oracle = BOWLINE_ORACLE(oracle<kLargest>)};
}

inline Status infer_index(InferContext& c) {
  const auto& t = c.attributes<ArgAttributes>();
  const Shape& x = c.in(0);
  BOWLINE_TRY_ASSIGN(const int axis, normalise_axis(t.axis(), x.rank()));
  BOWLINE_REQUIRE(x[axis] > 0, "Axis {} of {} is empty and has no minimum or maximum.", axis, x);
  Shape y;
  for (int a = 0; a < x.rank(); ++a) {
    if (a != axis || t.keep_dims()) {
      y.push_back(a == axis ? 1 : x[a]);
    }
  }
  return c.out(0, y);
}

// Fills elements behind the count with the neutral value. A valid element may equal this value but
// never follows it.
template <bool kLargest>
Status counted_index(CountedContext& c) {
  const auto& t = c.attributes<ArgAttributes>();
  const int rank = c.in(0).rank();
  const int axis = c.axis<ArgAttributes>(rank);
  int to = 0;
  for (int a = 0; a < rank; ++a) {
    if (a != axis) {
      c.count(0, to, c.dim(0, a));
    }
    to += a != axis || t.keep_dims() ? 1 : 0;
  }
  if (t.last()) {
    return counted::none(c, 0, axis, axis + 1,
                         "the search for the last of equal elements needs all of it");
  }
  c.mask(0, axis, neutral(kLargest));
  return {};
}

template <bool kLargest>
void index_oracle(const OracleContext& c) {
  const auto& t = c.attributes<ArgAttributes>();
  const Shape& x = c.shape(0);
  const int axis = c.axis<ArgAttributes>(x.rank());
  const auto inner = static_cast<size_t>(x.elements(axis + 1, x.rank()));
  const auto n = static_cast<size_t>(x[axis]);
  for (size_t o = 0; o < c.out(0).size(); ++o) {
    const size_t begin = o / inner * n * inner + o % inner;
    size_t best = 0;
    for (size_t i = 1; i < n; ++i) {
      const double a = c.in(0)[begin + i * inner];
      const double b = c.in(0)[begin + best * inner];
      if (beats(kLargest, a, b) || (t.last() && !beats(kLargest, b, a))) {
        best = i;
      }
    }
    c.out(0)[o] = static_cast<double>(best);
  }
}

template <bool kLargest>
constexpr OpDef position(const char* name) {
  return {.name = name,
          .types = "N -> i32",
          .infer = infer_index,
          .counted = counted_index<kLargest>,
          .oracle = BOWLINE_ORACLE(index_oracle<kLargest>)};
}

}  // namespace bowline::detail::extreme
