// Reads the nodes of an ONNX graph in file order and lowers the nodes that an output needs.
//
// If, Loop, Scan and the local functions of a model are expanded in place. So a condition or a
// number of iterations must be known when the model is read. The nesting depth and the total number
// of nodes are limited, so that a small file cannot use much memory.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx.pb.h"
#include "onnx/lowering.h"
#include "source/progress.h"

namespace bowline::onnx {

// Versions of the operator sets, by domain.
using Opsets = std::map<std::string, int64_t>;
using Nodes = google::protobuf::RepeatedPtrField<file::NodeProto>;

Opsets opsets_of(const google::protobuf::RepeatedPtrField<file::OperatorSetIdProto>& sets);

// The values that the nodes of one graph can read.
struct Scope {
  const Scope* outer = nullptr;  // the enclosing graph, whose values are visible too
  const Opsets* opsets = nullptr;
  int depth = 0;
  Lowered lowered;
  std::set<std::string> absent;          // optional inputs of a function that the call omits
  std::map<std::string, int> producers;  // value name -> node that computes it
  std::map<std::string, int> readers;    // value name -> number of readers
  // Value name -> number of readers that are outputs of the model.
  std::map<std::string, int> outputs;
};

// What the iterations of a loop hand on: the state, and the parts of each scan output.
struct Iterations {
  Terms state;
  std::vector<Terms> parts;

  // Takes the outputs of an iteration: the state, then a part of each scan output.
  void take(std::span<const Term> outputs);
};

class NodeReader {
 public:
  NodeReader(Maker& maker, const file::ModelProto& model, const std::string& folder,
             const import::Progress& progress);

  // Fills producers and readers for the values that `outputs` need.
  void survey(const Nodes& nodes, const std::vector<std::string>& outputs, Scope& scope);
  // Adds the initializers that are read as parameters.
  void initializers(const file::GraphProto& graph, Scope& scope);
  // Adds a note for each node that no output needs. `notes` may be null.
  void lower_all(const Nodes& nodes, Scope& scope, std::vector<std::string>* notes);
  Term value(const std::string& name, const Nodes& nodes, const Scope& scope);
  static void define(const std::string& name, Term term, Scope& scope);

 private:
  // Lowers all nodes and returns the values of these names.
  Terms lowered(const Nodes& nodes, const std::vector<std::string>& names, Scope& scope);
  // Expands a subgraph for these inputs and returns its outputs.
  Terms graph(const file::GraphProto& graph, const Scope& outer, const Terms& inputs);
  void lower(const file::NodeProto& node, const Nodes& nodes, Scope& scope);
  // The outputs of a node. A missing optional input is a false Term.
  Terms outputs_of(const file::NodeProto& node, const Terms& inputs, Scope& scope);
  Terms by_lowering(const file::NodeProto& node, const Terms& inputs, Scope& scope);
  Terms call(const file::FunctionProto& function, const file::NodeProto& node, const Terms& inputs,
             const Scope& scope);
  Terms branch(const file::NodeProto& node, const Terms& inputs, const Scope& scope);
  Terms loop(const file::NodeProto& node, const Terms& inputs, const Scope& scope);
  Terms scan(const file::NodeProto& node, const Terms& inputs, const Scope& scope);
  // Returns the outputs of a node after its last iteration. `axes`: the new axis of each scan
  // output.
  Terms outputs_of(const file::NodeProto& node, const Scope& scope, Iterations iterations,
                   const std::vector<int64_t>& axes);
  void count_node();
  void check_iterations(int64_t count, const file::GraphProto& body) const;
  // Counts the names, nodes and initializers that are visited. This limits the time that a file can
  // cost.
  void count_work(size_t looked_at);

  Maker& maker_;
  const std::string& folder_;
  const import::Progress& progress_;
  // Nodes of the main graph. A node that contains graphs counts as one.
  uint64_t node_ = 0;
  uint64_t main_nodes_ = 0;
  Opsets opsets_;
  std::map<std::string, const file::FunctionProto*> functions_;
  std::map<const file::FunctionProto*, Opsets> function_opsets_;
  std::deque<Nodes> bodies_;  // bodies of functions, with the attributes of each call
  // A tensor of the file stays a single parameter, even if its graph is expanded several times.
  std::map<const file::TensorProto*, Term> initializers_;
  std::map<const file::NodeProto*, Term> constants_;
  int64_t nodes_ = 0;
  size_t work_ = 0;
};

// Rejects every attribute that is not in `known`, so that nothing is dropped silently.
void require_attributes(const file::NodeProto& node, const std::vector<std::string_view>& known);
// Returns the version of a domain's operator set.
int version_of(const Opsets& opsets, const std::string& domain);
// 'node 3 "conv1" (Conv)'
std::string node_text(int number, const file::NodeProto& node);

}  // namespace bowline::onnx
