// Operators whose result is known: constants, ranges and masks.
#include <algorithm>
#include <cmath>

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// Returns the value of a Constant node.
ConstantTensor value_of_constant(Context& c) {
  const auto row = [](DType dtype, const auto& values) {
    return ConstantTensor::of(dtype, {static_cast<int64_t>(values.size())}, values);
  };
  if (c.has_attribute("value_float")) {
    return ConstantTensor::of(DType::f32, {}, std::vector{c.real("value_float", 0)});
  }
  if (c.has_attribute("value_int")) {
    return ConstantTensor::of(DType::i64, {}, std::vector{c.integer("value_int", 0)});
  }
  if (c.has_attribute("value_floats")) {
    return row(DType::f32, c.reals("value_floats"));
  }
  return c.has_attribute("value_ints") ? row(DType::i64, c.list("value_ints")) : c.tensor("value");
}

// Floats with more than one element are weights: some exporters write all weights as constants.
Term constant(Context& c) {
  ConstantTensor value = value_of_constant(c);
  const bool weight = is_float(value.dtype) && value.elements() > 1 && c.outputs() > 0;
  return weight ? c.m.weight(std::move(value), c.node().output(0), c.readers(0))
                : c.m.stored(std::move(value));
}

Term constant_of_shape(Context& c) {
  const Dims dims = c.integers(0);
  ConstantTensor value = ConstantTensor::of(DType::f32, {}, std::vector<double>{0});
  if (c.has_attribute("value")) {
    value = c.tensor("value");
    require(value.elements() == 1, "Attribute value has {} elements, not 1.", value.elements());
    value.shape.clear();
  }
  if (required(elements_of(dims)) == 0) {
    value.shape = dims;
    value.bytes.clear();
  }
  return c.m.expand(c.m.constant(std::move(value)), dims);
}

Term range(Context& c) {
  c.ignore("stash_type");  // the values are computed in f64
  const double begin = c.number(0), end = c.number(1), step = c.number(2);
  const DType dtype = c.in(2).dtype;
  const bool exact = std::max({std::abs(begin), std::abs(end), std::abs(step)}) <= 0x1p53;
  support(is_float(dtype) || exact,
          "From {} to {} in steps of {}: integers beyond 2^53 are not supported.", begin, end,
          step);
  const double count = std::max(std::ceil((end - begin) / step), 0.0);
  support(count <= static_cast<double>(kMostComputed),
          "The range from {} to {} in steps of {} has too many values.", begin, end, step);
  return c.m.table(dtype, {static_cast<int64_t>(count)},
                   [&](int64_t i) { return begin + static_cast<double>(i) * step; });
}

// Mask of a matrix: `is_set` of column - row.
template <class IsSet>
Term mask_of(Context& c, int64_t rows, int64_t columns, DType dtype, const IsSet& is_set) {
  support(rows * columns <= kMostComputed, "A mask of {} by {} is too large.", rows, columns);
  return c.m.table(dtype, {rows, columns},
                   [&](int64_t i) { return is_set(i % columns - i / columns); });
}

Term eye_like(Context& c) {
  const Term x = c.in(0);
  const int64_t k = c.integer("k", 0);
  const DType dtype = c.dtype("dtype", x.dtype);
  require(x.rank() == 2, "{} is not a matrix.", x.dims);
  return mask_of(c, x.dims[0], x.dims[1], dtype, [&](int64_t distance) { return distance == k; });
}

Term trilu(Context& c) {
  const Term x = c.in(0);
  const bool upper = c.flag("upper", true);
  const int64_t given = c.has(1) ? c.single(1, "k") : 0;
  const int64_t k = std::clamp<int64_t>(given, INT32_MIN, INT32_MAX) + (upper ? 0 : 1);
  require(x.rank() >= 2, "{} is not a matrix.", x.dims);
  if (x.elements() == 0) {
    return x;
  }
  const Term above = mask_of(c, x.dims[x.rank() - 2], x.dims.back(), DType::boolean,
                             [&](int64_t distance) { return distance >= k; });
  return upper ? where(above, x, 0) : where(above, 0, x);
}

constexpr Lowering kConstantLowerings[] = {
    {"Constant", constant}, {"ConstantOfShape", constant_of_shape},
    {"Range", range},       {"EyeLike", eye_like},
    {"Trilu", trilu},
};

}  // namespace

std::span<const Lowering> lowerings_of_constant() { return kConstantLowerings; }

}  // namespace bowline::onnx
