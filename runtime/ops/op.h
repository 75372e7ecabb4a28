// OpDef: what the rest of Bowline knows about an operator, and the contexts in which an op file
// speaks.
//
// An op file (runtime/ops/<stem>.cpp) holds the doc comment, shape inference, gradient, the oracle
// in double precision and the tolerance. It includes this header and core/ alone; graph/ and the
// conformance runner implement the contexts.
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
#include "generated/step_words.h"

#ifdef BOWLINE_ORACLES
#define BOWLINE_ORACLE(f) f
#else
#define BOWLINE_ORACLE(f) nullptr
#endif

namespace bowline {

// What inference sees and decides.
class InferContext {
 public:
  virtual ~InferContext() = default;
  virtual int inputs() const = 0;
  virtual const Shape& in(int i) const = 0;
  virtual DType dtype(int i) const = 0;
  // Sets output i. Its dtype follows from OpDef::types unless given.
  virtual Status out(int i, const Shape& shape, std::optional<DType> dtype = {}) = 0;

  // Sizes that name dims have their values.
  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }

  explicit InferContext(const Attributes& attributes) : attributes_(&attributes) {}

 private:
  const Attributes* attributes_;
};

// Which axes of the operands are counted: elements behind the number that the dim of such an axis
// has in a run hold anything, NaN too, and what stands before it must not depend on them.
class CountedContext {
 public:
  static constexpr int kNone = -1;

  virtual ~CountedContext() = default;
  virtual int inputs() const = 0;
  virtual const Shape& in(int i) const = 0;
  virtual const Shape& out(int o) const = 0;
  // The dim that counts an axis of input i, or kNone.
  virtual int dim(int i, int axis) const = 0;
  // The counted dim that entry `index` of an attribute names, or kNone. What no rule asks for is
  // refused.
  virtual int attribute_dim(std::string_view attribute, uint32_t index = 0) = 0;
  // The dim counts an axis of output o.
  virtual void count(int o, int axis, int dim) = 0;
  // Behind the count of an axis input i is to hold `fill`, if the axis is counted.
  virtual void mask(int i, int axis, double fill) = 0;
  // The kernel stops at the count of an axis of input i, if it is counted. Of one axis of an input.
  virtual void read_count(int i, int axis) = 0;
  // unsupported: "Axis 1 of input 0 is counted by dim "seq", and {why}."
  virtual Status refuse(int i, int axis, std::string_view why) const = 0;

  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }

  explicit CountedContext(const Attributes& attributes) : attributes_(&attributes) {}

 private:
  const Attributes* attributes_;
};

// A value of the graph under differentiation; invalid after an error.
struct GradientValue {
  uint32_t index = UINT32_MAX;
  bool valid() const { return index != UINT32_MAX; }
};
using GradientValues = std::vector<GradientValue>;

// What a gradient sees and adds. An `add` that fails yields invalid values and din() returns its
// status.
class GradientContext {
 public:
  virtual ~GradientContext() = default;
  virtual int inputs() const = 0;
  virtual GradientValue in(int i) const = 0;
  virtual GradientValue out(int i) const = 0;
  // Gradient of output i. Of an output that the loss does not reach: invalid for i > 0; output 0 is
  // always valid.
  virtual GradientValue dout(int i) const = 0;
  // True if a gradient of input i is of use to anybody.
  virtual bool needs(int i) const = 0;
  // True if input i depends on an input of the graph.
  virtual bool from_batch(int i) const = 0;
  virtual const Shape& shape(GradientValue v) const = 0;
  virtual DType dtype(GradientValue v) const = 0;

  virtual GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) = 0;
  GradientValue add1(Op op, const GradientValues& inputs,
                     const Attributes& attributes = Attributes::of(file::NoAttributesT{})) {
    const GradientValues out = add(op, inputs, attributes);
    return out.empty() ? GradientValue{} : out[0];
  }
  // Contributes to the gradient of input i.
  virtual Status din(int i, GradientValue gradient) = 0;

  const Attributes& attributes() const { return *attributes_; }
  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }

  explicit GradientContext(const Attributes& attributes) : attributes_(&attributes) {}

 private:
  const Attributes* attributes_;
};

