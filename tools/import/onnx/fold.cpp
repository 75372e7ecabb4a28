#include "onnx/fold.h"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <span>

namespace bowline::onnx::fold {
namespace {

constexpr int64_t kMost = 4096;  // largest result that is computed here, in elements

bool known(const Term& t) { return t.numbers() != nullptr && t.elements() <= kMost; }
bool whole(const Term& t) { return known(t) && !is_float(t.dtype); }
bool small(const Dims& dims) {
  const Result<int64_t> n = elements_of(dims);
  return n.ok() && n.value() <= kMost;
}

// An operator of integers. Empty if the result is undefined.
struct OfIntegers {
  std::string_view op;
  std::optional<int64_t> (*of)(int64_t a, int64_t b);
};
using Bits = uint64_t;  // in which results wrap around
constexpr OfIntegers kOfIntegers[] = {
    {"Add", [](int64_t a, int64_t b) { return std::optional<int64_t>(Bits(a) + Bits(b)); }},
    {"Sub", [](int64_t a, int64_t b) { return std::optional<int64_t>(Bits(a) - Bits(b)); }},
    {"Mul", [](int64_t a, int64_t b) { return std::optional<int64_t>(Bits(a) * Bits(b)); }},
    {"Div",
     [](int64_t a, int64_t b) {
       const bool defined = b != 0 && !(a == INT64_MIN && b == -1);
       return defined ? std::optional(a / b) : std::nullopt;
     }},
    {"Max", [](int64_t a, int64_t b) { return std::optional(std::max(a, b)); }},
    {"Min", [](int64_t a, int64_t b) { return std::optional(std::min(a, b)); }},
    {"And", [](int64_t a, int64_t b) { return std::optional<int64_t>(a != 0 && b != 0); }},
    {"Or", [](int64_t a, int64_t b) { return std::optional<int64_t>(a != 0 || b != 0); }},
    {"Equal", [](int64_t a, int64_t b) { return std::optional<int64_t>(a == b); }},
    {"NotEqual", [](int64_t a, int64_t b) { return std::optional<int64_t>(a != b); }},
    {"Less", [](int64_t a, int64_t b) { return std::optional<int64_t>(a < b); }},
    {"LessOrEqual", [](int64_t a, int64_t b) { return std::optional<int64_t>(a <= b); }},
    {"Greater", [](int64_t a, int64_t b) { return std::optional<int64_t>(a > b); }},
    {"GreaterOrEqual", [](int64_t a, int64_t b) { return std::optional<int64_t>(a >= b); }},
};

std::optional<double> of_floats(std::string_view op, double x, double y) {
  const auto a = static_cast<float>(x), b = static_cast<float>(y);
  return op == "Add"   ? std::optional<double>(a + b)
         : op == "Sub" ? std::optional<double>(a - b)
         : op == "Mul" ? std::optional<double>(a * b)
         : op == "Div" ? std::optional<double>(a / b)
                       : std::nullopt;
}

// Computes each element with `of` from the elements of the operands, which broadcast to `dims`.
template <class T, class Of>
Known of_each(DType dtype, const Dims& dims, const Terms& operands, const Of& of) {
  std::vector<std::vector<T>> from;
  for (const Term& t : operands) {
    if constexpr (std::same_as<T, double>) {
      from.push_back(t.numbers()->reals());
    } else {
      from.push_back(t.numbers()->integers());
    }
  }
  bool defined = true;
  std::vector<T> out, elements(operands.size());
  walk(dims, [&](const Dims& at) {
    for (size_t k = 0; k < operands.size(); ++k) {
      elements[k] = from[k][place_in(operands[k].dims, at)];
    }
    const std::optional<T> element = of(elements);
    defined = defined && element;
    out.push_back(element.value_or(0));
  });
  return defined ? Known(ConstantTensor::of(dtype, dims, out)) : std::nullopt;
}

Known of_integers(std::string_view op, const Term& a, const Term& b, DType dtype,
                  const Dims& dims) {
  const auto* const found = std::ranges::find(kOfIntegers, op, &OfIntegers::op);
  if (found == std::end(kOfIntegers)) {
    return {};
  }
  return of_each<int64_t>(dtype, dims, {a, b},
                          [&](const std::vector<int64_t>& v) { return found->of(v[0], v[1]); });
}

// Moves elements: `place` returns the position in `x` of the element at a position of the result.
template <class Place>
Known taken(const Term& x, const Dims& dims, const Place& place) {
  const ConstantTensor& from = *x.numbers();
  const auto width = static_cast<std::ptrdiff_t>(size_of(from.dtype));
  ConstantTensor out;
  out.dtype = from.dtype;
  out.shape = dims;
  walk(dims, [&](const Dims& at) {
    const auto begin = from.bytes.begin() + static_cast<std::ptrdiff_t>(place(at)) * width;
    out.bytes.insert(out.bytes.end(), begin, begin + width);
  });
  return out;
}

}  // namespace

size_t place_in(const Dims& own, std::span<const int64_t> position) {
  int64_t place = 0;
  for (size_t a = 0; a < own.size(); ++a) {
    const int64_t i = position[position.size() - own.size() + a];
    place = place * own[a] + (own[a] == 1 ? 0 : i);
  }
  return static_cast<size_t>(place);
}

Known unary(std::string_view op, const Term& x) {
  if (!known(x)) {
    return {};
  }
  if (is_float(x.dtype)) {
    if (x.dtype != DType::f32 || (op != "Floor" && op != "Neg" && op != "Relu")) {
      return {};
    }
    std::vector<double> values = x.numbers()->reals();
    for (double& v : values) {
      v = op == "Floor" ? std::floor(v) : op == "Neg" ? -v : std::max(v, 0.0);
    }
    return ConstantTensor::of(x.dtype, x.dims, values);
  }
  if (op != "Neg" && op != "Abs" && op != "Not") {
    return {};
  }
  std::vector<int64_t> values = x.numbers()->integers();
  for (int64_t& v : values) {
    const auto negative = static_cast<int64_t>(0 - Bits(v));
    v = op == "Not" ? (v == 0 ? 1 : 0) : op == "Neg" || v < 0 ? negative : v;
  }
  return ConstantTensor::of(x.dtype, x.dims, values);
}

Known binary(std::string_view op, const Term& a, const Term& b, const Dims& dims) {
  if (!known(a) || !known(b) || !small(dims)) {
    return {};
  }
  if (a.dtype == DType::f32) {
    return of_each<double>(a.dtype, dims, {a, b},
                           [&](const std::vector<double>& v) { return of_floats(op, v[0], v[1]); });
  }
  return is_float(a.dtype) ? Known() : of_integers(op, a, b, a.dtype, dims);
}

Known compare(std::string_view op, const Term& a, const Term& b, const Dims& dims) {
  return whole(a) && whole(b) && small(dims) ? of_integers(op, a, b, DType::boolean, dims)
                                             : Known();
}

Known where(const Term& condition, const Term& a, const Term& b, const Dims& dims) {
  if (!whole(condition) || !whole(a) || !whole(b) || !small(dims)) {
    return {};
  }
  return of_each<int64_t>(a.dtype, dims, {condition, a, b}, [](const std::vector<int64_t>& v) {
    return std::optional(v[0] != 0 ? v[1] : v[2]);
  });
}

// Folds only casts that every device rounds in the same way: from f32, integers or bool to f32,
// integers or bool.
Known cast(const Term& x, DType dtype) {
  if (!known(x) || (dtype != DType::f32 && is_float(dtype)) ||
      (x.dtype != DType::f32 && is_float(x.dtype))) {
    return {};
  }
  if (is_float(x.dtype)) {
    if (dtype != DType::f32 && dtype != DType::i32 && dtype != DType::i64 &&
        dtype != DType::boolean) {
      return {};
    }
    std::vector<double> values = x.numbers()->reals();
    for (double& v : values) {
      if (dtype == DType::boolean) {
        v = v != 0 ? 1 : 0;
      } else if (dtype == DType::i32) {
        v = std::clamp(v, -2147483648.0, 2147483647.0);
      }
    }
    return ConstantTensor::of(dtype, x.dims, values);
  }
  return ConstantTensor::of(dtype, x.dims, x.numbers()->integers());
}

Known reshape(const Term& x, const Dims& dims) {
  // A large parameter is not copied only because nodes ask for its shape.
  if (x.numbers() == nullptr || (x.source->kept && !known(x))) {
    return {};
  }
  ConstantTensor out = *x.numbers();
  out.shape = dims;
  return out;
}

Known transpose(const Term& x, const std::vector<int64_t>& permutation, const Dims& dims) {
  if (!known(x)) {
    return {};
  }
  Dims source(dims.size());
  return taken(x, dims, [&](const Dims& at) {
    for (size_t a = 0; a < at.size(); ++a) {
      source[permutation[a]] = at[a];
    }
    return place_in(x.dims, source);
  });
}

Known slice(const Term& x, int64_t axis, int64_t start, const Dims& dims) {
  if (!known(x)) {
    return {};
  }
  return taken(x, dims, [&](Dims at) {
    at[axis] += start;
    return place_in(x.dims, at);
  });
}

Known concat(const Terms& parts, int64_t axis, const Dims& dims) {
  if (!small(dims) || !std::ranges::all_of(parts, known)) {
    return {};
  }
  const auto rows = static_cast<size_t>(dims.part(0, static_cast<size_t>(axis)).product());
  ConstantTensor out;
  out.dtype = parts[0].dtype;
  out.shape = dims;
  for (size_t row = 0; row < rows; ++row) {
    for (const Term& part : parts) {
      const std::vector<std::byte>& from = part.numbers()->bytes;
      const size_t width = from.size() / rows;
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * width);
      out.bytes.insert(out.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  }
  return out;
}

Known expand(const Term& x, const Dims& dims) {
  if (!known(x) || !small(dims)) {
    return {};
  }
  return taken(x, dims, [&](const Dims& at) { return place_in(x.dims, at); });
}

Known gather(const Term& x, const Term& indices, int64_t axis, const Dims& dims) {
  if (!known(x) || !whole(indices) || !small(dims)) {
    return {};
  }
  const std::vector<int64_t> chosen = indices.numbers()->integers();
  if (std::ranges::any_of(chosen, [&](int64_t i) { return i < 0 || i >= x.dims[axis]; })) {
    return {};
  }
  return taken(x, dims, [&](const Dims& at) {
    const auto begin = at.begin() + axis, end = begin + static_cast<std::ptrdiff_t>(indices.rank());
    Dims source(at.begin(), begin);
    source.push_back(chosen[place_in(indices.dims, {begin, end})]);
    source.insert(source.end(), end, at.end());
    return place_in(x.dims, source);
  });
}

Known reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes,
             const Dims& dims) {
  const bool product = op == "ReduceProd";
  if (!whole(x) || x.dtype == DType::boolean || (!product && op != "ReduceSum") ||
      axes.size() != x.rank()) {
    return {};
  }
  uint64_t out = product ? 1 : 0;
  for (const int64_t v : x.numbers()->integers()) {
    out = product ? out * static_cast<uint64_t>(v) : out + static_cast<uint64_t>(v);
  }
  return ConstantTensor::of(x.dtype, dims, std::vector<int64_t>{static_cast<int64_t>(out)});
}

}  // namespace bowline::onnx::fold
