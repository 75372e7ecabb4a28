// Records the graph of an imported model. On request it is rebuilt with equal weights tied and
// equal layers merged into one Repeat.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx/numbers.h"

namespace bowline::onnx {

// Text form of an operator with all attributes, for example "Reshape dims 2 3".
std::string node_form(std::string_view op, const std::vector<Attribute>& attributes);

// The origin of a value.
struct Origin {
  enum class Kind : uint8_t { input, parameter, node };
  Kind kind = Kind::input;
  size_t index = 0;   // of the input, the parameter or the node
  size_t output = 0;  // of a node
  auto operator<=>(const Origin&) const = default;
};

struct RecordedInput {
  std::string name;
  DType dtype = DType::f32;
  std::vector<GraphDim> dims;
};
struct RecordedParameter {
  std::string name;
  StorageRole role = StorageRole::constant;
  ConstantTensor numbers;  // f32
};
struct RecordedNode {
  std::string op;
  std::string name;
  std::vector<Origin> inputs;
  std::vector<Attribute> attributes;
  size_t outputs = 0;
};
struct Recording {
  std::string entry_point;
  std::string batch_dim;  // empty: the batch is fixed
  std::vector<RecordedInput> inputs;
  std::vector<RecordedParameter> parameters;
  std::vector<RecordedNode> nodes;  // in execution order
  std::vector<std::pair<std::string, Origin>> outputs;
};

// Adds a graph to a model. Same functions and errors as GraphBuilder.
class RecordedGraph {
 public:
  // With `tie_equal`, finish() ties equal weights and merges equal layers.
  RecordedGraph(Model& model, const std::string& entry_point, const std::string& batch_dim,
                bool tie_equal);

  bowline::Value input(const std::string& name, DType dtype, const std::vector<GraphDim>& dims);
  // Adds an f32 parameter. Errors  as Model::parameter().
  Result<bowline::Value> parameter(const std::string& name, StorageRole role,
                                   ConstantTensor numbers);
  // Adds a node with name `name` and returns its first output.
  bowline::Value op(std::string_view op, const std::vector<bowline::Value>& inputs,
                    const std::vector<Attribute>& attributes = {}, const std::string& name = "");
  std::vector<bowline::Value> last_outputs() const { return graph_.last_outputs(); }
  void output(const std::string& name, bowline::Value value);
  // Ends the graph and writes the values of its parameters.
  Status finish();
  // Describes the ties, as sentences.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void remember(bowline::Value value, Origin origin);

  Model& model_;
  GraphBuilder graph_;
  const bool tie_equal_;
  Recording recording_;
  std::map<uint32_t, Origin> origins_;  // by value index
  std::vector<std::string> notes_;
};

// Equal layers: `count` consecutive groups of `period` nodes.
struct EqualLayers {
  // A value that a group takes from the previous group.
  struct Carried {
    size_t node = 0;  // of the group
    size_t output = 0;
    Origin first;  // the value that the first group takes
  };
  size_t start = 0;
  size_t period = 0;
  size_t count = 0;
  std::vector<Carried> carried;
  // By node of a group and input: index of the carried value. Empty: the value comes from the group
  // itself or is the same for all groups.
  std::vector<std::vector<std::optional<size_t>>> slots;
};

// Rebuilds the model of a recording. A weight matrix is tied to the first weight with equal values,
// unless all of its elements are the same. All parameters of equal layers are tied. The nodes of
// equal layers become one Repeat.
class EqualModel {
 public:
  explicit EqualModel(const Recording& recording);

  const std::optional<EqualLayers>& layers() const { return layers_; }
  // True if two weights outside of equal layers are tied.
  bool ties() const;
  // The model without parameter values, and the indices of the recorded parameters that it has.
  // Errors  bad_argument: the model cannot be built.
  struct Made {
    Model model;
    std::vector<size_t> parameters;
  };
  Result<Made> make() const;

 private:
  static constexpr size_t kNowhere = SIZE_MAX;

  void find_equal_parameters();
  void find_fixed_nodes();
  std::vector<size_t> periods() const;
  void look_for_layers(size_t period);
  std::optional<EqualLayers> layers_at(size_t start, size_t period);
  bool is_like_first(EqualLayers& layers, size_t group) const;
  bool leaves_carried_alone(const EqualLayers& layers) const;
  bool reads_weight(const EqualLayers& layers) const;

  Origin first_equal(const Origin& value) const;
  bool is_weight(const Origin& value) const;
  // Index in order_; kNowhere if the value is not from a node in order_.
  size_t place(const Origin& value) const;
  const RecordedNode& node_at(size_t place) const { return recording_.nodes[order_[place]]; }

  const Recording& recording_;
  std::vector<size_t> equal_parameter_;  // parameter -> first parameter with equal values
  std::vector<bool> is_matrix_;          // by parameter: a trained matrix whose elements differ
  // Nodes that depend only on parameters.
  std::vector<bool> is_fixed_;
  std::vector<bool> has_matrix_;
  std::vector<size_t> equal_node_;  // fixed node -> first node that computes the same value
  std::vector<size_t> order_;       // the other nodes
  std::vector<size_t> place_;       // node -> index in order_
  std::vector<size_t> form_;        // by node: equal for equal operators
  std::optional<EqualLayers> layers_;
  size_t work_ = 0;  // number of visited nodes
};

}  // namespace bowline::onnx
