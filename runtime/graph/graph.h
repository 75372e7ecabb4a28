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

// A part of a storage that a value stands for. `elements` == 0: nothing (a frozen iteration's
// gradient).
struct StorageUse {
  uint32_t tie = 0;
  uint64_t first_element = 0;
  uint64_t elements = 0;
  CodePlace place = {};  // of an encoded storage
  bool operator==(const StorageUse&) const = default;
};

// A counted dim.
struct CountedDim {
  std::string name;
  int64_t min = 1;
  int64_t capacity = 0;
};
constexpr int kNotCounted = -1;

// The kernel of a node stops at the count of this axis of an input.
struct ReadCount {
  uint32_t input = 0;
  int axis = 0;
  int dim = 0;  // of the counted ones of the graph
};

enum class ValueKind : uint8_t { input, parameter, result };

struct ValueBase {
  ValueKind kind = ValueKind::result;
  DType dtype = DType::f32;
  Encoding encoding;  // parameter
  Shape shape;
  std::string name;
  std::vector<GraphDim> dims;  // input: as declared, names or sizes
  uint32_t node = UINT32_MAX;  // result: the node that makes it ...
  uint32_t output = 0;         // ... as this output
};

struct GenericValue : ValueBase {
  // Parameter: its number in the model. In the body of a Repeat one number per iteration.
  std::vector<uint32_t> parameters;
};

struct BoundValue : ValueBase {
  // Parameter: one item; in the body of a Repeat one per iteration; of an optimizer node any
  // number.
  std::vector<StorageUse> uses;
  // Readers do not read the storages but their derived copies in this form, which have the dtype of
  // the value.
  std::shared_ptr<const params::Form> form;
  // For each axis the counted dim of the graph that counts it, or kNotCounted. Empty: no axis is
  // counted.
  std::vector<int> counted;
};

// Runs a body `count` times. Inputs of the node, in order: carried values, invariant values, and
// values stacked along a first axis of `count`, of which iteration i sees slice i. Outputs: carried
// values after the last iteration, then stacked results. The body has the same inputs and outputs,
// per iteration.
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
  std::shared_ptr<Repeat<Graph>> repeat;  // (optional) the operator has OpRole::repeat
};

struct GenericGraph;
struct BoundGraph;
using GenericRepeat = Repeat<GenericGraph>;
using BoundRepeat = Repeat<BoundGraph>;

struct GenericNode : NodeBase<GenericGraph> {};

struct BoundNode : NodeBase<BoundGraph> {
  // The sizes among the attributes that are capacities of counted dims, and the counts that the
  // kernel reads.
  std::vector<AttributeDim> counted_sizes;
  std::vector<ReadCount> read_counts;
};

// Values that stay at the start of a session's arena from run to run (plan::hoist()). One plan
// makes them. The plan of a run reads them as inputs that the caller does not pass.
struct HeldValues {
  bool made = false;  // by this graph
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
  Value& operator[](ValueId v) { return values[v]; }
  const Value& operator[](ValueId v) const { return values[v]; }
};

struct GenericGraph : GraphBase<GenericValue, GenericNode> {};

struct BoundGraph : GraphBase<BoundValue, BoundNode> {
  std::vector<CountedDim> counted;  // a body has those of the graph around it
  HeldValues held;
};

// The templates below are defined for both kinds of graph.

// 'node 17 "ln_f" (LayerNorm)'
template <class Graph>
std::string describe(const Graph& graph, size_t node);

// A copy that shares nothing: bodies too.
template <class Graph>
Graph deep_copy(const Graph& graph);

// After nodes were added, dropped or moved: results name the nodes that make them. Bodies stay as
// they are.
template <class Graph>
void renumber(Graph& graph);

// Whether the node, or one of its body, writes a storage that it reads.
bool writes_storage(const BoundNode& node);

// Ascending tie indices of the storages that the nodes read or write, those of bodies too.
std::vector<uint32_t> storages_of(const BoundGraph& graph);

// Drops nodes that neither reach an output nor write a storage, and values nobody uses.
void prune(BoundGraph& graph);

}  // namespace bowline::detail::graph
