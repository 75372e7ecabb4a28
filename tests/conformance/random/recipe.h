// A random training run as data: storages, parameters, two entry points, options and batches. It
// can be drawn from a seed, built, evaluated, shrunk and printed.
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
    carried,    // of a body: carried value number `item`
    capture,    // of a body: `outer` of the graph around it
    op,
    repeat,  // `inputs` are the first carried values
  };
  Kind kind = Kind::op;
  std::vector<Shape> shapes;  // of the outputs
  std::vector<DType>
      dtypes;  // of the outputs of an operator or capture; others are f32, or i32 of `classes`
  uint32_t item = 0;
  int64_t classes = 0;
  std::vector<uint32_t> parameters;
  Ref outer;
  Op op = Op::Invalid;
  std::vector<Ref> inputs;
  std::vector<Attribute> attributes;
  uint32_t count = 1;
  std::vector<Graph> body;  // of a Repeat: one
};

// Outputs that others may read: what an operator keeps for its gradient has none itself.
inline size_t results_of(const Node& node) {
  return node.kind == Node::Kind::op && node.op != Op::Split ? 1 : node.shapes.size();
}

struct Graph {
  std::vector<Node> nodes;  // in topological order; the carried values of a body come first
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
  bool by_verb = false;  // declared alone, then tied by Model::tie()
};

struct Recipe {
  std::vector<StorageRow> storages;
  std::vector<ParameterRow> parameters;
  Graph loss;   // one output, the scalar that is minimised
  Graph probe;  // a second entry point on the same storages; empty: none
  TrainOptions options;
  uint32_t steps = 1;
  uint64_t seed = 0;  // of the batches
};

// The same seed gives the same model. It may be no good: see Reference.
Recipe draw_recipe(uint64_t seed);

// A part of the seed of model `number`.
uint64_t mixed(uint64_t seed, uint64_t number);

// The values of one input of a batch, exact in f32 or i32.
std::vector<double> batch_values(const Recipe& recipe, const Node& input, uint32_t batch);

// Names in the built model.
std::string parameter_name(size_t parameter);
std::string storage_name(size_t storage);
// The parameter that declares the storage, or none: then storage_name() does.
std::optional<size_t> declaring_parameter(const Recipe& recipe, size_t storage);

// The shapes of the moments of an optimizer, in the order in which its operator takes them.
std::vector<Shape> moments_of(const Optimizer& optimizer, const Shape& weight);

// Element i of a parameter is element element_map()[i] of its storage.
Result<std::vector<size_t>> element_map(const StorageRow& storage, const ParameterRow& parameter);

// Infers all shapes again, drops what reaches no output, and what nothing uses.
// Errors  bad_argument: it is no legal model.
Status tidy(Recipe& recipe);

// C++ that declares, builds and trains the model; `as_repeat` as in train_on().
std::string print_recipe(const Recipe& recipe, bool as_repeat);

// Numbers under one name: "loss of step 2", "values of p3".
struct Series {
  std::string name;
  std::vector<double> values;
};
using Observation = std::vector<Series>;

// Trains on a device. `as_repeat`: as it is drawn; else each Repeat is written out.
Result<Observation> train_on(const Device& device, const Recipe& recipe, bool as_repeat);

// Smaller and smaller models for which `fails` holds, at most `tries` asked; returns the last.
Recipe shrink(const Recipe& recipe, const std::function<bool(const Recipe&)>& fails, int tries);

}  // namespace bowline::conformance::random
