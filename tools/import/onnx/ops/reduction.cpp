// Reductions, and operators that sort or accumulate along an axis.
#include <algorithm>
#include <cmath>

#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Returns the reduced axes, from an attribute or an input (ReduceSum from operator set 13 on).
Result<std::vector<int64_t>> axes_of(Context& c, const Term& x) {
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, c.list_or_input("axes", 1));
  BOWLINE_TRY_ASSIGN(const int64_t none, c.integer("noop_with_empty_axes", 0));
  if (axes.empty() && none == 0) {
    return all_axes(x.rank());
  }
  return axes;
}

using Step = Term (*)(Maker& m, const Term& x);

Term itself(Maker&, const Term& x) { return x; }
Term size(Maker& m, const Term& x) { return m.unary("Abs", x); }
Term square(Maker& m, const Term& x) { return m.unary("Square", x); }
Term root(Maker& m, const Term& x) { return m.unary("Sqrt", x); }
Term logarithm(Maker& m, const Term& x) { return m.unary("Log", x); }

constexpr char kReduceSum[] = "ReduceSum", kReduceMean[] = "ReduceMean", kReduceMax[] = "ReduceMax",
               kReduceMin[] = "ReduceMin", kReduceProd[] = "ReduceProd";

// Computes after(op over the axes of before(x)).
template <const char* op, Step before = itself, Step after = itself>
Status reduction(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, axes_of(c, x));
  BOWLINE_TRY_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  const bool changes = before != Step{itself} || after != Step{itself};
  const Term sum = c.m.reduce(op, before(c.m, changes ? in_f32(c, x) : x), axes, keep != 0);
  c.out(0, c.m.cast(after(c.m, sum), x.dtype));
  return {};
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
Term extreme_over(Context& c, const Term& x, bool largest, const std::vector<int64_t>& axes,
                  bool keep) {
  const char* const op = largest ? kReduceMax : kReduceMin;
  if (x.elements() != 0) {
    const bool truth = x.dtype == DType::boolean;
    return c.m.cast(c.m.reduce(op, truth ? c.m.cast(x, DType::u8) : x, axes, keep), x.dtype);
  }
  // A sum has the same shape.
  const Term shape = c.m.reduce(kReduceSum, c.m.cast(x, DType::f32), axes, keep);
  return c.m.expand(extreme_of_none(c, x.dtype, largest), shape.dims);
}

template <bool largest>
Status extreme(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, axes_of(c, x));
  BOWLINE_TRY_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  c.out(0, extreme_over(c, x, largest, axes, keep != 0));
  return {};
}

// log(sum e^(x - max)) + max; a non-finite max is replaced by 0
Status log_sum_exp(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> axes, axes_of(c, x));
  BOWLINE_TRY_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  const Term top = extreme_over(c, x, true, axes, true);
  const Term is_finite = c.m.compare("Less", c.m.unary("Abs", top),
                                     c.m.scalar(x.dtype, std::numeric_limits<double>::infinity()));
  const Term shift = c.m.where(is_finite, top, c.m.scalar(x.dtype, 0));
  const Term sum = c.m.reduce("ReduceSum", c.m.unary("Exp", c.m.sub(x, shift)), axes, keep != 0);
  c.out(0, c.m.add(c.m.unary("Log", sum), c.m.reshape(shift, sum.dims)));
  return {};
}

constexpr char kArgMax[] = "ArgMax", kArgMin[] = "ArgMin";

template <const char* op>
Status arg(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", 0));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_TRY_ASSIGN(const int64_t keep, c.integer("keepdims", 1));
  BOWLINE_TRY_ASSIGN(const int64_t last, c.integer("select_last_index", 0));
  Dims dims = x.dims;
  dims[static_cast<size_t>(axis)] = 1;
  if (keep == 0) {
    dims.erase(dims.begin() + axis);
  }
  const Term i = c.m.op(op, {x}, {{"axis", axis}, {"keep_dims", keep != 0}, {"last", last != 0}},
                        DType::i32, dims);
  c.out(0, c.m.cast(i, DType::i64));
  return {};
}

// Arguments of a cumulative sum or product along an axis.
struct Running {
  Term x;
  int64_t axis = 0;
  bool exclusive = false, reverse = false;
};

Result<Running> running_of(Context& c) {
  Running r;
  BOWLINE_TRY_ASSIGN(r.x, c.in(0));
  BOWLINE_TRY_ASSIGN(const std::vector<int64_t> given, c.integers(1));
  BOWLINE_REQUIRE_CODE(given.size() == 1, Code::bad_file, "Input axis has {} elements, not 1.",
                       given.size());
  BOWLINE_TRY_ASSIGN(r.axis, axis_of(given[0], r.x.rank()));
  BOWLINE_TRY_ASSIGN(const int64_t exclusive, c.integer("exclusive", 0));
  BOWLINE_TRY_ASSIGN(const int64_t reverse, c.integer("reverse", 0));
  r.exclusive = exclusive != 0;
  r.reverse = reverse != 0;
  return r;
}

Status cum_sum(Context& c) {
  BOWLINE_TRY_ASSIGN(const Running r, running_of(c));
  c.out(0, c.m.op("CumSum", {r.x},
                  {{"axis", r.axis}, {"exclusive", r.exclusive}, {"reverse", r.reverse}}, r.x.dtype,
                  r.x.dims));
  return {};
}

