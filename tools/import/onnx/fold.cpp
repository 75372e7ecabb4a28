#include "onnx/fold.h"

#include <cmath>
#include <cstring>

namespace bowline::onnx::fold {
namespace {

constexpr int64_t kMost = 4096;  // largest result that is computed here, in elements

bool known(const Term& t) { return t.numbers() != nullptr && t.elements() <= kMost; }
bool whole(const Term& t) { return known(t) && !is_float(t.dtype); }
bool small(const Dims& dims) {
  const Result<int64_t> n = elements_of(dims);
  return n.ok() && n.value() <= kMost;
}

// Visits the elements of `dims` in row-major order.
struct Walk {
  explicit Walk(const Dims& d) : dims(d), at(d.size(), 0) {}
  void next() {
    for (size_t a = dims.size(); a-- > 0;) {
      if (++at[a] < dims[a]) {
        return;
      }
      at[a] = 0;
    }
  }
  // Position of the current element in an operand of shape `other` that broadcasts to `dims`.
  size_t in(const Dims& other) const {
    int64_t place = 0;
    for (size_t a = 0; a < other.size(); ++a) {
      const int64_t i = at[at.size() - other.size() + a];
      place = place * other[a] + (other[a] == 1 ? 0 : i);
    }
    return static_cast<size_t>(place);
  }
  const Dims& dims;
  Dims at;
};

size_t count_of(const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) {
    n *= d;
  }
  return static_cast<size_t>(n);
}

int64_t wrapped(uint64_t bits) { return static_cast<int64_t>(bits); }

// Empty if the result is undefined, for example a division by zero.
std::optional<int64_t> of_integers(std::string_view op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  if (op == "Add") {
    return wrapped(x + y);
  }
  if (op == "Sub") {
    return wrapped(x - y);
  }
  if (op == "Mul") {
    return wrapped(x * y);
  }
  if (op == "Max") {
    return std::max(a, b);
  }
  if (op == "Min") {
    return std::min(a, b);
  }
  if (op == "And") {
    return a != 0 && b != 0 ? 1 : 0;
  }
  if (op == "Or") {
    return a != 0 || b != 0 ? 1 : 0;
  }
  if (op == "Div" && b != 0 && !(a == INT64_MIN && b == -1)) {
    return a / b;
  }
  return std::nullopt;
}

std::optional<float> of_floats(std::string_view op, float a, float b) {
  if (op == "Add") {
    return a + b;
  }
  if (op == "Sub") {
    return a - b;
  }
  if (op == "Mul") {
    return a * b;
  }
  if (op == "Div") {
    return a / b;
  }
  return std::nullopt;
}

template <class T>
bool compared(std::string_view op, T a, T b) {
  if (op == "Equal") {
    return a == b;
  }
  if (op == "NotEqual") {
    return a != b;
  }
  if (op == "Less") {
    return a < b;
  }
  if (op == "LessOrEqual") {
    return a <= b;
  }
  if (op == "Greater") {
    return a > b;
  }
  return a >= b;
}

// Returns the elements of `x` at these positions.
Known taken(const Term& x, const Dims& dims, const std::vector<size_t>& places) {
  const ConstantTensor& from = *x.numbers();
  const size_t width = size_of(from.dtype);
  ConstantTensor out;
  out.dtype = from.dtype;
  out.shape = dims;
  out.bytes.resize(places.size() * width);
  for (size_t i = 0; i < places.size(); ++i) {
    std::memcpy(out.bytes.data() + i * width, from.bytes.data() + places[i] * width, width);
  }
  return out;
}

}  // namespace

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
    const int64_t negative = wrapped(0 - static_cast<uint64_t>(v));
    v = op == "Not" ? (v == 0 ? 1 : 0) : op == "Neg" || v < 0 ? negative : v;
  }
  return ConstantTensor::of(x.dtype, x.dims, values);
}

Known binary(std::string_view op, const Term& a, const Term& b, const Dims& dims) {
  if (!known(a) || !known(b) || !small(dims)) {
    return {};
  }
  const size_t n = count_of(dims);
  Walk at(dims);
  if (a.dtype == DType::f32) {
    const std::vector<double> x = a.numbers()->reals();
    const std::vector<double> y = b.numbers()->reals();
    std::vector<double> out;
    for (size_t i = 0; i < n; ++i, at.next()) {
      const auto one =
          of_floats(op, static_cast<float>(x[at.in(a.dims)]), static_cast<float>(y[at.in(b.dims)]));
      if (!one) {
        return {};
      }
      out.push_back(static_cast<double>(*one));
    }
    return ConstantTensor::of(a.dtype, dims, out);
  }
  if (is_float(a.dtype)) {
    return {};
  }
  const std::vector<int64_t> x = a.numbers()->integers();
  const std::vector<int64_t> y = b.numbers()->integers();
  std::vector<int64_t> out;
  for (size_t i = 0; i < n; ++i, at.next()) {
    const auto one = of_integers(op, x[at.in(a.dims)], y[at.in(b.dims)]);
    if (!one) {
      return {};
    }
    out.push_back(*one);
  }
  return ConstantTensor::of(a.dtype, dims, out);
}

