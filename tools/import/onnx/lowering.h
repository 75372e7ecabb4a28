// The interface between a lowering and its node, and the registration of lowerings.
//
// Each file of ops/ has the lowerings of a group of ONNX operators and defines
//   std::span<const Lowering> lowerings_of_<file>()
// The build finds this function. A lowering returns output 0 of its node and sets any other output
// with out(). A failure throws Refused. A node is also rejected if its lowering does not ask for an
// attribute or an input of the node, or does not set a wanted output. So nothing is dropped
// silently.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "onnx/maker.h"

namespace bowline::onnx {

namespace file {
class AttributeProto;
class NodeProto;
}  // namespace file

inline constexpr std::string_view kTraining = "ai.onnx.preview.training";
// Domain of the operators that ONNX Runtime adds (its docs/ContribOperators.md).
inline constexpr std::string_view kMicrosoft = "com.microsoft";

// The part of an ONNX graph that was lowered so far. The Gradient operator differentiates it.
struct Lowered {
  std::vector<const file::NodeProto*> nodes;
  std::map<std::string, Term> values;
};

// Number of readers of a value: node inputs plus graph outputs. `outputs` counts the graph outputs
// alone.
struct Readers {
  int all = 0;
  int outputs = 0;
};

class Context {
 public:
  Context(Maker& maker, const file::NodeProto& node, int opset, std::string folder,
          const Lowered& before, Terms inputs, std::vector<Readers> readers);

  Maker& m;
  const int opset;  // version of the operator set of the node's domain

  size_t inputs() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  // These functions reject a missing input. numbers(), integers() and single() also reject unknown
  // values.
  Term in(size_t i);
  // Returns a false Term if the input is missing.
  Term optional(size_t i);
  ConstantTensor numbers(size_t i);
  std::vector<int64_t> integers(size_t i);
  // The only element of an input.
  double number(size_t i);
  // The same of integers. `what` names the input in the message.
  int64_t single(size_t i, std::string_view what);

  bool has_attribute(std::string_view name) const;
  // These functions reject an attribute of another type.
  int64_t integer(std::string_view name, int64_t otherwise);
  bool flag(std::string_view name, bool otherwise) { return integer(name, otherwise ? 1 : 0) != 0; }
  // The attribute "axis", non-negative.
  int64_t axis(size_t rank, int64_t otherwise) { return axis_of(integer("axis", otherwise), rank); }
  // Converts an attribute with the number of a dtype. If it is missing or 0: `otherwise`.
  DType dtype(std::string_view name, DType otherwise);
  double real(std::string_view name, double otherwise);
  std::string text(std::string_view name, const std::string& otherwise);
  // A text attribute that must be one of the words of `choices`. `what` names it in the message.
  std::string choice(std::string_view name, const std::string& otherwise, std::string_view choices,
                     std::string_view what, Code code = Code::bad_file);
  std::vector<int64_t> list(std::string_view name);  // empty if the attribute is missing
  std::vector<double> reals(std::string_view name);
  std::vector<std::string> texts(std::string_view name);
  ConstantTensor tensor(std::string_view name);
  // Accepts an attribute that does not change the result.
  void ignore(std::string_view name) { asked_.insert(std::string(name)); }
  // Returns input i if the node has it, else the attribute. Newer operator sets moved some lists
  // from attributes to inputs.
  std::vector<int64_t> list_or_input(std::string_view name, size_t i);

  size_t outputs() const { return outputs_.size(); }
  // Number of readers of output i.
  int readers(size_t i) const { return i < readers_.size() ? readers_[i].all : 0; }
  // True if output i is an output of the model and no node reads it.
  bool only_output(size_t i) const {
    return i < readers_.size() && readers_[i].outputs > 0 && readers_[i].outputs == readers_[i].all;
  }
  bool wants(size_t i) const { return readers(i) > 0; }
  void out(size_t i, const Term& value);

  const std::string& op() const;  // the name of the operator
  const file::NodeProto& node() const { return node_; }
  const Lowered& before() const { return before_; }
  const Terms& results() const { return outputs_; }
  // Refuses the node if the lowering did not read an attribute or input, or did not set a wanted
  // output.
  void check_leftovers() const;