// The sum of the weights of the terms of a loss, by which the loss was divided.
struct LossWeight {
  // An f32 scalar that the batch decides. Invalid: the sum is `terms` for every batch.
  GradientValue sum = {};
  // The sum for a batch in which every term counts with weight 1.
  double terms = 1;
};

// Inputs and outputs in double precision; integers are exact, up to 2^53. Inputs have been rounded
// to their dtype, outputs are rounded by who compares. Outputs start as zero.
class OracleContext {
 public:
  // What the record and the head of the step buffer say.
  struct Facts {
    bool error = false;               // the error word is set: optimizers do nothing
    bool accumulate = false;          // what earlier submissions left stays
    bool first_contribution = false;  // AccumulateGrad: `first` of the table entry
    uint32_t iteration = 0;           // of the enclosing Repeat
  };
  // What an operator leaves besides its outputs, and which of them it promises.
  struct Outcome {
    std::vector<double> bad_indices;           // the error word is set, with one of these
    std::vector<std::optional<double>> words;  // by step word: what is written into it, if anything
    uint32_t undefined_outputs = 0;            // bit i: output i holds anything
    bool may_set_error = false;                // the error word holds anything
  };
  // A list operand is one flat array, its entries one after the other.
  struct Array {
    Shape shape;
    std::vector<double> values;
    DType dtype = DType::f32;
    // (optional) Of this axis only the first `count` elements are there
    // (device::Operand::counted_axis).
    int counted_axis = -1;
    int64_t count = 0;
    std::vector<int64_t> entries = {};  // of a list: the elements of each
  };

  OracleContext(const Attributes& attributes, std::span<const Array> in, std::span<Array> out,
                std::span<std::vector<double>> magnitude, const Facts& record,
                std::span<const uint64_t> step_words, Outcome& result)
      : facts(record),
        outcome(result),
        attributes_(&attributes),
        in_(in),
        out_(out),
        magnitude_(magnitude),
        step_words_(step_words) {}

  int inputs() const { return static_cast<int>(in_.size()); }
  std::span<const double> in(int i) const { return in_[static_cast<size_t>(i)].values; }
  const Shape& shape(int i) const { return in_[static_cast<size_t>(i)].shape; }
  DType dtype(int i) const { return in_[static_cast<size_t>(i)].dtype; }
  std::span<const int64_t> entries(int i) const { return in_[static_cast<size_t>(i)].entries; }
  // How many elements of an axis of input i are there.
  int64_t extent(int i, int axis) const {
    const Array& a = in_[static_cast<size_t>(i)];
    return a.counted_axis == axis ? a.count : a.shape[axis];
  }
  std::span<double> out(int i) const { return out_[static_cast<size_t>(i)].values; }
  const Shape& out_shape(int i) const { return out_[static_cast<size_t>(i)].shape; }
  // For each element of output i the sum of the magnitudes of the terms that were added up;
  // rounding errors are measured against it. An oracle that leaves it empty is measured against
  // |out|.
  std::vector<double>& magnitude(int i) const { return magnitude_[static_cast<size_t>(i)]; }
  // The same, as zeros for all elements of output i.
  std::span<double> zero_magnitude(int i) const {
    magnitude(i).assign(out(i).size(), 0.0);
    return magnitude(i);
  }
  const Attributes& attributes() const { return *attributes_; }
  size_t last_axis(int i) const { return static_cast<size_t>(shape(i).back()); }
  // A step word of the operator, as it is before.
  template <class T>
  T step(StepWord<T> word) const {
    return step_number<T>(step_words_[word.index]);
  }
  template <class T>
  void write(StepWord<T> word, double number) const {
    outcome.words[word.index] = number;
  }

  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }

  const Facts& facts;
  Outcome& outcome;

 private:
  const Attributes* attributes_;
  std::span<const Array> in_;
  std::span<Array> out_;
  std::span<std::vector<double>> magnitude_;
  std::span<const uint64_t> step_words_;
};

