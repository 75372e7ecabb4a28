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

namespace bowline::onnx {

// Versions of the operator sets, by domain.
using Opsets = std::map<std::string, int64_t>;
using Nodes = google::protobuf::RepeatedPtrField<file::NodeProto>;

// Errors  bad_file: the list is empty.
Result<Opsets> opsets_of(const google::protobuf::RepeatedPtrField<file::OperatorSetIdProto>& sets);

// The values that the nodes of one graph can read.
struct Scope {
  const Scope* outer = nullptr;  // the enclosing graph, whose values are visible too
  const Opsets* opsets = nullptr;
  int depth = 0;
  Lowered lowered;
  std::set<std::string> absent;          // optional inputs of a function that the call omits
  std::map<std::string, int> producers;  // value name -> node that computes it
  std::map<std::string, int> readers;    // value name -> number of readers
  std::map<std::string, int>
      outputs;  // value name -> number of readers that are outputs of the model
};

class NodeReader {
 public:
  NodeReader(Maker& maker, const file::ModelProto& model, const std::string& folder);

  // Fills producers and readers for the values that `outputs` need. Errors  bad_file: a value is
  // computed twice.
  Status survey(const Nodes& nodes, const std::vector<std::string>& outputs, Scope& scope);
  // Adds the initializers that are read as parameters.
  Status initializers(const file::GraphProto& graph, Scope& scope);
  // Adds a note for each node that no output needs. `notes` may be null.
  Status lower_all(const Nodes& nodes, Scope& scope, std::vector<std::string>* notes);
  Result<Term> value(const std::string& name, const Nodes& nodes, const Scope& scope);
  static Status define(const std::string& name, Term term, Scope& scope);

 private:
  // Expands a subgraph for these inputs and returns its outputs.
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
  // Stacks the parts of a scan output, one per iteration, along a new axis.
  Result<Term> stacked(Terms parts, int64_t axis);
  Status count_node();
  Status check_iterations(int64_t count, const file::GraphProto& body) const;
  // Counts the names, nodes and initializers that are visited. This limits the time that a file can
  // cost.
  Status count_work(size_t looked_at);

  Maker& maker_;
  const std::string& folder_;
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

// 'node 3 "conv1" (Conv)'
std::string node_text(int number, const file::NodeProto& node);

}  // namespace bowline::onnx
