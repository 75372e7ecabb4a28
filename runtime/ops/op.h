// OpDef: the definition of an operator, and the contexts that its functions receive.
//
// An op file (runtime/ops/<stem>.cpp) holds the doc comment, shape inference, the gradient, the
// reference implementation in double precision ("oracle") and the tolerance. It includes this
// header, other headers of ops/ and core/ only. graph/ and the conformance runner implement the
// contexts.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/attributes.h"
#include "core/operand_types.h"
#include "core/shape.h"
#include "core/strides.h"
#include "generated/step_words.h"

#ifdef BOWLINE_ORACLES
#define BOWLINE_ORACLE(f) f
#else
#define BOWLINE_ORACLE(f) nullptr
#endif

namespace bowline {

// The attributes of a node. Sizes given as dimension names are already replaced by values.
class AttributesContext {
 public:
  explicit AttributesContext(const Attributes& attributes) : attributes_(&attributes) {}

  const Attributes& attributes() const { return *attributes_; }
  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }
  // The attribute `axis`, counted from the front. Shape inference has checked it.
  template <class Table>
  int axis(int rank) const {
    return positive_axis(attributes<Table>().axis(), rank);
  }

 private:
  const Attributes* attributes_;
};

// Input and output of shape inference.
class InferContext : public AttributesContext {
 public:
  using AttributesContext::AttributesContext;
  virtual ~InferContext() = default;
  virtual int inputs() const = 0;
  virtual const Shape& in(int i) const = 0;
  virtual DType dtype(int i) const = 0;
  // Sets output i. Without `dtype`, OpDef::types decides its dtype.
  virtual Status out(int i, const Shape& shape, std::optional<DType> dtype = {}) = 0;
  // Sets the first outputs.
  Status out_each(std::initializer_list<Shape> shapes) {
    int i = 0;
    for (const Shape& shape : shapes) {
      BOWLINE_TRY(out(i++, shape));
    }
    return {};
  }
};

// Shape inference: checks the shape of an input. `name` and `of` are words of the message.
inline Status check_shape(std::string_view name, const Shape& shape, std::string_view of,
                          const Shape& expected) {
  BOWLINE_REQUIRE(shape == expected, "Shape of {} ({}) is not the shape of {} ({}).", name, shape,
                  of, expected);
  return {};
}
inline Status check_shape(std::string_view name, const Shape& shape, const Shape& expected) {
  BOWLINE_REQUIRE(shape == expected, "Shape of {} ({}) is not {}.", name, shape, expected);
  return {};
}

// Input and output of the rules for dynamic dimensions. Elements behind the current size of a
// dynamic axis are undefined and may be NaN. Elements before it must not depend on them.
class CountedContext : public AttributesContext {
 public:
  using AttributesContext::AttributesContext;
  static constexpr int kNone = -1;

  virtual ~CountedContext() = default;
  virtual int inputs() const = 0;
  virtual const Shape& in(int i) const = 0;
  virtual const Shape& out(int o) const = 0;
  // The dynamic dimension of an axis of input i, or kNone.
  virtual int dim(int i, int axis) const = 0;
  // The dynamic dimension named by entry `index` of an attribute, or kNone. The node is refused if
  // an attribute names a dynamic dimension that the rule does not ask for.
  virtual int attribute_dim(std::string_view attribute, uint32_t index = 0) = 0;
  // Makes an axis of output o dynamic.
  virtual void count(int o, int axis, int dim) = 0;
  // If the axis of input i is dynamic, the elements behind its current size are set to `fill`.
  virtual void mask(int i, int axis, double fill) = 0;
  // If the axis of input i is dynamic, the kernel reads only up to its current size. At most one
  // axis per input.
  virtual void read_count(int i, int axis) = 0;
  // Errors  unsupported: "Axis 1 of input 0 is the dynamic dimension "seq", but {why}."
  virtual Status refuse(int i, int axis, std::string_view why) const = 0;
};

// A value of the graph under differentiation. Invalid after an error.
struct GradientValue {
  uint32_t index = UINT32_MAX;
  bool valid() const { return index != UINT32_MAX; }
};
using GradientValues = std::vector<GradientValue>;

