// Makes the nodes of a Bowline graph from values whose dtype and shape it knows, and computes what
// is known already.
//
// What cannot be made throws Refused, which the reader catches at the node. So a lowering reads
// like its formula, and no Term of an operation that failed exists whose shape could be looked at.
//
// Small whole numbers (shapes, axes, indices) that follow from known ones are computed here and
// never reach the device.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onnx/numbers.h"
#include "onnx/recorded.h"
#include "source/finite.h"

namespace bowline::onnx {

// Why a node cannot be made.
struct Refused {
  Status status;
};

// The dims of a tensor. Asking for an axis that it does not have throws Refused.
class Dims : public std::vector<int64_t> {
 public:
  using std::vector<int64_t>::vector;
  Dims() = default;
  Dims(std::vector<int64_t> dims) : std::vector<int64_t>(std::move(dims)) {}  // NOLINT: the same

  int64_t& operator[](size_t axis) { return data()[checked(axis)]; }
  const int64_t& operator[](size_t axis) const { return data()[checked(axis)]; }
  int64_t& back() { return (*this)[size() - 1]; }
  const int64_t& back() const { return (*this)[size() - 1]; }
  void pop_back() {
    checked(0);
    std::vector<int64_t>::pop_back();
  }

 private:
  size_t checked(size_t axis) const;
};

struct Later;

// A dynamic batch. While the graph is read, `size` stands for its size.
struct Batch {
  std::string name;
  int64_t size = 0;
  // Whether the graph was made for one row. If so, its first row, its last row and a 1 in the place
  // of the batch stand for every row. If not, the graph is taken literally for any number of rows.
  bool was_one = false;

  // Whether n is the number of rows, or as many for each row.
  bool is_multiple(int64_t n) const { return n > 0 && n % size == 0; }
};

// Where the rows of a dynamic batch lie in a value: the axis has `front` parts, each of the whole
// batch.
struct BatchAxis {
  int64_t axis = 0;
  int64_t front = 1;
  bool operator==(const BatchAxis&) const = default;
};

// Where a value comes from. Inputs and constants become one in the graph when a node first reads
// them.
struct Source {
  std::optional<Numbers> numbers;  // where they are known
  bool given = false;              // known only because the caller gave the numbers of an input
  bool input = false;
  bool made = false;
  // A parameter that keeps its name, or what a graph computes from one: it is not folded into a
  // constant.
  bool kept = false;
  int readers = 1;  // inputs of nodes that read an initializer
  std::shared_ptr<Later> later;
  std::string name;  // of an input or a parameter
  StorageRole role = StorageRole::constant;
  std::optional<BatchAxis> batch;  // none: it is the same for all rows of a dynamic batch
  bowline::Value value;
};

// A value of the ONNX graph.
struct Term {
  DType dtype = DType::f32;
  Dims dims;
  std::shared_ptr<Source> source;

  size_t rank() const { return dims.size(); }
  int64_t elements() const;
  // Null: they are not known.
  const Numbers* numbers() const {
    return source != nullptr && source->numbers ? &*source->numbers : nullptr;
  }
  // Known whatever the caller gives.
  bool constant() const { return numbers() != nullptr && !source->given; }
};

using Terms = std::vector<Term>;

// The operator of a value whose numbers are known, in case that a node reads the value itself.
struct Later {
  std::string op;
  Terms inputs;
  std::vector<Attribute> attributes;
  std::string name;
  int depth = 0;  // of such values that it follows from
};

// A node or a parameter that was made: its name, and a hash of all that it is.
struct Made {
  std::string name;
  size_t hash = 0;
};

class Maker {
 public:
  // `trains` says by its name that a parameter is trained whatever it looks like; it may be empty.
  // `tie_equal` is that of RecordedGraph.
  Maker(Model& model, const std::string& entry_point,
        std::function<bool(const std::string&)> trains = {}, std::optional<Batch> batch = {},
        bool tie_equal = false);

  // A sentence for whoever imports the model.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // Adds the note unless it is there, so that many nodes share one.
  void note_once(const std::string& text) {
    if (std::ranges::find(notes_, text) == notes_.end()) {
      notes_.push_back(text);
    }
  }
  const std::vector<std::string>& notes() const { return notes_; }
  // Parameters with values that are not finite, but for masks and bounds.
  const std::vector<import::NotFinite>& not_finite() const { return not_finite_; }
  // What came into the graph.
  const std::vector<std::string>& inputs() const { return inputs_; }
  [[noreturn]] Term fail(Status status);
  // The name of the nodes that follow, and of their constants.
  void name(const std::string& name) { name_ = name; }
  const std::string& name() const { return name_; }

