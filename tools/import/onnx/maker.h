// Adds nodes to a Bowline graph, infers dtypes and shapes, and folds constants.
//
// Small integers (shapes, axes, indices) that depend only on known values are computed here and
// never reach the device.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onnx/recorded.h"
#include "onnx/term.h"
#include "source/finite.h"

namespace bowline::onnx {

// A node or parameter that was added: its name and a hash of its content.
struct Made {
  std::string name;
  size_t hash = 0;
};

class Maker {
 public:
  // `trains` (may be empty) returns whether the parameter of this name is trained even if it looks
  // like a constant. `tie_equal`: as in RecordedGraph.
  Maker(Model& model, const std::string& entry_point,
        std::function<bool(const std::string&)> trains = {}, std::optional<Batch> batch = {},
        bool tie_equal = false);

  // Adds a sentence for the user who imports the model.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // Adds the note unless an equal note exists.
  void note_once(const std::string& text) {
    if (std::ranges::find(notes_, text) == notes_.end()) {
      notes_.push_back(text);
    }
  }
  const std::vector<std::string>& notes() const { return notes_; }
  // Parameters with non-finite values, without masks and bounds.
  const std::vector<NotFiniteTensor>& not_finite() const { return not_finite_; }
  // Inputs that the graph reads.
  const std::vector<std::string>& inputs() const { return inputs_; }
  // Sets the name of the following nodes and constants.
  void name(const std::string& name) { name_ = name; }
  const std::string& name() const { return name_; }

  // `batch_axis`: the axis of the dynamic batch.
  Term input(const std::string& name, DType dtype, const Dims& dims,
             std::optional<ConstantTensor> given, std::optional<int64_t> batch_axis = {});
  // A tensor of the file.
  Term stored(ConstantTensor numbers, const std::string& name = "",
              StorageRole role = StorageRole::constant);
  // A constant that the importer computes. The total size of these constants is limited.
  Term constant(ConstantTensor numbers);
  Term scalar(DType dtype, double value) { return filled(dtype, {}, value); }
  Term filled(DType dtype, const Dims& dims, double value);
  Term integers(DType dtype, const Dims& dims, const std::vector<int64_t>& values);
  // A constant whose element i, in row-major order, is of(i): an integer or a real.
  template <class Of>
  Term table(DType dtype, const Dims& dims, const Of& of) {
    using Number = std::conditional_t<std::is_floating_point_v<decltype(of(0))>, double, int64_t>;
    std::vector<Number> values;
    for (int64_t i = 0, n = dims.product(); i < n; ++i) {
      values.push_back(of(i));
    }
    return constant(ConstantTensor::of(dtype, dims, values));
  }
  // A constant of shape `dims` ([n] or []) that holds dims of a value, or their product. Elements
  // that depend on the batch size are marked.
  Term sizes(const Dims& dims, const std::vector<int64_t>& values);
  // Checks integers that determine the graph. Each must be the same for every batch size, or a
  // multiple of the batch size.
  void check_sizes(const ConstantTensor& numbers) const;
  // 0, 1, .. n - 1
  Term count(DType dtype, int64_t n);
  // As count(), in i32, along an axis of `rank`.
  Term count_along(int64_t axis, size_t rank, int64_t n) {
    return along(count(DType::i32, n), axis, rank);
  }
  // A tensor of the file that stays a named parameter. It is trained if it has a float dtype, has
  // at least one axis and is not a mask.
  Term weight(ConstantTensor numbers, const std::string& name, int readers = 1);
  // Returns `value` as a running statistic: a parameter without gradient. If other nodes read
  // `value` too, the statistic becomes a separate parameter with name `name`.
  Term statistic(const Term& value, const std::string& name);
  // Returns `value` for an operator that has no gradient for it. A parameter with no other reader
  // becomes untrained. Any other value that may be trained passes through StopGradient: it gets
  // no gradient from this operator, but may get one from others.
  Term untrained(const Term& value);
  // True if `value` is a parameter with the role of a statistic.
  static bool is_statistic(const Term& value);
  void output(const std::string& name, const Term& value);
  // Ends the graph and writes the values of its parameters.
  Status finish();
  // With a dynamic batch: all nodes and parameters, in order. They must be the same for every size
  // that stands for the batch.
  const std::vector<Made>& made() const { return made_; }