// Input and output of a gradient function. If `add` fails, it returns invalid values, and din()
// returns its status.
class GradientContext : public AttributesContext {
 public:
  using AttributesContext::AttributesContext;
  virtual ~GradientContext() = default;
  virtual int inputs() const = 0;
  virtual GradientValue in(int i) const = 0;
  virtual GradientValue out(int i) const = 0;
  // Gradient of output i. It is invalid if i > 0 and the loss does not depend on output i. The
  // gradient of output 0 is always valid.
  virtual GradientValue dout(int i) const = 0;
  // True if the gradient of input i is used.
  virtual bool needs(int i) const = 0;
  // True if input i depends on an input of the graph.
  virtual bool from_batch(int i) const = 0;
  // A copy, because `add` moves the shapes of all values.
  virtual Shape shape(GradientValue v) const = 0;
  virtual DType dtype(GradientValue v) const = 0;

  virtual GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) = 0;
  GradientValue add1(Op op, const GradientValues& inputs,
                     const Attributes& attributes = Attributes::of(file::NoAttributesT{})) {
    const GradientValues out = add(op, inputs, attributes);
    return out.empty() ? GradientValue{} : out[0];
  }
  // Adds a contribution to the gradient of input i.
  virtual Status din(int i, GradientValue gradient) = 0;
  // The same for every input i up to the length of `gradients`, the results of one `add`.
  Status din_each(const GradientValues& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      BOWLINE_TRY(din(static_cast<int>(i), gradients[i]));
    }
    return gradients.empty() ? din(0, {}) : Status();
  }
};

// The divisor of a mean loss: the sum of the weights of its terms.
struct LossWeight {
  // An f32 scalar that depends on the batch. If invalid, the sum is `terms` for every batch.
  GradientValue sum = {};
  // The sum for a batch in which every term counts with weight 1.
  double terms = 1;
};

// Operands of a reference implementation, in double precision. Integers are exact up to 2^53.
// Inputs are rounded to their dtype; the caller rounds the outputs. Outputs start as zero.
class OracleContext : public AttributesContext {
 public:
  // Values of the kernel record and of the head of the step buffer.
  struct Facts {
    bool error = false;               // an error occurred: optimizers skip their update
    bool accumulate = false;          // results of earlier submissions are kept
    bool first_contribution = false;  // AccumulateGrad: `first` of the table entry
    uint32_t iteration = 0;           // of the enclosing Repeat
  };
  // Results besides the outputs, and which results are defined.
  struct Outcome {
    std::vector<double> bad_indices;  // out-of-range indices; the kernel must report one of them
    std::vector<std::optional<double>> words;  // by per-step scalar: the written value, if any
    uint32_t undefined_outputs = 0;            // bit i: output i is undefined
    bool may_set_error = false;                // whether an error is reported is undefined
  };
  // An operand. A list operand is one flat array of its entries.
  struct Array {
    Shape shape;
    std::vector<double> values;
    DType dtype = DType::f32;
    // (optional) Only the first `count` elements along this axis are valid
    // (device::Operand::counted_axis).
    int counted_axis = -1;
    int64_t count = 0;
    std::vector<int64_t> entries = {};  // of a list: number of elements per entry
  };

  OracleContext(const Attributes& attributes, std::span<const Array> in, std::span<Array> out,
                std::span<std::vector<double>> magnitude, const Facts& record,
                std::span<const uint64_t> step_words, Outcome& result)
      : AttributesContext(attributes),
        facts(record),
        outcome(result),
        in_(in),
        out_(out),
        magnitude_(magnitude),
        step_words_(step_words) {}