  // `batch_axis`: where the rows of a dynamic batch lie.
  Term input(const std::string& name, DType dtype, const Dims& dims, std::optional<Numbers> given,
             std::optional<int64_t> batch_axis = {});
  // As they stand in the file.
  Term stored(Numbers numbers, const std::string& name = "",
              StorageRole role = StorageRole::constant);
  // Computed here. What all of them need is limited.
  Term constant(Numbers numbers);
  Term scalar(DType dtype, double value) { return filled(dtype, {}, value); }
  Term filled(DType dtype, const Dims& dims, double value);
  Term integers(DType dtype, const Dims& dims, const std::vector<int64_t>& values);
  // A constant of shape `dims` ([n] or []) that holds dims of a value, or their product. Those that
  // depend on the size of a dynamic batch are marked.
  Term sizes(const Dims& dims, const std::vector<int64_t>& values);
  // Checks numbers that decide what the graph is: each is the same for every size of a dynamic
  // batch, or a multiple of the size.
  // Errors  unsupported.
  Status check_sizes(const Numbers& numbers) const;
  // 0, 1, .. n - 1.
  Term count(DType dtype, int64_t n);
  // A tensor of the file that stays a parameter of its own, with its name. It is trained if it has
  // floats and an axis, and is no mask.
  Term weight(Numbers numbers, const std::string& name, int readers = 1);
  // The same value as a statistic of the batches that were seen: a parameter that no gradient
  // trains. What other nodes read as well becomes one of its own, named `name`.
  Term statistic(const Term& value, const std::string& name);
  // Returns `value` for an operator that has no gradient for it. A parameter with no other reader
  // becomes untrained. Any other value that may be trained passes through StopGradient: it gets
  // no gradient from this operator, but may get one from others.
  Term untrained(const Term& value);
  // Whether it is a parameter with the role of a statistic.
  static bool is_statistic(const Term& value);
  void output(const std::string& name, const Term& value);
  // Ends the graph and writes the values of its parameters.
  Status finish();
  // With a dynamic batch all nodes and parameters, in order. They are the same whatever size stands
  // for it.
  const std::vector<Made>& made() const { return made_; }

  // Element by element; the operands of one dtype broadcast.
  Term unary(std::string_view op, const Term& x, const std::vector<Attribute>& attributes = {});
  Term binary(std::string_view op, const Term& a, const Term& b);
  Term compare(std::string_view op, const Term& a, const Term& b);
  Term where(const Term& condition, const Term& a, const Term& b);
  Term cast(const Term& x, DType dtype);
  Term add(const Term& a, const Term& b) { return binary("Add", a, b); }
  Term sub(const Term& a, const Term& b) { return binary("Sub", a, b); }
  Term mul(const Term& a, const Term& b) { return binary("Mul", a, b); }
  Term div(const Term& a, const Term& b) { return binary("Div", a, b); }
  // With a number of the dtype of x.
  Term add(const Term& x, double number) { return add(x, scalar(x.dtype, number)); }
  Term mul(const Term& x, double number) { return mul(x, scalar(x.dtype, number)); }

  // Of any dtype.
  Term reshape(const Term& x, const Dims& dims);
  Term transpose(const Term& x, const std::vector<int64_t>& permutation);
  Term slice(const Term& x, int64_t axis, int64_t start, int64_t length);
  // With a dynamic batch what is the same for all of its rows is joined to each of them.
  Term concat(const Terms& given, int64_t axis);
  Terms split(const Term& x, int64_t axis, const std::vector<int64_t>& sizes);
  Term expand(const Term& x, const Dims& dims);
  // Indices i32; a negative one is refused when it runs.
  Term gather(const Term& x, const Term& indices, int64_t axis);

  // Whether x has the rows of a dynamic batch.
  bool has_batch(const Term& x) const {
    return batch_ && x.source != nullptr && x.source->batch.has_value();
  }
  // Whether one of these numbers follows from the size of a dynamic batch.
  bool follows_from_batch(const std::vector<int64_t>& numbers) const;
  // Whether the graph was made for one row, and x has the rows of the dynamic batch.
  bool has_rows_of_one(const Term& x) const { return has_batch(x) && batch_->was_one; }
  // Whether, in a graph made for one row, this axis of x has the rows of the batch and nothing
  // else.
  bool is_axis_of_one(const Term& x, int64_t axis) const;
  // In a graph made for one row, the shape of x with a batch of one row. Otherwise the shape of x.
  Dims row_dims(const Term& x) const;
  // Reshapes each row of x to `row`. Requires has_rows_of_one(x). If `row` has no axis of size 1
  // for the batch, the next axis holds all rows, one after the other.
  Term reshape_rows(const Term& x, const Dims& row);
  // Records that the batch of the inputs was one row, in the file or by the shapes that the caller
  // gave.
  void set_batch_of_one() { batch_->was_one = true; }
  // Parts that are the same for all rows of a dynamic batch once for each row, where others have
  // the rows.
  Terms with_same_rows(Terms parts);
  // x once for each row of a dynamic batch along this axis, if it has one element there.
  Term for_each_row(const Term& x, size_t axis);

  // A reduction of this name; no axes: over none.
  Term reduce(std::string_view op, const Term& x, const std::vector<int64_t>& axes, bool keep);
  Term matmul(const Term& a, const Term& b, bool transpose_a = false, bool transpose_b = false);

  // Any other operator of Bowline.
  Term op(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
          DType dtype, const Dims& dims);
  Terms ops(std::string_view op, const Terms& inputs, const std::vector<Attribute>& attributes,
            const std::vector<std::pair<DType, Dims>>& outputs);

 private:
  bowline::Value value_of(const Term& term);
  bowline::Value parameter(Source& source);
  // The operator, unless its numbers are known and not given.
  Term known_or(std::optional<Numbers> numbers, std::string_view op, const Terms& inputs,
                const std::vector<Attribute>& attributes, DType dtype, const Dims& dims);
  static void check(const Status& status);
  static void check_dims(const Dims& dims);
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
  int64_t computed_ = 0;  // elements
  int64_t nodes_ = 0;
  std::vector<std::string> inputs_;
  std::vector<std::string> notes_;
  std::vector<import::NotFinite> not_finite_;
  std::map<std::string, int> names_;  // of parameters
};

// Axis a of a rank. Errors  bad_file.
Result<int64_t> axis_of(int64_t axis, size_t rank);
// By the rules of numpy. Errors  bad_file.
Result<Dims> broadcast(const Dims& a, const Dims& b);

std::vector<GraphDim> graph_dims(const std::vector<int64_t>& numbers);

}  // namespace bowline::onnx