Known compare(std::string_view op, const Term& a, const Term& b, const Dims& dims) {
  if (!whole(a) || !whole(b) || !small(dims)) {
    return {};
  }
  const std::vector<int64_t> x = a.numbers()->integers();
  const std::vector<int64_t> y = b.numbers()->integers();
  std::vector<int64_t> out;
  Walk at(dims);
  for (size_t i = 0; i < count_of(dims); ++i, at.next()) {
    out.push_back(compared(op, x[at.in(a.dims)], y[at.in(b.dims)]) ? 1 : 0);
  }
  return ConstantTensor::of(DType::boolean, dims, out);
}

Known where(const Term& condition, const Term& a, const Term& b, const Dims& dims) {
  if (!whole(condition) || !whole(a) || !whole(b) || !small(dims)) {
    return {};
  }
  const std::vector<int64_t> c = condition.numbers()->integers();
  const std::vector<int64_t> x = a.numbers()->integers();
  const std::vector<int64_t> y = b.numbers()->integers();
  std::vector<int64_t> out;
  Walk at(dims);
  for (size_t i = 0; i < count_of(dims); ++i, at.next()) {
    out.push_back(c[at.in(condition.dims)] != 0 ? x[at.in(a.dims)] : y[at.in(b.dims)]);
  }
  return ConstantTensor::of(a.dtype, dims, out);
}

// Only those casts that every device rounds in the same way: of floats, f32 to integers, to bool or
// to f32.
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

Known transpose(const Term& x, const std::vector<int64_t>& permutation) {
  if (!known(x)) {
    return {};
  }
  Dims dims;
  for (const int64_t from : permutation) {
    dims.push_back(x.dims[static_cast<size_t>(from)]);
  }
  std::vector<size_t> places;
  Walk at(dims);
  Dims source(dims.size());
  for (size_t i = 0; i < count_of(dims); ++i, at.next()) {
    for (size_t a = 0; a < dims.size(); ++a) {
      source[static_cast<size_t>(permutation[a])] = at.at[a];
    }
    int64_t place = 0;
    for (size_t a = 0; a < dims.size(); ++a) {
      place = place * x.dims[a] + source[a];
    }
    places.push_back(static_cast<size_t>(place));
  }
  return taken(x, dims, places);
}

Known slice(const Term& x, int64_t axis, int64_t start, int64_t length) {
  if (!known(x)) {
    return {};
  }
  Dims dims = x.dims;
  dims[static_cast<size_t>(axis)] = length;
  std::vector<size_t> places;
  Walk at(dims);
  for (size_t i = 0; i < count_of(dims); ++i, at.next()) {
    int64_t place = 0;
    for (size_t a = 0; a < dims.size(); ++a) {
      const int64_t shift = a == static_cast<size_t>(axis) ? start : 0;
      place = place * x.dims[a] + at.at[a] + shift;
    }
    places.push_back(static_cast<size_t>(place));
  }
  return taken(x, dims, places);
}

Known concat(const Terms& parts, int64_t axis, const Dims& dims) {
  if (!small(dims)) {
    return {};
  }
  size_t rows = 1;  // product of the axes before `axis`
  for (size_t a = 0; a < static_cast<size_t>(axis); ++a) {
    rows *= static_cast<size_t>(dims[a]);
  }
  ConstantTensor out;
  out.dtype = parts[0].dtype;
  out.shape = dims;
  for (const Term& part : parts) {
    if (!known(part)) {
      return {};
    }
  }
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
  std::vector<size_t> places;
  Walk at(dims);
  for (size_t i = 0; i < count_of(dims); ++i, at.next()) {
    places.push_back(at.in(x.dims));
  }
  return taken(x, dims, places);
}

Known gather(const Term& x, const Term& indices, int64_t axis, const Dims& dims) {
  if (!known(x) || !whole(indices) || !small(dims)) {
    return {};
  }
  const std::vector<int64_t> chosen = indices.numbers()->integers();
  const auto a = static_cast<size_t>(axis);
  const int64_t size = x.dims[a];
  const size_t rows = count_of(Dims(x.dims.begin(), x.dims.begin() + axis));
  const size_t inner = count_of(Dims(x.dims.begin() + axis + 1, x.dims.end()));
  std::vector<size_t> places;
  for (size_t row = 0; row < rows; ++row) {
    for (const int64_t i : chosen) {
      if (i < 0 || i >= size) {
        return {};
      }
      for (size_t j = 0; j < inner; ++j) {
        places.push_back((row * static_cast<size_t>(size) + static_cast<size_t>(i)) * inner + j);
      }
    }
  }
  return taken(x, dims, places);
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
  return ConstantTensor::of(x.dtype, dims, std::vector<int64_t>{wrapped(out)});
}

}  // namespace bowline::onnx::fold