  int inputs() const { return static_cast<int>(in_.size()); }
  std::span<const double> in(int i) const { return in_[static_cast<size_t>(i)].values; }
  const Shape& shape(int i) const { return in_[static_cast<size_t>(i)].shape; }
  DType dtype(int i) const { return in_[static_cast<size_t>(i)].dtype; }
  std::span<const int64_t> entries(int i) const { return in_[static_cast<size_t>(i)].entries; }
  // Number of valid elements along an axis of input i.
  int64_t extent(int i, int axis) const {
    const Array& a = in_[static_cast<size_t>(i)];
    return a.counted_axis == axis ? a.count : a.shape[axis];
  }
  std::span<double> out(int i) const { return out_[static_cast<size_t>(i)].values; }
  const Shape& out_shape(int i) const { return out_[static_cast<size_t>(i)].shape; }
  // Sum of the magnitudes of the added terms, per element of output i. Rounding errors are measured
  // against it. If an oracle leaves it empty, they are measured against |out|.
  std::vector<double>& magnitude(int i) const { return magnitude_[static_cast<size_t>(i)]; }
  // The same, set to zero for all elements of output i.
  std::span<double> zero_magnitude(int i) const {
    magnitude(i).assign(out(i).size(), 0.0);
    return magnitude(i);
  }
  // Adds a term to an element of output i, and its magnitude to that of the element.
  void add(int i, size_t at, double term) const {
    if (magnitude(i).empty()) {
      zero_magnitude(i);
    }
    out(i)[at] += term;
    magnitude(i)[at] += std::abs(term);
  }
  size_t last_axis(int i) const { return static_cast<size_t>(shape(i).back()); }
  // A per-step scalar of the operator, before the step.
  template <class T>
  T step(StepWord<T> word) const {
    return step_number<T>(step_words_[word.index]);
  }
  template <class T>
  void write(StepWord<T> word, double number) const {
    outcome.words[word.index] = number;
  }

  const Facts& facts;
  Outcome& outcome;

 private:
  std::span<const Array> in_;
  std::span<Array> out_;
  std::span<std::vector<double>> magnitude_;
  std::span<const uint64_t> step_words_;
};

// Allowed deviation of a kernel: |error| <= roundings * 2^-24 * magnitude + absolute, because every
// kernel computes in f32. Storing another float dtype adds the rounding to that dtype (Higham,
// "Accuracy and Stability of Numerical Algorithms", 2002, section 2.2).
struct Tolerance {
  static constexpr double kUnderflow = 1e-33;
  double roundings = 0;
  double absolute = 0;

  // Requires the same bits.
  static Tolerance exact() { return {0, 0}; }
  // Allows `n` roundings of values of the size of the result.
  static Tolerance of_roundings(double n) { return {n, kUnderflow}; }
  // Allows a sum of `length` terms and then `extra` roundings: 4 * sqrt(length) + extra
  // (probabilistic bound: Higham and Mary, "A New Approach to Probabilistic Rounding Error
  // Analysis", 2019).
  static Tolerance of_reduction(int64_t length, double extra) {
    return {4 * std::sqrt(static_cast<double>(length > 0 ? length : 1)) + extra, kUnderflow};
  }
};

class ToleranceContext : public AttributesContext {
 public:
  // `precision`: of the device.
  ToleranceContext(const Attributes& attributes, std::span<const OracleContext::Array> in,
                   MatmulPrecision precision = MatmulPrecision::f32)
      : AttributesContext(attributes), in_(in), precision_(precision) {}
  const Shape& in(int i) const { return in_[static_cast<size_t>(i)].shape; }

  // As Tolerance::of_reduction, for sums of `length` products of elements of inputs 0 and 1. A
  // function that follows is at most `slope` steep.
  //
  // TF32 keeps 10 bits of the fraction of an operand. Rounded or cut off, it changes by at most
  // 2^-10 of its size, and a product of two by at most 2 * 2^-10 + 2^-20.
  Tolerance of_products(int64_t length, double extra, double slope = 1) const {
    constexpr double kOfTf32 = 0x1p15 + 0x1p4;  // in units of 2^-24
    const bool is_tf32 = precision_ == MatmulPrecision::tf32 && in_[0].dtype == DType::f32;
    return Tolerance::of_reduction(length, extra + (is_tf32 ? slope * kOfTf32 : 0));
  }
  // The rounding of a value that a fused kernel stores in the dtype of input 0: half a unit in the
  // last place, in units of 2^-24.
  double of_storage() const {
    const DType type = in_[0].dtype;
    return type == DType::bf16 ? 0x1p16 : type == DType::f16 ? 0x1p13 : 1;
  }

