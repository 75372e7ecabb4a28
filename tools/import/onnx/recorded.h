// The graph that a model of ONNX becomes. On request it is made again with equal layers as one
// Repeat.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx/numbers.h"

namespace bowline::onnx {

// "Reshape dims 2 3": an operator with all of its attributes.
std::string node_form(std::string_view op, const std::vector<Attribute>& attributes);

// Where a value comes from.
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
  Numbers numbers;  // of f32
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
  std::string batch_dim;  // empty: there is none
  std::vector<RecordedInput> inputs;
  std::vector<RecordedParameter> parameters;
  std::vector<RecordedNode> nodes;  // in an order that runs
  std::vector<std::pair<std::string, Origin>> outputs;
};

// Adds a graph to a model as GraphBuilder does, whose errors it has.
class RecordedGraph {
 public:
  // With `tie_equal` finish() ties equal weights and layers.
  RecordedGraph(Model& model, const std::string& entry_point, const std::string& batch_dim,
                bool tie_equal);

  bowline::Value input(const std::string& name, DType dtype, const std::vector<GraphDim>& dims);
  // A new parameter of f32. Errors  as Model::parameter().
  Result<bowline::Value> parameter(const std::string& name, StorageRole role, Numbers numbers);
  // Returns the first output. `name` is that of the node.
  bowline::Value op(std::string_view op, const std::vector<bowline::Value>& inputs,
                    const std::vector<Attribute>& attributes = {}, const std::string& name = "");
  std::vector<bowline::Value> last_outputs() const { return graph_.last_outputs(); }
  void output(const std::string& name, bowline::Value value);
  // Ends the graph and writes the values of its parameters.
  Status finish();
  // What was tied. Sentences.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void remember(bowline::Value value, Origin origin);

  Model& model_;
  GraphBuilder graph_;
  const bool tie_equal_;
  Recording recording_;
  std::map<uint32_t, Origin> origins_;  // by the index of a value
  std::vector<std::string> notes_;
};

// Equal layers: `count` groups of `period` nodes, one behind the other.
struct EqualLayers {
  // A value that a group takes from the group in front of it.
  struct Carried {
    size_t node = 0;  // of the group
    size_t output = 0;
    Origin first;  // what the first group takes
  };
  size_t start = 0;
  size_t period = 0;
  size_t count = 0;
  std::vector<Carried> carried;
  // By node of the group and input: which carried value it is; none: it is the same for all groups,
  // or of the group.
  std::vector<std::vector<std::optional<size_t>>> slots;
};

// Makes the model of a recording again. A weight that is a matrix and no number again and again is
// tied to the first one of equal values; so is every parameter of equal layers. The nodes of equal
// layers become one Repeat.
class EqualModel {
 public:
  explicit EqualModel(const Recording& recording);

  const std::optional<EqualLayers>& layers() const { return layers_; }
  // Whether two weights are tied outside of layers.
  bool ties() const;
  // The model without the values of its parameters, and which parameters of the recording it has.
  // Errors  bad_argument: it cannot be made.
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
  // In order_; kNowhere: it is no node of it.
  size_t place(const Origin& value) const;
  const RecordedNode& node_at(size_t place) const { return recording_.nodes[order_[place]]; }

  const Recording& recording_;
  std::vector<size_t> equal_parameter_;  // the first one of equal values
  std::vector<bool> is_matrix_;          // of parameters: a trained matrix of several numbers
  // Nodes that follow from parameters alone.
  std::vector<bool> is_fixed_;
  std::vector<bool> has_matrix_;
  std::vector<size_t> equal_node_;  // of those the first one that computes the same
  std::vector<size_t> order_;       // the other nodes
  std::vector<size_t> place_;       // of a node in order_
  std::vector<size_t> form_;        // of a node: equal numbers for equal operators
  std::optional<EqualLayers> layers_;
  size_t work_ = 0;  // nodes that were looked at
};

}  // namespace bowline::onnx
