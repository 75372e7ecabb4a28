// A random training run as data: storages, parameters, two entry points, options and batches.
// Functions draw it from a seed, build, evaluate, shrink and print it.
#pragma once

#include "bowline.h"
#include "conformance/evaluate.h"
#include "core/view.h"

namespace bowline::conformance::random {

// An output of a node of the same graph.
struct Ref {
  uint32_t node = 0;
  uint32_t output = 0;
  auto operator<=>(const Ref&) const = default;
};

struct Graph;

struct Node {
  enum class Kind : uint8_t {
    input,      // of the entry point: f32, or i32 below `classes`
    parameter,  // one, or in a body one per iteration
    carried,    // of a body: carried value `item`
    capture,    // of a body: `outer` in the outer graph
    op,
    repeat,  // `inputs` are the initial carried values
  };
  Kind kind = Kind::op;
  std::vector<Shape> shapes;  // of the outputs
  // The dtypes of the outputs of an operator or capture. Others are f32, or i32 of `classes`.
  std::vector<DType> dtypes;
  uint32_t item = 0;
  int64_t classes = 0;
  std::vector<uint32_t> parameters;
  Ref outer;
  Op op = Op::Invalid;
  std::vector<Ref> inputs;
  std::vector<Attribute> attributes;
  uint32_t count = 1;
  std::vector<Graph> body;  // one body if the node is a Repeat
};

// Returns the number of outputs that other nodes may read. Outputs for the gradient of an operator
// have no gradient themselves.
inline size_t results_of(const Node& node) {
  return node.kind == Node::Kind::op && node.op != Op::Split ? 1 : node.shapes.size();
}

struct Graph {
  std::vector<Node> nodes;  // in topological order; in a body the carried values come first
  std::vector<Ref> outputs;

  const Shape& shape(Ref r) const { return nodes[r.node].shapes[r.output]; }
  DType dtype(Ref r) const {
    const Node& n = nodes[r.node];
    return !n.dtypes.empty() ? n.dtypes[r.output] : n.classes > 0 ? DType::i32 : DType::f32;
  }
};

struct StorageRow {
  Shape shape;
  bool frozen = false;
  std::vector<float> values;
};

struct ParameterRow {
  uint32_t storage = 0;
  View view;
  bool by_verb = false;  // declared with its own storage, then tied by Model::tie()
};

struct Recipe {
  std::vector<StorageRow> storages;
  std::vector<ParameterRow> parameters;
  Graph loss;   // has one output, the scalar to minimize
  Graph probe;  // a second entry point on the same storages, or empty
  TrainOptions options;
  uint32_t steps = 1;
  uint64_t seed = 0;  // of the batches
};

// Draws a model. The same seed gives the same model. Not every model is usable, see reference.h.
Recipe draw_recipe(uint64_t seed);

// Derives the seed of model `number`.
uint64_t mixed(uint64_t seed, uint64_t number);

// Returns the values of one input of a batch. They are exact in f32 or i32.
std::vector<double> batch_values(const Recipe& recipe, const Node& input, uint32_t batch);

// Return names in the built model.
std::string parameter_name(size_t parameter);
std::string storage_name(size_t storage);
// Returns the parameter that declares the storage. Without such a parameter storage_name() declares
// it.
std::optional<size_t> declaring_parameter(const Recipe& recipe, size_t storage);

// Returns the shapes of the moments of an optimizer in the order of its operator.
std::vector<Shape> moments_of(const Optimizer& optimizer, const Shape& weight);

// Returns a map: element i of the parameter is element map[i] of its storage.
Result<std::vector<size_t>> element_map(const StorageRow& storage, const ParameterRow& parameter);

// Infers all shapes again, and removes nodes that no output needs and rows without use.
// Errors  bad_argument: the model is invalid.
Status tidy(Recipe& recipe);

// Returns C++ that declares, builds and trains the model. `as_repeat` is as in train_on().
std::string print_recipe(const Recipe& recipe, bool as_repeat);

// Values with a name: "loss of step 2", "values of p3".
struct Series {
  std::string name;
  std::vector<double> values;
};
using Observation = std::vector<Series>;

// Trains on a device. With `as_repeat` the model keeps its Repeats, otherwise each Repeat is
// unrolled.
Result<Observation> train_on(const Device& device, const Recipe& recipe, bool as_repeat);

// Shrinks the model as long as `fails` holds, with at most `tries` calls. Returns the smallest
// model.
Recipe shrink(const Recipe& recipe, const std::function<bool(const Recipe&)>& fails, int tries);

}  // namespace bowline::conformance::random