// Cumulative product: a reduction over the whole axis, with 1 in place of the later elements.
Status cum_prod(Context& c) {
  BOWLINE_TRY_ASSIGN(const Running r, running_of(c));
  const Term& x = r.x;
  const int64_t axis = r.axis;
  const int64_t n = x.dims[static_cast<size_t>(axis)];
  BOWLINE_REQUIRE_CODE(n <= 2048, Code::unsupported,
                       "Cumulative products of {} elements are not supported: the limit is 2048.",
                       n);
  // With the axis twice, element i is the product over the second copy.
  Dims once = x.dims, rows(x.rank() + 1, 1), columns(x.rank() + 1, 1);
  once.insert(once.begin() + axis, 1);
  rows[static_cast<size_t>(axis)] = n;
  columns[static_cast<size_t>(axis) + 1] = n;
  const Term i = c.m.reshape(c.m.count(DType::i32, n), rows);
  const Term j = c.m.reshape(c.m.count(DType::i32, n), columns);
  const char* const in_front = r.exclusive ? "Less" : "LessOrEqual";
  const Term taken = r.reverse ? c.m.compare(in_front, i, j) : c.m.compare(in_front, j, i);
  const Term factors = c.m.where(taken, c.m.reshape(x, once), c.m.scalar(x.dtype, 1));
  c.out(0, c.m.reduce(kReduceProd, factors, {axis + 1}, false));
  return {};
}

// Ties are resolved by position. The result is always sorted.
Status top_k(Context& c) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  int64_t k = 0;
  if (c.opset < 10) {
    BOWLINE_TRY_ASSIGN(k, c.integer("k", 0));
  } else {
    BOWLINE_TRY_ASSIGN(const std::vector<int64_t> given, c.integers(1));
    BOWLINE_REQUIRE_CODE(given.size() == 1, Code::bad_file, "Input k has {} elements.",
                         given.size());
    k = given[0];
  }
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", -1));
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  BOWLINE_TRY_ASSIGN(const int64_t largest, c.integer("largest", 1));
  c.ignore("sorted");
  Dims dims = x.dims;
  BOWLINE_REQUIRE_CODE(k >= 0 && k <= dims[static_cast<size_t>(axis)], Code::bad_file,
                       "K is {}, but axis {} of {} has fewer elements.", k, axis,
                       shape_text(x.dims));
  dims[static_cast<size_t>(axis)] = k;
  const Terms out = c.m.ops("TopK", {x}, {{"k", k}, {"axis", axis}, {"largest", largest != 0}},
                            {{x.dtype, dims}, {DType::i32, dims}});
  c.out(0, out[0]);
  c.out(1, c.wants(1) ? c.m.cast(out[1], DType::i64) : out[1]);
  return {};
}

// Moves the axis to the end. Before operator set 13 the axis and all axes after it are merged.
template <class Row>
Status by_rows(Context& c, const Row& row) {
  BOWLINE_TRY_ASSIGN(const Term x, c.in(0));
  BOWLINE_TRY_ASSIGN(const int64_t given, c.integer("axis", c.opset < 13 ? 1 : -1));
  if (c.opset < 13) {
    const auto rank = static_cast<int64_t>(x.rank());
    const int64_t axis = given < 0 ? given + rank : given;
    BOWLINE_REQUIRE_CODE(axis >= 0 && axis <= rank, Code::bad_file,
                         "Axis {} is out of range for {}.", given, shape_text(x.dims));
    int64_t front = 1;
    for (int64_t a = 0; a < axis; ++a) {
      front *= x.dims[static_cast<size_t>(a)];
    }
    const int64_t back = front == 0 ? 0 : x.elements() / front;
    c.out(0, c.m.reshape(row(c.m.reshape(x, {front, back})), x.dims));
    return {};
  }
  BOWLINE_TRY_ASSIGN(const int64_t axis, axis_of(given, x.rank()));
  std::vector<int64_t> swap = all_axes(x.rank());
  std::swap(swap[static_cast<size_t>(axis)], swap.back());
  c.out(0, c.m.transpose(row(c.m.transpose(x, swap)), swap));
  return {};
}

Status softmax(Context& c) {
  return by_rows(c, [&](const Term& x) { return c.m.unary("Softmax", x, {{"axis", -1}}); });
}

Status log_softmax(Context& c) {
  return by_rows(c, [&](const Term& x) { return c.m.unary("LogSoftmax", x, {{"axis", -1}}); });
}

// 1 at the first maximum of a row, 0 elsewhere.
Status hardmax(Context& c) {
  return by_rows(c, [&](const Term& x) {
    Dims dims = x.dims;
    dims.back() = 1;
    const auto axis = static_cast<int64_t>(x.rank()) - 1;
    const Term top = c.m.op("ArgMax", {x}, {{"axis", axis}, {"keep_dims", true}}, DType::i32, dims);
    return c.m.cast(c.m.compare("Equal", c.m.count(DType::i32, x.dims.back()), top), x.dtype);
  });
}

constexpr Lowering kReductionLowerings[] = {
    {"ReduceSum", reduction<kReduceSum>},
    {"ReduceMean", reduction<kReduceMean>},
    {"ReduceMax", extreme<true>},
    {"ReduceMin", extreme<false>},
    {"ReduceProd", reduction<kReduceProd>},
    {"ReduceL1", reduction<kReduceSum, size>},
    {"ReduceL2", reduction<kReduceSum, square, root>},
    {"ReduceSumSquare", reduction<kReduceSum, square>},
    {"ReduceLogSum", reduction<kReduceSum, itself, logarithm>},
    {"ReduceLogSumExp", log_sum_exp},
    {"ArgMax", arg<kArgMax>},
    {"ArgMin", arg<kArgMin>},
    {"CumSum", cum_sum},
    {"CumProd", cum_prod},
    {"TopK", top_k},
    {"Softmax", softmax},
    {"LogSoftmax", log_softmax},
    {"Hardmax", hardmax},
};

}  // namespace

std::span<const Lowering> lowerings_of_reduction() { return kReductionLowerings; }

}  // namespace bowline::onnx
