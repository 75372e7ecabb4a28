// The nodes of a graph become nodes of Bowline, in their order and as far as an output needs them.
//
// The graphs inside of If, Loop and Scan, and the local functions of a model, are read in place:
// what they depend on (a condition, a number of iterations) must be known when the model is read.
// Their depth and the number of all nodes together are limited, so that a small file cannot ask for
// much.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {

// By domain the version of its operator set.
using Opsets = std::map<std::string, int64_t>;
using Nodes = google::protobuf::RepeatedPtrField<file::NodeProto>;

// Errors  bad_file: there are none.
Result<Opsets> opsets_of(const google::protobuf::RepeatedPtrField<file::OperatorSetIdProto>& sets);

// The values that the nodes of one graph see.
struct Scope {
  const Scope* outer = nullptr;  // the graph around it, whose values it sees too
  const Opsets* opsets = nullptr;
  int depth = 0;
  Lowered lowered;
  std::set<std::string> absent;          // optional inputs of a function that the call leaves out
  std::map<std::string, int> producers;  // by value the node that computes it
  std::map<std::string, int> readers;    // by value how many read it
  std::map<std::string, int> outputs;    // of these so many are outputs of the model
};

class NodeReader {
 public:
  NodeReader(Maker& maker, const file::ModelProto& model, const std::string& folder);

  // Fills producers and readers: what `outputs` need. Errors  bad_file: a value is computed twice.
  Status survey(const Nodes& nodes, const std::vector<std::string>& outputs, Scope& scope);
  // Initializers that are read become parameters.
  Status initializers(const file::GraphProto& graph, Scope& scope);
  // Notes name the nodes that nothing needs; they may be null.
  Status lower_all(const Nodes& nodes, Scope& scope, std::vector<std::string>* notes);
  Result<Term> value(const std::string& name, const Nodes& nodes, const Scope& scope);
  static Status define(const std::string& name, Term term, Scope& scope);

 private:
  // The outputs of a graph inside of a node, for these inputs.
  Result<Terms> graph(const file::GraphProto& graph, const Scope& outer, const Terms& inputs);
  Status lower(const file::NodeProto& node, const Nodes& nodes, Scope& scope);
  Result<Terms> outputs_of(const file::NodeProto& node, const Terms& inputs,
                           const std::vector<bool>& present, Scope& scope);
  Result<Terms> by_lowering(const file::NodeProto& node, const Terms& inputs,
                            const std::vector<bool>& present, Scope& scope);
  Result<Terms> call(const file::FunctionProto& function, const file::NodeProto& node,
                     const Terms& inputs, const std::vector<bool>& present, const Scope& scope);
  Result<Terms> branch(const file::NodeProto& node, const Terms& inputs, const Scope& scope);
  Result<Terms> loop(const file::NodeProto& node, const Terms& inputs,
                     const std::vector<bool>& present, const Scope& scope);
  Result<Terms> scan(const file::NodeProto& node, const Terms& inputs, const Scope& scope);
  // The parts of an output that each iteration adds to, beside each other along a new axis.
  Result<Term> stacked(Terms parts, int64_t axis);
  Status count_node();
  Status check_iterations(int64_t count, const file::GraphProto& body) const;
  // Names, nodes and initializers that are looked at, which is what a file can make this take time
  // for.
  Status count_work(size_t looked_at);

  Maker& maker_;
  const std::string& folder_;
  Opsets opsets_;
  std::map<std::string, const file::FunctionProto*> functions_;
  std::map<const file::FunctionProto*, Opsets> function_opsets_;
  std::deque<Nodes> bodies_;  // of functions, with the attributes of a call
  // What is one tensor of the file stays one parameter, however often a body is read.
  std::map<const file::TensorProto*, Term> initializers_;
  std::map<const file::NodeProto*, Term> constants_;
  int64_t nodes_ = 0;
  size_t work_ = 0;
};

// 'node 3 "conv1" (Conv)'
std::string node_text(int number, const file::NodeProto& node);

}  // namespace bowline::onnx
