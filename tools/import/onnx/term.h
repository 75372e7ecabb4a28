// Values of an ONNX graph, their shapes and their arithmetic.
//
// A failure throws Refused, and the reader catches it at the ONNX node. So a lowering reads like
// its formula, and it never sees a Term of a failed operation.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/words.h"
#include "onnx/numbers.h"

namespace bowline::onnx {

// The reason why a node cannot be lowered.
struct Refused {
  Status status;
};

// Converts a value for a message.
inline std::string shown(const std::vector<int64_t>& shape) { return shape_text(shape); }
inline std::string_view shown(DType dtype) { return name_of(dtype); }
template <class T>
  requires(!std::derived_from<T, std::vector<int64_t>>)
const T& shown(const T& value) {
  return value;
}

// Throws Refused with the sentence if the condition is false. The arguments are evaluated in any
// case.
template <class... Ts>
void refuse_unless(bool condition, Code code, std::string_view text, const Ts&... values) {
  if (!condition) {
    throw Refused{Status(code, bowline::format(text, shown(values)...))};
  }
}
// The file is wrong.
template <class... Ts>
void require(bool condition, std::string_view text, const Ts&... values) {
  refuse_unless(condition, Code::bad_file, text, values...);
}
// Bowline does not support it.
template <class... Ts>
void support(bool condition, std::string_view text, const Ts&... values) {
  refuse_unless(condition, Code::unsupported, text, values...);
}
// It is larger than a limit of the importer.
template <class... Ts>
void within_budget(bool condition, std::string_view text, const Ts&... values) {
  refuse_unless(condition, Code::over_budget, text, values...);
}

// Throws Refused if the status is a failure.
inline void require(const Status& status) {
  if (!status.ok()) {
    throw Refused{status};
  }
}
// Returns the value. Throws Refused if there is none.
template <class T>
T required(Result<T> result) {
  require(result.status());
  return std::move(result).value();
}
// Returns read(). If it is refused, the message gets the line `where`.
template <class Read>
auto located(const std::string& where, const Read& read) {
  try {
    return read();
  } catch (Refused& refused) {
    throw Refused{std::move(refused.status).at(where)};
  }
}

// The dims of a tensor. An axis out of range throws Refused.
class Dims : public std::vector<int64_t> {
 public:
  using std::vector<int64_t>::vector;
  Dims() = default;
  Dims(std::vector<int64_t> dims) : std::vector<int64_t>(std::move(dims)) {}  // NOLINT: the same

  template <std::integral Index>
  int64_t& operator[](Index axis) {
    return data()[checked(static_cast<size_t>(axis))];
  }
  template <std::integral Index>
  const int64_t& operator[](Index axis) const {
    return data()[checked(static_cast<size_t>(axis))];
  }
  int64_t& back() { return (*this)[size() - 1]; }
  const int64_t& back() const { return (*this)[size() - 1]; }
  void pop_back() {
    checked(0);
    std::vector<int64_t>::pop_back();
  }
  // The number of elements.
  int64_t product() const {
    return std::accumulate(begin(), end(), int64_t{1}, std::multiplies<>());
  }
  // The dims of the axes from `first` to before `last`.
  Dims part(size_t first, size_t last) const {
    return Dims(begin() + static_cast<std::ptrdiff_t>(first),
                begin() + static_cast<std::ptrdiff_t>(last));
  }
  // Copies with another dim, without an axis, and with more axes before an axis or at the end.
  Dims with(int64_t axis, int64_t dim) const;
  Dims with_last(int64_t dim) const { return with(static_cast<int64_t>(size()) - 1, dim); }
  Dims without(int64_t axis) const;
  Dims inserted(int64_t axis, const Dims& more) const;
  Dims joined(const Dims& more) const { return inserted(static_cast<int64_t>(size()), more); }

 private:
  size_t checked(size_t axis) const;
};

struct Later;

// A dynamic batch. While the graph is read, `size` stands for the number of rows.
struct Batch {
  std::string name;
  int64_t size = 0;
  // True if the graph was exported for one row. Then its first row, its last row and a 1 in place
  // of the batch stand for every row. Otherwise the graph is taken literally for any number of
  // rows.
  bool was_one = false;

  // True if n is a multiple of the number of rows.
  bool is_multiple(int64_t n) const { return n > 0 && n % size == 0; }
};

// Position of the rows of a dynamic batch in a value. The axis has `front` parts, and each part
// holds the whole batch.
struct BatchAxis {
  int64_t axis = 0;
  int64_t front = 1;
  bool operator==(const BatchAxis&) const = default;
};

class Maker;

// The origin of a value. Inputs and constants are added to the graph when a node first reads them.
struct Source {
  Maker* maker = nullptr;
  std::optional<ConstantTensor> numbers;  // set if the values are known
  // The values are known only because the caller gave them (ImportOptions::given).
  bool given = false;
  bool input = false;
  bool made = false;
  // A parameter that keeps its name, or a value computed from one. Such values are not folded into
  // a constant.
  bool kept = false;
  int readers = 1;  // number of node inputs that read an initializer
  std::shared_ptr<Later> later;
  std::string name;  // of the input or parameter
  StorageRole role = StorageRole::constant;
  std::optional<BatchAxis> batch;  // empty: the value is the same for all rows of a dynamic batch
  bowline::Value value;
};

// A value of the ONNX graph. False: an optional input that the node does not have.
struct Term {
  DType dtype = DType::f32;
  Dims dims;
  std::shared_ptr<Source> source;

