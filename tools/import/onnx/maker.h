// Makes the nodes of a Bowline graph from values whose dtype and shape it knows, and computes what is known already.
//
// The first error sticks, so a lowering reads like its formula; after an error every call returns a Term that nobody uses.
//
// Small whole numbers (shapes, axes, indices) that follow from known ones are computed here and never reach the device.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onnx/numbers.h"

namespace bowline::onnx {

using Dims = std::vector<int64_t>;

// Where a value comes from. Inputs and constants become one in the graph when a node first reads them.
struct Source {
  std::optional<Numbers> numbers;  // where they are known
  bool given = false;              // known only because the caller gave the numbers of an input
  bool input = false;
  bool made = false;
  std::string name;  // of an input or a parameter
  StorageRole role = StorageRole::constant;
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

class Maker {
 public:
  Maker(Model& model, const std::string& entry_point);

  // What came into the graph.
  const std::vector<std::string>& inputs() const { return inputs_; }
  const Status& status() const { return status_; }
  Term fail(Status status);
  // The name of the nodes that follow, and of their constants.
  void name(const std::string& name) { name_ = name; }

  Term input(const std::string& name, DType dtype, const Dims& dims, std::optional<Numbers> given);
  // As they stand in the file.
  Term stored(Numbers numbers, const std::string& name = "",
              StorageRole role = StorageRole::constant);
  // Computed here. What all of them need is limited.
  Term constant(Numbers numbers);
  Term scalar(DType dtype, double value) { return filled(dtype, {}, value); }
  Term filled(DType dtype, const Dims& dims, double value);
  Term integers(DType dtype, const Dims& dims, const std::vector<int64_t>& values);
  // 0, 1, .. n - 1.
  Term count(DType dtype, int64_t n);
  // A parameter that no gradient trains: a statistic of the batches that were seen.
  void keep_as_statistic(const Term& value);
  void output(const std::string& name, const Term& value);
  // Ends the graph and writes the values of its parameters.
  Status finish();

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
  Term concat(const Terms& parts, int64_t axis);
  Terms split(const Term& x, int64_t axis, const std::vector<int64_t>& sizes);
  Term expand(const Term& x, const Dims& dims);
  // Indices i32; a negative one is refused when it runs.
  Term gather(const Term& x, const Term& indices, int64_t axis);

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
  bool check(const Status& status);
  bool check_dims(const Dims& dims);
  std::string free_name(const std::string& wanted);

  Model& model_;
  GraphBuilder graph_;
  Status status_;
  std::string name_;
  int64_t computed_ = 0;  // elements
  int64_t nodes_ = 0;
  std::vector<std::string> inputs_;
  std::map<std::string, int> names_;  // of parameters
  std::vector<std::pair<std::string, Numbers>> values_;
};

// Axis a of a rank. Errors  bad_file.
Result<int64_t> axis_of(int64_t axis, size_t rank);
// By the rules of numpy. Errors  bad_file.
Result<Dims> broadcast(const Dims& a, const Dims& b);

std::vector<GraphDim> graph_dims(const std::vector<int64_t>& numbers);

}  // namespace bowline::onnx