 private:
  using Attribute = file::AttributeProto;
  const Attribute* find(std::string_view name, std::string_view kind,
                        bool (*is_right)(const Attribute&));

  const file::NodeProto& node_;
  const std::string folder_;
  const Lowered& before_;
  Terms inputs_;
  std::vector<Readers> readers_;
  std::vector<bool> read_;
  std::set<std::string> asked_;
  Terms outputs_;
  std::vector<bool> set_;
};

struct Lowering {
  std::string_view ops;       // the operators, separated by spaces
  Term (*lower)(Context& c);  // returns output 0
  std::string_view domain = {};
};

// Lowers an operator that is a formula of its input.
template <Term (*formula)(const Term& x)>
Term plain(Context& c) {
  return formula(c.in(0));
}

// The tables of all files of ops/. The build writes this function.
std::vector<std::span<const Lowering>> groups_of_lowerings();
// Refuses an operator without a lowering.
const Lowering& find_lowering(std::string_view domain, std::string_view op);

// Requires that the values of `term` are known. `what` names the term in the message.
void require_known(const Term& term, std::string_view what);

// Casts f16 and bf16 to f32. Intermediate values need more digits than 16 bits have, and can be
// beyond the range of f16.
Term in_f32(const Term& x);

// Requires integers below 2^31, so that sums and products with dims cannot overflow.
void require_small(std::string_view what, const std::vector<int64_t>& values);

// Extends values of some axes to all axes. The other axes get `otherwise`. Both have a value per
// axis, or two parts with a value per axis: begins and ends.
template <class T>
std::vector<T> of_all_axes(const std::vector<T>& values, const std::vector<int64_t>& axes,
                           std::vector<T> otherwise, size_t parts = 1) {
  if (axes.empty() || values.empty()) {
    return values;
  }
  require(values.size() == parts * axes.size(), "{} values do not fit {} axes.", values.size(),
          axes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t rank = otherwise.size() / parts;
    const auto axis = static_cast<size_t>(axis_of(axes[i % axes.size()], rank));
    otherwise[i / axes.size() * rank + axis] = values[i];
  }
  return otherwise;
}

// Transposes [n, channels, d..] to [n, d.., channels], and back.
Term channels_last(Context& c, const Term& x);
Term channels_second(Context& c, const Term& x);

// 0, 1, .. rank - 1 with two axes swapped: a permutation for transpose().
Dims swapped(size_t rank, int64_t a, int64_t b);
// Multiplies the rows of x with a matrix. A row has the elements of the last axes. `dims`: of the
// result.
Term rows_times(Context& c, const Term& x, const Term& matrix, const Dims& dims);
// Crops an axis to `length` elements or pads it with zeros at the end.
Term with_length(Context& c, const Term& x, int64_t axis, int64_t length);

// Number of products of integers from -255 to 255 whose sum is exact in f32: 255 * 255 * 256 <
// 2^24.
inline constexpr int64_t kExactProducts = 256;

// Returns x - zero_point in f32, which represents all results exactly. A zero point without a
// source is 0.
Term centred(const Term& x, const Term& zero_point);
// Returns saturate(round(x) + zero_point) in the dtype of the zero point.
Term saturated(const Term& x, const Term& zero_point);
// x quantized to unsigned 8 bits over the range of its elements and 0: x = (whole - zero_point) *
// scale.
struct Quantized {
  Term whole, scale, zero_point;
};
Quantized quantized_by_range(Context& c, const Term& x);
// Returns alpha * a' * b', with the attributes alpha, transA and transB.
Term scaled_product(Context& c, const Term& a, const Term& b);

// Used by several groups of operators.
// Returns indices as i32. A negative index counts from the end, as in Bowline's operators. Known
// indices become non-negative.
Term i32_indices(const Term& indices, int64_t size);
// Returns indices as i32 within [0, size). A negative index counts from the end.
Term positive_indices(const Term& indices, int64_t size);

}  // namespace bowline::onnx