// How far a kernel may be from the oracle: |error| <= roundings * 2^-24 * magnitude + absolute, as
// every kernel computes in f32. Where it stores another float dtype, the rounding to that comes on
// top (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 2.2).
struct Tolerance {
  static constexpr double kUnderflow = 1e-33;
  double roundings = 0;
  double absolute = 0;

  // The same bits.
  static Tolerance exact() { return {0, 0}; }
  // `n` roundings of values of the size of the result.
  static Tolerance of_roundings(double n) { return {n, kUnderflow}; }
  // A sum of `length` terms, then `extra` roundings: 4 * sqrt(length) + extra (reliability of
  // random rounding errors: Higham and Mary, "A New Approach to Probabilistic Rounding Error
  // Analysis", 2019).
  static Tolerance of_reduction(int64_t length, double extra) {
    return {4 * std::sqrt(static_cast<double>(length > 0 ? length : 1)) + extra, kUnderflow};
  }
};

class ToleranceContext {
 public:
  ToleranceContext(const Attributes& attributes, std::span<const OracleContext::Array> in)
      : attributes_(&attributes), in_(in) {}
  const Shape& in(int i) const { return in_[static_cast<size_t>(i)].shape; }
  template <class Table>
  const Table& attributes() const {
    return attributes_->as<Table>();
  }

 private:
  const Attributes* attributes_;
  std::span<const OracleContext::Array> in_;
};

// Output `output` may lie on input `input`: every element is read before, or by the thread that,
// writes it.
struct InPlace {
  int output = -1;
  int input = -1;
};

// A node that reads one of its inputs with the last two axes swapped: another operator on the same
// inputs, or the same one with other attributes.
struct TransposedInput {
  Op op = Op::Invalid;
  Attributes attributes;
  int addend = -1;  // an input that the other operator does not take: it is added to the result
};

// Whether a plan keeps the result of an operator of one input beside the storage that it is made
// of, and makes it again only when that was written (params/residency.h): it keeps the order of the
// elements, so that all views of the storage read one copy, or it packs what one view of all of the
// storage shows.
enum class DerivedCopy : uint8_t { none, by_element, packed };

// Which loss terms output 0 contains, if it is a scalar or a stack of scalars.
enum class LossTerms : uint8_t {
  one,    // a single term
  sum,    // the terms of all inputs, added
  stack,  // the terms of all inputs, side by side, if each input is a scalar
  total,  // the terms of input 0, added, if input 0 is a stack
};

// What an operator does with gradient rows, its list operand 0: nothing, adds input 1 to them, or
// starts them as zeros.
enum class GradientRows : uint8_t { none, added, zeroed };

