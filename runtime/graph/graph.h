// Graph: values and nodes in memory.
//
// One form serves twice. The *generic* graph of a model has named dims and names parameters; shapes
// are those of probe values for the dims. The *bound* graph that a plan is made of has the real
// dims, and its parameter values name storages (graph/bind.h). Gradients and optimizers exist in
// bound graphs only.
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

// A counted dim of a bound graph.
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

struct ValueInfo {
  ValueKind kind = ValueKind::result;
  DType dtype = DType::f32;
  Encoding encoding;  // parameter of a bound graph
  Shape shape;
  std::string name;
  std::vector<GraphDim> dims;  // input of a generic graph
  // parameter: one item; in the body of a Repeat one per iteration; of an optimizer node any
  // number.
  std::vector<uint32_t> parameters;  // generic: numbers of parameters of the model
  std::vector<StorageUse> uses;      // bound
  // bound: what is read are not the storages but their derived copies of this form; of the dtype of
  // the value.
  std::shared_ptr<const params::Form> form;
  uint32_t node = UINT32_MAX;  // result: the node that makes it ...
  uint32_t output = 0;         // ... as this output
  // Bound: for each axis the counted dim of the graph that counts it, or kNotCounted. Empty: of
  // none.
  std::vector<int> counted;
};

struct Graph;

// Runs a body `count` times. Inputs of the node, in order: carried values, invariant values, and
// values stacked along a first axis of `count`, of which iteration i sees slice i. Outputs: carried
// values after the last iteration, then stacked results. The body has the same inputs and outputs,
// per iteration.
struct RepeatInfo {
  std::shared_ptr<Graph> body;
  uint32_t count = 1;
  uint32_t carried = 0;
  uint32_t stacked_inputs = 0;
  bool reverse = false;  // from iteration count - 1 down to 0
};

struct Node {
  Op op = Op::Invalid;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string name;
  std::shared_ptr<RepeatInfo> repeat;  // (optional) the operator is_repeat
  // Bound: which sizes among the attributes are capacities of counted dims, and what the kernel
  // reads.
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

struct Graph {
  std::string name;
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;  // in topological order
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<std::string> output_names;
  std::vector<CountedDim> counted;  // bound; a body has those of the graph around it
  HeldValues held;                  // bound

  ValueId add_value(ValueInfo info) {
    values.push_back(std::move(info));
    return static_cast<ValueId>(values.size() - 1);
  }
  ValueInfo& operator[](ValueId v) { return values[v]; }
  const ValueInfo& operator[](ValueId v) const { return values[v]; }
};

// 'node 17 "ln_f" (LayerNorm)'
std::string describe(const Graph& graph, size_t node);

// Whether the node, or one of its body, writes a storage that it reads.
bool writes_storage(const Node& node);

// Ascending tie indices of the storages that the nodes of a bound graph read or write, those of
// bodies too.
std::vector<uint32_t> storages_of(const Graph& graph);

// After nodes were added, dropped or moved: results name the nodes that make them. Bodies stay as
// they are.
void renumber(Graph& graph);

// Drops nodes that neither reach an output nor write a storage, and values nobody uses.
void prune(Graph& graph);

}  // namespace bowline::detail::graph