 private:
  std::span<const OracleContext::Array> in_;
  MatmulPrecision precision_;
};

// The tolerances of operators for which they are constant, for OpDef::tolerance.
inline Tolerance exactly(ToleranceContext&) { return Tolerance::exact(); }
template <int n>
Tolerance roundings(ToleranceContext&) {
  return Tolerance::of_roundings(n);
}

// Output `output` may overwrite input `input`: each thread reads an element before it writes the
// element.
struct InPlace {
  int output = -1;
  int input = -1;
};

// A node that reads one of its inputs with the last two axes swapped: another operator on the same
// inputs, or the same operator with other attributes.
struct TransposedInput {
  Op op = Op::Invalid;
  Attributes attributes;
  int addend = -1;  // an input that the other operator lacks; an Add adds it
};

// Whether a plan keeps the result of an operator of one input next to the source storage, and
// recomputes it only after a write to the storage (params/residency.h). by_element: the order of
// elements stays, so that all views of the storage share one copy. packed: the result packs a view
// of the whole storage.
enum class DerivedCopy : uint8_t { none, by_element, packed };

// The loss terms in output 0, if output 0 is a scalar or a stack of scalars.
enum class LossTerms : uint8_t {
  one,    // a single term
  sum,    // the sum of the terms of all inputs
  stack,  // the terms of all inputs, stacked, if each input is a scalar
  total,  // the sum of the terms of input 0, if input 0 is a stack
};

// What an operator does with gradient rows, its list operand 0: nothing, adds input 1, or sets
// zeros.
enum class GradientRows : uint8_t { none, added, zeroed };

// What the library adds nodes of this operator for, by itself: a copy, the sum of two values of the
// same shape, a transpose, a loop, or zeros behind the current size of a dynamic axis. One operator
// has each role (op_with()).
enum class OpRole : uint8_t { none, copy, sum, transpose, repeat, mask_tail };

// A function of an OpDef that only training calls. In a build without training it is always null,
// so that the linker drops the function.
template <class F>
struct NoFunction {
  constexpr NoFunction(F) {}
  operator F() const { return nullptr; }
};
template <class F>
using OfTraining = std::conditional_t<kHasTraining, F, NoFunction<F>>;