  explicit operator bool() const { return source != nullptr; }
  size_t rank() const { return dims.size(); }
  int64_t elements() const { return dims.product(); }
  // Null if the values are not known.
  const ConstantTensor* numbers() const {
    return source != nullptr && source->numbers ? &*source->numbers : nullptr;
  }
  // True if the values are known without values that the caller gave.
  bool constant() const { return numbers() != nullptr && !source->given; }
};

using Terms = std::vector<Term>;

// The node of a folded value. It is added to the graph only if another node reads the value itself.
struct Later {
  std::string op;
  Terms inputs;
  std::vector<Attribute> attributes;
  std::string name;
  int depth = 0;  // length of the chain of deferred nodes that it depends on
};

// An operand of arithmetic: a Term, or a number that becomes a scalar of the other operand's dtype.
class Operand {
 public:
  Operand(const Term& term) : term_(&term) {}  // NOLINT: implicit, as is the next
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Operand(Number number) : number_(static_cast<double>(number)) {}  // NOLINT

  const Term* term() const { return term_; }  // null: a number
  double number() const { return number_; }

 private:
  const Term* term_ = nullptr;
  double number_ = 0;
};

// Elementwise, by the name of the Bowline operator. Operands have the same dtype and broadcast.
Term unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes = {});
Term binary(std::string_view op, const Operand& a, const Operand& b);
Term compare(std::string_view op, const Operand& a, const Operand& b);  // returns bool

inline Term operator+(const Operand& a, const Operand& b) { return binary("Add", a, b); }
inline Term operator-(const Operand& a, const Operand& b) {
  return b.term() == nullptr ? a + -b.number() : binary("Sub", a, b);
}
inline Term operator*(const Operand& a, const Operand& b) { return binary("Mul", a, b); }
inline Term operator/(const Operand& a, const Operand& b) { return binary("Div", a, b); }
inline Term operator-(const Term& x) { return unary("Neg", x); }
// Of bool.
inline Term operator&(const Operand& a, const Operand& b) { return binary("And", a, b); }
inline Term operator|(const Operand& a, const Operand& b) { return binary("Or", a, b); }
inline Term operator==(const Operand& a, const Operand& b) { return compare("Equal", a, b); }
inline Term operator!=(const Operand& a, const Operand& b) { return compare("NotEqual", a, b); }
inline Term operator<(const Operand& a, const Operand& b) { return compare("Less", a, b); }
inline Term operator<=(const Operand& a, const Operand& b) { return compare("LessOrEqual", a, b); }
inline Term operator>(const Operand& a, const Operand& b) { return compare("Greater", a, b); }
inline Term operator>=(const Operand& a, const Operand& b) {
  return compare("GreaterOrEqual", a, b);
}
inline Term max(const Operand& a, const Operand& b) { return binary("Max", a, b); }
inline Term min(const Operand& a, const Operand& b) { return binary("Min", a, b); }
inline Term pow(const Operand& a, const Operand& b) { return binary("Pow", a, b); }
Term where(const Term& condition, const Operand& a, const Operand& b);
Term cast(const Term& x, DType dtype);
inline Term clip(const Term& x, double least, double most) {
  return unary("Clip", x, {{"min", least}, {"max", most}});
}
inline Term elu(const Term& x, double alpha) { return unary("Elu", x, {{"alpha", alpha}}); }
inline Term abs(const Term& x) { return unary("Abs", x); }
inline Term cos(const Term& x) { return unary("Cos", x); }
inline Term exp(const Term& x) { return unary("Exp", x); }
inline Term floor(const Term& x) { return unary("Floor", x); }
inline Term log(const Term& x) { return unary("Log", x); }
inline Term round(const Term& x) { return unary("Round", x); }  // halves to even
inline Term rsqrt(const Term& x) { return unary("Rsqrt", x); }
inline Term sigmoid(const Term& x) { return unary("Sigmoid", x); }
inline Term sign(const Term& x) { return unary("Sign", x); }
inline Term sin(const Term& x) { return unary("Sin", x); }
inline Term sqrt(const Term& x) { return unary("Sqrt", x); }
inline Term square(const Term& x) { return unary("Square", x); }
inline Term tanh(const Term& x) { return unary("Tanh", x); }

// A scalar of the dtype of x.
Term scalar_like(const Term& x, double number);

// Returns a non-negative axis.
int64_t axis_of(int64_t axis, size_t rank);
// Broadcasts two shapes by the rules of NumPy.
Dims broadcast(const Dims& a, const Dims& b);

std::vector<GraphDim> graph_dims(const std::vector<int64_t>& numbers);
// 0, 1, .. rank - 1
std::vector<int64_t> all_axes(size_t rank);
// Returns the dtype as the attribute of Cast names it.
std::string name_in_cast(DType dtype);

}  // namespace bowline::onnx