struct OpDef {
  const char* name = "";
  int inputs = 1;
  int optional_inputs = 0;  // after the required ones
  bool variadic = false;    // any number of inputs more, each like the last
  int outputs = 1;
  int optional_outputs = 0;  // after the required ones, one for each optional input that is given
  // (optional) The number of outputs of an operator whose attributes say it, instead of `outputs`.
  int (*count_outputs)(const Attributes& attributes) = nullptr;
  // (optional) the node only reinterprets its input: no kernel, output 0 is the bytes of input 0.
  bool is_view = false;
  // (optional) Whether output 0 is the first bytes of input 0, of this shape. Of a state that was
  // written, which keeps its place and is written no more, a plan needs no copy then.
  bool (*is_front)(const Attributes& attributes, const Shape& in) = nullptr;
  // (optional) No gradient goes from its outputs to its inputs, which may be trained by other uses.
  bool stops_gradient = false;
  // (optional) What the library adds by itself, found by op_with(): the copy of a value, the sum of
  // two of one shape, a transpose, and the node that runs a body again and again.
  bool is_copy = false;
  bool is_sum = false;
  bool is_transpose = false;
  bool is_repeat = false;
  // (optional) Only a rewrite makes it, for devices that have its kernel (graph/fuse.h): others
  // keep what it stands for.
  bool is_fused = false;
  DerivedCopy derived_copy = DerivedCopy::none;
  // (optional) Its results are worth their memory: where that is short, they are the last that are
  // computed again.
  bool costly = false;
  // (optional) In a plan that computes in 16 bits it still computes in f32: a sum over many
  // elements, an exponential.
  bool stays_f32 = false;
  GradientRows gradient_rows = GradientRows::none;
  // (optional) some operands are lists of storages of equal length (optimizers): the inputs whose
  // bits are set in list_inputs, and the outputs that update them.
  bool takes_lists = false;
  uint32_t list_inputs = 0b1;
  const char* types = "F -> F";  // dtypes of the operands (core/operand_types.h)
  InPlace in_place[2] = {};
  // Output i is a storage that input j held before: the operator writes state.
  InPlace updates[4] = {};
  // (optional) Bit i: input i may be codes (Encoding::layout), as the parameter of a frozen storage
  // is.
  uint32_t encoded_inputs = 0;
  // (optional) The kernel stops at the counts of its inputs that `counted` asks for
  // (device::Operand::counted_axis).
  bool reads_counts = false;
  // (optional) What MaskTail is: found by op_with().
  bool masks_tail = false;
  // (optional) Of one input and one output, which are the same while the step word `training` is 0:
  // a plan that only runs leaves the node out (graph/fuse.h).
  bool only_trains = false;
  Status (*infer)(InferContext& c) = nullptr;
  // (optional) Which axes of the outputs are counted, and what that asks of the inputs. Null: a
  // node with a counted input is refused.
  Status (*counted)(CountedContext& c) = nullptr;
  // (optional) How a node reads input `i`, of rank >= 2 as all its inputs but the addend, as it
  // lies where the node needs its transpose. Null, or Op::Invalid: the transpose is a node that
  // copies.
  TransposedInput (*with_transposed)(const Attributes& attributes, int i) = nullptr;
  // (optional) null: the operator is not differentiable.
  Status (*gradient)(GradientContext& c) = nullptr;
  // (optional) If output 0 is one number, a sum of terms divided by the sum of their weights: that
  // sum. May add nodes. None: the operator divides by nothing that a batch decides.
  std::optional<LossWeight> (*loss_weight)(GradientContext& c) = nullptr;
  // (optional) Bit i: if input i is such a mean, so is output 0, with the same weights.
  uint32_t keeps_loss_weight = 0;
  LossTerms loss_terms = LossTerms::one;
  void (*oracle)(const OracleContext& c) = nullptr;
  Tolerance (*tolerance)(ToleranceContext& c) = nullptr;
  // Of an operator whose input 0 is a state that may be codes (updates, encoded_inputs): whether it
  // writes rows of the last axis as wholes, as codes take them (Encoding::takes_rows).
  bool (*writes_rows)(const Attributes& attributes, const Shape& state) = nullptr;
};

// Whether output 0 is the state that input 0 was, and that may be codes.
inline bool may_write_codes(const OpDef& def) {
  return def.updates[0].output == 0 && def.updates[0].input == 0 && (def.encoded_inputs & 1) != 0;
}

// Errors  bad_argument: a node of this operator has not so many inputs.
inline Status check_inputs(const OpDef& def, size_t inputs) {
  const int most = def.inputs + def.optional_inputs;
  const bool takes = std::cmp_greater_equal(inputs, def.inputs) &&
                     (def.variadic || std::cmp_less_equal(inputs, most));
  BOWLINE_REQUIRE(takes, "{} takes {}{} input{}, not {}.", def.name,
                  most == def.inputs ? format("{}", most) : format("{} to {}", def.inputs, most),
                  def.variadic ? " or more" : "", most == 1 && !def.variadic ? "" : "s", inputs);
  return {};
}

// The input whose storage output `output` is after the node wrote it, or -1.
inline int updated_input(const OpDef& def, size_t output) {
  for (const InPlace& pair : def.updates) {
    if (pair.output >= 0 && std::cmp_equal(pair.output, output)) {
      return pair.input;
    }
  }
  return -1;
}

// How many outputs a node with these attributes and this many inputs has.
inline int outputs_of(const OpDef& def, const Attributes& attributes, size_t inputs) {
  if (def.count_outputs != nullptr) {
    return def.count_outputs(attributes);
  }
  const int given = static_cast<int>(inputs) - def.inputs;
  return def.outputs + std::clamp(given, 0, def.optional_outputs);
}

}  // namespace bowline