struct OpDef {
  const char* name = "";
  int inputs = 1;
  int optional_inputs = 0;  // after the required ones
  bool variadic = false;    // any number of further inputs like the last input
  int outputs = 1;
  int optional_outputs = 0;  // after the required ones, one per given optional input
  // (optional) The number of outputs, if the attributes decide it. Replaces `outputs`.
  int (*count_outputs)(const Attributes& attributes) = nullptr;
  // (optional) The node only reinterprets its input: there is no kernel, and output 0 shares the
  // bytes of input 0.
  bool is_view = false;
  // (optional) Whether output 0 is a prefix of the bytes of input 0 with this shape. If input 0 is
  // a state that is not written later, the plan then needs no copy.
  bool (*is_front)(const Attributes& attributes, const Shape& in) = nullptr;
  // (optional) Outputs pass no gradient to inputs. Other uses of the inputs may train them.
  bool stops_gradient = false;
  OpRole role = OpRole::none;
  // (optional) Only a rewrite creates it, for devices that have its kernel (graph/fuse.h). Other
  // devices keep the original nodes.
  bool is_fused = false;
  DerivedCopy derived_copy = DerivedCopy::none;
  // (optional) Recomputing the result is expensive: if memory is short, training recomputes other
  // results first.
  bool costly = false;
  // (optional) Computes in f32 even in a plan that computes in 16 bits: a sum over many elements,
  // or an exponential.
  bool stays_f32 = false;
  GradientRows gradient_rows = GradientRows::none;
  // (optional) Some operands are lists of storages of equal length, as in optimizers: the inputs
  // whose bits are set in list_inputs, and the outputs that update them.
  bool takes_lists = false;
  uint32_t list_inputs = 0b1;
  const char* types = "F -> F";  // dtypes of the operands (core/operand_types.h)
  InPlace in_place[2] = {};
  // Output i is the updated storage of input j: the operator writes state.
  InPlace updates[5] = {};
  // (optional) Bit i: input i may be quantized (Encoding::layout), as a parameter of a frozen
  // storage may be.
  uint32_t encoded_inputs = 0;
  // (optional) Bit i: the operator reads only as many elements of input i as output 0 has.
  uint32_t gathers = 0;
  // (optional) The kernel stops at the current sizes for which `counted` asked
  // (device::Operand::counted_axis).
  bool reads_counts = false;
  // (optional) Of an operator with one input and one output, which are equal while the per-step
  // scalar `training` is 0. Inference plans leave the node out (graph/fuse.h).
  bool only_trains = false;
  Status (*infer)(InferContext& c) = nullptr;
  // (optional) Decides which output axes are dynamic, and what the inputs then need. Null: nodes
  // with a dynamic input are refused.
  Status (*counted)(CountedContext& c) = nullptr;
  // (optional) Returns the node that reads input `i` in transposed form, so that the transpose is
  // not copied. All inputs except the addend have rank >= 2. Null or Op::Invalid: the transpose is
  // a copying node.
  TransposedInput (*with_transposed)(const Attributes& attributes, int i) = nullptr;
  // (optional) Null: the operator is not differentiable.
  OfTraining<Status (*)(GradientContext& c)> gradient = nullptr;
  // (optional) If output 0 is a scalar mean, that is a sum of terms divided by the sum of their
  // weights, returns this divisor. May add nodes. nullopt: the operator does not divide by a value
  // that depends on the batch.
  OfTraining<std::optional<LossWeight> (*)(GradientContext& c)> loss_weight = nullptr;
  // (optional) Bit i: if input i is a mean loss, then output 0 is one with the same weights.
  uint32_t keeps_loss_weight = 0;
  LossTerms loss_terms = LossTerms::one;
  void (*oracle)(const OracleContext& c) = nullptr;
  Tolerance (*tolerance)(ToleranceContext& c) = exactly;
  // For an operator whose input 0 is a state that may be quantized (updates, encoded_inputs):
  // whether it writes whole rows of the last axis, as quantized storages need
  // (Encoding::takes_rows).
  bool (*writes_rows)(const Attributes& attributes, const Shape& state) = nullptr;
};

// True if output 0 is the updated state of input 0, which may be quantized.
inline bool may_write_codes(const OpDef& def) {
  return def.updates[0].output == 0 && def.updates[0].input == 0 && (def.encoded_inputs & 1) != 0;
}

// Checks the number of inputs of a node.
// Errors  bad_argument: the operator does not take this number of inputs.
//         unsupported: the build leaves the operator out.
inline Status check_inputs(const OpDef& def, size_t inputs) {
  BOWLINE_REQUIRE_CODE(
      def.infer != nullptr, Code::unsupported,
      "This build of Bowline leaves the operator out: see its option BOWLINE_OPS.");
  const int most = def.inputs + def.optional_inputs;
  const bool takes = std::cmp_greater_equal(inputs, def.inputs) &&
                     (def.variadic || std::cmp_less_equal(inputs, most));
  BOWLINE_REQUIRE(takes, "{} takes {}{} input{}, not {}.", def.name,
                  most == def.inputs ? format("{}", most) : format("{} to {}", def.inputs, most),
                  def.variadic ? " or more" : "", most == 1 && !def.variadic ? "" : "s", inputs);
  return {};
}

// The input whose storage the node updates through output `output`, or -1.
inline int updated_input(const OpDef& def, size_t output) {
  for (const InPlace& pair : def.updates) {
    if (pair.output >= 0 && std::cmp_equal(pair.output, output)) {
      return pair.input;
    }
  }
  return -1;
}

// The number of outputs of a node with these attributes and inputs.
inline int outputs_of(const OpDef& def, const Attributes& attributes, size_t inputs) {
  if (def.count_outputs != nullptr) {
    return def.count_outputs(attributes);
  }
  const int given = static_cast<int>(inputs) - def.inputs;
  return def.outputs + std::clamp(given, 0, def.optional_outputs);
}

}  // namespace bowline