  // Elementwise. The operands have the same dtype and broadcast.
  Term unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes = {});
  Term binary(std::string_view op, const Operand& a, const Operand& b);
  Term compare(std::string_view op, const Operand& a, const Operand& b);
  Term where(const Term& condition, const Operand& a, const Operand& b);
  Term cast(const Term& x, DType dtype);

  // For any dtype.
  Term reshape(const Term& x, const Dims& dims);
  Term transpose(const Term& x, const std::vector<int64_t>& permutation);
  Term slice(const Term& x, int64_t axis, int64_t start, int64_t length);
  // With a dynamic batch, a part without batch axis is repeated for each row.
  Term concat(const Terms& given, int64_t axis);
  Terms split(const Term& x, int64_t axis, const std::vector<int64_t>& sizes);
  Term expand(const Term& x, const Dims& dims);
  // Pads with zeros, if `more` has no other mode or value.
  Term pad(const Term& x, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
           const std::vector<Attribute>& more = {});
  // Moves all elements of x to one axis of `rank`. The other axes have size 1.
  Term along(const Term& x, int64_t axis, size_t rank);
  // Returns element i of an axis, without the axis.
  Term at(const Term& x, int64_t axis, int64_t i);
  // Concatenates the parts along a new axis.
  Term stack(Terms parts, int64_t axis);
  // Indices are i32. A negative index is an error at run time.
  Term gather(const Term& x, const Term& indices, int64_t axis);

  // True if x has a batch axis.
  bool has_batch(const Term& x) const {
    return batch_ && x.source != nullptr && x.source->batch.has_value();
  }
  // True if one of these values depends on the batch size.
  bool follows_from_batch(const std::vector<int64_t>& numbers) const;
  // True if the graph was exported for one row and x has a batch axis.
  bool has_rows_of_one(const Term& x) const { return has_batch(x) && batch_->was_one; }
  // True if the graph was exported for one row and this axis of x holds the batch and nothing else.
  bool is_axis_of_one(const Term& x, int64_t axis) const;
  // If the graph was exported for one row: the shape of x for a batch of one row. Otherwise the
  // shape of x.
  Dims row_dims(const Term& x) const;
  // Reshapes each row of x to `row`. Requires has_rows_of_one(x). If `row` has no axis of size 1
  // for the batch, the next axis holds all rows, one after the other.
  Term reshape_rows(const Term& x, const Dims& row);
  // Records that the inputs have a batch of 1, in the file or in the shapes of the caller.
  void set_batch_of_one() { batch_->was_one = true; }
  // If some parts have a batch axis, repeats the other parts for each row.
  Terms with_same_rows(Terms parts);
  // Repeats x for each row of the dynamic batch along `axis` if x has size 1 there.
  Term for_each_row(const Term& x, size_t axis);

  // A reduction with this name. Empty `axes` reduces nothing.
  Term reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes, bool keep);
  Term matmul(const Term& a, const Term& b, bool transpose_a = false, bool transpose_b = false);

  // Any other Bowline operator.
  Term op(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
          DType dtype, const Dims& dims);
  Terms ops(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
            const std::vector<std::pair<DType, Dims>>& outputs);

 private:
  bowline::Value value_of(const Term& term);
  bowline::Value parameter(Source& source);
  // Returns the known values, or adds the operator if they are not known or were given by the
  // caller.
  Term known_or(std::optional<ConstantTensor> numbers, std::string_view op, const Terms& inputs,
                const std::vector<Attribute>& attributes, DType dtype, const Dims& dims);
  // Returns a Term without an origin.
  Term blank(DType dtype, const Dims& dims);
  void count_computed(size_t elements);
  Term with_batch_axis(const Term& x);
  std::vector<GraphDim> named_dims(const Term& term) const;
  std::string free_name(const std::string& wanted);

  Model& model_;
  RecordedGraph graph_;
  std::function<bool(const std::string&)> trains_;
  std::optional<Batch> batch_;
  std::vector<Made> made_;
  std::string name_;
  int64_t computed_ = 0;  // total elements of computed constants
  int64_t nodes_ = 0;
  std::vector<std::string> inputs_;
  std::vector<std::string> notes_;
  std::vector<NotFiniteTensor> not_finite_;
  std::map<std::string, int> names_;  // of parameters, for unique names
};

}  // namespace bowline::onnx
