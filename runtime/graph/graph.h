// Graph: values and nodes in memory.
//
// A GenericGraph is an entry point of a model. It has named dims, and its parameter values name
// parameters of the model. Its shapes are those of probe values for the dims. bind() (graph/bind.h)
// makes a BoundGraph of it, the graph that a plan is made of. A BoundGraph has the real dims, and
// its parameter values name storages. Gradients, optimizers and internal operators exist in bound
// graphs only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/op_table.h"
#include "params/residency.h"

namespace bowline::detail::graph {

using ValueId = uint32_t;
constexpr ValueId kNoValue = UINT32_MAX;

// The part of a storage that a value uses. `elements` == 0: no part (the gradient of an iteration
// whose parameter is frozen).
struct StorageUse {
  uint32_t tie = 0;
  uint64_t first_element = 0;
  uint64_t elements = 0;
  Encoding encoding = {};
  CodePlace place = {};  // if the storage is quantized
  bool operator==(const StorageUse&) const = default;
};

// A dynamic dimension. `capacity` is its maximum in this plan.
struct CountedDim {
  std::string name;
  int64_t min = 1;
  int64_t capacity = 0;
};
constexpr int kNotCounted = -1;

// An axis of an input at whose current size the kernel stops.
struct ReadCount {
  uint32_t input = 0;
  int axis = 0;
  int dim = 0;  // index into BoundGraph::counted
};

enum class ValueKind : uint8_t { input, parameter, result };

struct ValueBase {
  ValueKind kind = ValueKind::result;
  DType dtype = DType::f32;
  Encoding encoding;  // parameter
  Shape shape;
  std::string name;
  std::vector<GraphDim> dims;  // input: as declared, names or sizes
  uint32_t node = UINT32_MAX;  // result: the node that computes it
  uint32_t output = 0;         // result: the output of this node
};

struct GenericValue : ValueBase {
  // Parameter: its number in the model. In the body of a Repeat: one number per iteration.
  std::vector<uint32_t> parameters;
};

struct BoundValue : ValueBase {
  // Parameter: one item. In the body of a Repeat: one per iteration. In a list operand of an
  // optimizer: any number.
  std::vector<StorageUse> uses;
  // (optional) Readers read derived copies of the storages in this form. The copies have the dtype
  // of the value.
  std::shared_ptr<const params::Form> form;
  // For each axis: its dynamic dimension, as an index into BoundGraph::counted, or kNotCounted.
  // Empty: no axis is dynamic.
  std::vector<int> counted;
};

// Runs a body `count` times. The inputs of the node are, in this order: carried values, invariant
// values, and stacked values. A stacked value has a first axis of size `count`; iteration i reads
// slice i. The outputs are the carried values after the last iteration, then stacked results. The
// body has the same inputs and outputs for one iteration.
template <class Graph>
struct Repeat {
  std::shared_ptr<Graph> body;
  uint32_t count = 1;
  uint32_t carried = 0;
  uint32_t stacked_inputs = 0;
  bool reverse = false;  // from iteration count - 1 down to 0
};

template <class Graph>
struct NodeBase {
  Op op = Op::Invalid;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string name;
  std::shared_ptr<Repeat<Graph>> repeat;  // only if the operator has OpRole::repeat
};

struct GenericGraph;
struct BoundGraph;
using GenericRepeat = Repeat<GenericGraph>;
using BoundRepeat = Repeat<BoundGraph>;

struct GenericNode : NodeBase<GenericGraph> {};

struct BoundNode : NodeBase<BoundGraph> {
  // The attributes that are sizes of dynamic dimensions, and the axes at whose current size the
  // kernel stops.
  std::vector<AttributeDim> counted_sizes;
  std::vector<ReadCount> read_counts;
};

// Values that stay at the start of a session's arena from run to run (plan::hoist()). One plan
// makes them. The plan of a run reads them as inputs that the caller does not pass.
struct HeldValues {
  bool made = false;  // true: this graph computes the values. false: it reads them.
  std::vector<ValueId> values;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;  // size of the held values of all plans of the session
};

template <class ValueType, class NodeType>
struct GraphBase {
  using Value = ValueType;
  using Node = NodeType;

  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;  // in topological order
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<std::string> output_names;

  ValueId add_value(Value info) {
    values.push_back(std::move(info));
    return static_cast<ValueId>(values.size() - 1);
  }
  // Adds the results of the node that is appended next.
  std::vector<ValueId> add_results(size_t count) {
    std::vector<ValueId> out;
    for (uint32_t i = 0; i < count; ++i) {
      Value info;
      info.node = static_cast<uint32_t>(nodes.size());
      info.output = i;
      out.push_back(add_value(std::move(info)));
    }
    return out;
  }
  // A node that is not part of the graph yet.
  static Node make_node(Op op, Attributes attributes, std::vector<ValueId> inputs,
                        std::vector<ValueId> outputs, std::string name) {
    Node node;
    node.op = op;
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    node.name = std::move(name);
    return node;
  }
  Value& operator[](ValueId v) { return values[v]; }
  const Value& operator[](ValueId v) const { return values[v]; }
};

struct GenericGraph : GraphBase<GenericValue, GenericNode> {};

struct BoundGraph : GraphBase<BoundValue, BoundNode> {
  std::vector<CountedDim> counted;  // a body has the same as its outer graph
  HeldValues held;
};

// The templates below are defined for both kinds of graph.

// How the node can read input i with the last two axes swapped. The operator is Op::Invalid if it
// cannot.
template <class Graph>
TransposedInput transposed_input(const Graph& graph, const typename Graph::Node& node, size_t i) {
  const auto rule = op_def(node.op).with_transposed;
  TransposedInput t =
      rule == nullptr ? TransposedInput() : rule(node.attributes, static_cast<int>(i));
  for (size_t other = 0; other < node.inputs.size(); ++other) {
    const bool stays = std::cmp_not_equal(other, t.addend);
    if (stays && graph[node.inputs[other]].shape.rank() < 2) {
      return {};
    }
  }
  return t;
}

// The graph, then the bodies of its Repeats.
template <class Graph>
std::vector<Graph*> with_bodies(Graph& graph) {
  std::vector<Graph*> out = {&graph};
  for (size_t i = 0; i < out.size(); ++i) {
    for (const auto& node : out[i]->nodes) {
      if (node.repeat) {
        out.push_back(node.repeat->body.get());
      }
    }
  }
  return out;
}

// 'node 17 "ln_f" (LayerNorm)'
template <class Graph>
std::string describe(const Graph& graph, size_t node);

// Returns a copy that shares nothing with the original, not even bodies.
template <class Graph>
Graph deep_copy(const Graph& graph);

// Sets ValueBase::node of all results after nodes were added, dropped or moved. Does not change
// bodies.
template <class Graph>
void renumber(Graph& graph);

// Whether the node, or a node of its body, writes a storage that it reads.
bool writes_storage(const BoundNode& node);

// Returns the ascending tie indices of the storages that nodes read or write, in bodies too.
std::vector<uint32_t> storages_of(const BoundGraph& graph);

// Removes unused values, and nodes that neither reach an output nor write a storage.
void prune(BoundGraph& graph);

}  // namespace bowline::detail::graph
