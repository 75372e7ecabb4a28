// Reductions, and operators that sort or accumulate along an axis.
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A reduction of input 0. The axes are an attribute or an input (ReduceSum from operator set 13
// on).
struct Reduction {
  Term x;
  std::vector<int64_t> axes;
  bool keep = true;
};

Reduction arguments_of(Context& c) {
  Reduction r{c.in(0), c.list_or_input("axes", 1), c.flag("keepdims", true)};
  if (!c.flag("noop_with_empty_axes", false) && r.axes.empty()) {
    r.axes = all_axes(r.x.rank());
  }
  return r;
}

Term reduction(Context& c) {
  const Reduction r = arguments_of(c);
  return c.m.reduce(c.op(), r.x, r.axes, r.keep);
}

Term absolute(const Term& x) { return abs(x); }
Term squared(const Term& x) { return square(x); }
Term root(const Term& x) { return sqrt(x); }
Term logarithm(const Term& x) { return log(x); }
Term itself(const Term& x) { return x; }

// Computes after(the sum of before(x)), in f32.
template <Term (*before)(const Term& x), Term (*after)(const Term& x)>
Term sum_of(Context& c) {
  const Reduction r = arguments_of(c);
  const Term sum = c.m.reduce("ReduceSum", before(in_f32(r.x)), r.axes, r.keep);
  return cast(after(sum), r.x.dtype);
}

// The maximum or minimum of an empty set.
Term extreme_of_none(Context& c, DType dtype, bool largest) {
  if (is_float(dtype)) {
    return c.m.scalar(dtype, largest ? -INFINITY : INFINITY);
  }
  const bool plain = dtype == DType::u8 || dtype == DType::boolean;
  const int64_t half = INT64_MAX >> (64 - 8 * size_of(dtype));
  const int64_t least = plain ? 0 : -half - 1;
  const int64_t most = dtype == DType::boolean ? 1 : dtype == DType::u8 ? 255 : half;
  return c.m.integers(dtype, {}, {largest ? least : most});
}

// Bool is reduced as integers.
Term extreme_over(Context& c, const Reduction& r, bool largest, bool keep) {
  if (r.x.elements() != 0) {
    const Term x = r.x.dtype == DType::boolean ? cast(r.x, DType::u8) : r.x;
    return cast(c.m.reduce(largest ? "ReduceMax" : "ReduceMin", x, r.axes, keep), r.x.dtype);
  }
  // A sum has the same shape.
  const Term shape = c.m.reduce("ReduceSum", cast(r.x, DType::f32), r.axes, keep);
  return c.m.expand(extreme_of_none(c, r.x.dtype, largest), shape.dims);
}

Term extreme(Context& c) {
  const Reduction r = arguments_of(c);
  return extreme_over(c, r, c.op() == "ReduceMax", r.keep);
}

// log(sum e^(x - max)) + max; a non-finite max is replaced by 0
Term log_sum_exp(Context& c) {
  const Reduction r = arguments_of(c);
  const Term top = extreme_over(c, r, true, true);
  const Term is_finite = abs(top) < INFINITY;
  const Term shift = where(is_finite, top, 0);
  const Term sum = c.m.reduce("ReduceSum", exp(r.x - shift), r.axes, r.keep);
  return log(sum) + c.m.reshape(shift, sum.dims);
}

// ArgMax, ArgMin
Term arg(Context& c) {
  const Term x = c.in(0);
  const int64_t axis = c.axis(x.rank(), 0);
  const bool keep = c.flag("keepdims", true), last = c.flag("select_last_index", false);
  const Dims dims = keep ? x.dims.with(axis, 1) : x.dims.without(axis);
  const Term i =
      c.m.op(c.op(), {x}, {{"axis", axis}, {"keep_dims", keep}, {"last", last}}, DType::i32, dims);
  return cast(i, DType::i64);
}

// Arguments of a cumulative sum or product along an axis.
struct Running {
  Term x;
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
};

Running running_of(Context& c) {
  const Term x = c.in(0);
  return {x, axis_of(c.single(1, "axis"), x.rank()), c.flag("exclusive", false),
          c.flag("reverse", false)};
}

Term cum_sum(Context& c) {
  const Running r = running_of(c);
  return c.m.op("CumSum", {r.x},
                {{"axis", r.axis}, {"exclusive", r.exclusive}, {"reverse", r.reverse}}, r.x.dtype,
                r.x.dims);
}

// Cumulative product: a reduction over the whole axis, with 1 in place of the later elements.
Term cum_prod(Context& c) {
  const auto [x, axis, exclusive, reverse] = running_of(c);
  const int64_t n = x.dims[axis];
  support(n <= 2048, "Cumulative products of {} elements are not supported: the limit is 2048.", n);
  // With the axis twice, element i is the product over the second copy.
  const Term i = c.m.count_along(axis, x.rank() + 1, n);
  const Term j = c.m.count_along(axis + 1, x.rank() + 1, n);
  const char* const in_front = exclusive ? "Less" : "LessOrEqual";
  const Term taken = reverse ? c.m.compare(in_front, i, j) : c.m.compare(in_front, j, i);
  const Term factors = where(taken, c.m.reshape(x, x.dims.inserted(axis, {1})), 1);
  return c.m.reduce("ReduceProd", factors, {axis + 1}, false);
}

// Ties are resolved by position. The result is always sorted.
Term top_k(Context& c) {
  const Term x = c.in(0);
  const int64_t k = c.opset < 10 ? c.integer("k", 0) : c.single(1, "k");
  const int64_t axis = c.axis(x.rank(), -1);
  const bool largest = c.flag("largest", true);
  c.ignore("sorted");
  require(k >= 0 && k <= x.dims[axis], "K is {}, but axis {} of {} has fewer elements.", k, axis,
          x.dims);
  const Dims dims = x.dims.with(axis, k);
  const Terms out = c.m.ops("TopK", {x}, {{"k", k}, {"axis", axis}, {"largest", largest}},
                            {{x.dtype, dims}, {DType::i32, dims}});
  c.out(1, c.wants(1) ? cast(out[1], DType::i64) : out[1]);
  return out[0];
}

// Moves the axis to the end. Before operator set 13 the axis and all axes after it are merged.
template <class Row>
Term by_rows(Context& c, const Row& row) {
  const Term x = c.in(0);
  const int64_t given = c.integer("axis", c.opset < 13 ? 1 : -1);
  if (c.opset < 13) {
    const auto rank = static_cast<int64_t>(x.rank());
    const int64_t axis = given < 0 ? given + rank : given;
    require(axis >= 0 && axis <= rank, "Axis {} is out of range for {}.", given, x.dims);
    const int64_t front = x.dims.part(0, static_cast<size_t>(axis)).product();
    const int64_t back = front == 0 ? 0 : x.elements() / front;
    return c.m.reshape(row(c.m.reshape(x, {front, back})), x.dims);
  }
  const Dims swap = swapped(x.rank(), axis_of(given, x.rank()), static_cast<int64_t>(x.rank()) - 1);
  return c.m.transpose(row(c.m.transpose(x, swap)), swap);
}

// Softmax, LogSoftmax
Term softmax(Context& c) {
  return by_rows(c, [&](const Term& x) { return c.m.unary(c.op(), x, {{"axis", -1}}); });
}

// 1 at the first maximum of a row, 0 elsewhere.
Term hardmax(Context& c) {
  return by_rows(c, [&](const Term& x) {
    const auto axis = static_cast<int64_t>(x.rank()) - 1;
    const Term top = c.m.op("ArgMax", {x}, {{"axis", axis}, {"keep_dims", true}}, DType::i32,
                            x.dims.with_last(1));
    return cast(c.m.count(DType::i32, x.dims.back()) == top, x.dtype);
  });
}

constexpr Lowering kReductionLowerings[] = {
    {"ReduceSum ReduceMean ReduceProd", reduction},
    {"ReduceMax ReduceMin", extreme},
    {"ReduceL1", sum_of<absolute, itself>},
    {"ReduceL2", sum_of<squared, root>},
    {"ReduceSumSquare", sum_of<squared, itself>},
    {"ReduceLogSum", sum_of<itself, logarithm>},
    {"ReduceLogSumExp", log_sum_exp},
    {"ArgMax ArgMin", arg},
    {"CumSum", cum_sum},
    {"CumProd", cum_prod},
    {"TopK", top_k},
    {"Softmax LogSoftmax", softmax},
    {"Hardmax", hardmax},
};

}  // namespace

std::span<const Lowering> lowerings_of_reduction() { return kReductionLowerings; }

}  // namespace bowline::onnx
