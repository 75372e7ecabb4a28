#include "graph/gradient.h"

#include <algorithm>

namespace bowline::graph {
namespace {

Attributes no_attributes() { return Attributes::of(NoAttributesT{}); }

// The reverse walk over one graph: the outer one, or the body of a Repeat.
class Differentiator {
 public:
  Differentiator(Graph& graph, const GradientOptions& options)
      : graph_(graph), options_(options), gradients_(graph.values.size(), kNoValue) {}

  // Marks the values that a trainable storage or a wanted input reaches.
  void find_needed(std::span<const bool> wanted_inputs);
  bool needed(ValueId v) const { return v < needed_.size() && needed_[v]; }

  Status contribute(ValueId v, ValueId gradient);
  // Walks nodes [0, count) backwards.
  Status walk(size_t count);
  ValueId gradient(ValueId v) const { return v < gradients_.size() ? gradients_[v] : kNoValue; }

  // Appends a node, infers its outputs.
  Result<std::vector<ValueId>> append(Op op, std::vector<ValueId> inputs,
                                      const Attributes& attributes, std::string name);
  Result<ValueId> filled(float value, const Shape& shape);

 private:
  Status walk_node(size_t node);
  Status walk_repeat(size_t node);
  bool has_trainable(const ValueInfo& info) const;
  ValueId gradient_list(const ValueInfo& parameter);

  Graph& graph_;
  const GradientOptions& options_;
  std::vector<ValueId> gradients_;
  std::vector<char> needed_;
};

class NodeGradient : public GradientContext {
 public:
  NodeGradient(Differentiator& d, Graph& graph, const Node& node, std::vector<ValueId> douts)
      : GradientContext(node.attributes),
        d_(d),
        graph_(graph),
        node_(node),
        douts_(std::move(douts)) {}

  int inputs() const override { return static_cast<int>(node_.inputs.size()); }
  GradientValue in(int i) const override { return {node_.inputs[static_cast<size_t>(i)]}; }
  GradientValue out(int i) const override { return {node_.outputs[static_cast<size_t>(i)]}; }
  GradientValue dout(int i) const override { return {douts_[static_cast<size_t>(i)]}; }
  bool needs(int i) const override { return d_.needed(node_.inputs[static_cast<size_t>(i)]); }
  const Shape& shape(GradientValue v) const override { return graph_[v.index].shape; }

  GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) override {
    std::vector<ValueId> ids;
    for (const GradientValue v : inputs) {
      if (!v.valid()) {
        return {};
      }
      ids.push_back(v.index);
    }
    auto outputs =
        d_.append(op, std::move(ids), attributes, node_.name.empty() ? "" : node_.name + ".grad");
    if (!outputs.ok()) {
      status_ = std::move(outputs).status();
      return {};
    }
    GradientValues out;
    for (const ValueId v : outputs.value()) {
      out.push_back({v});
    }
    return out;
  }
  Status din(int i, GradientValue gradient) override {
    BOWLINE_TRY(Status(status_));
    BOWLINE_REQUIRE_CODE(gradient.valid(), Code::internal, "The gradient of input {} has no value.",
                         i);
    if (!needs(i)) {
      return {};
    }
    const ValueId input = node_.inputs[static_cast<size_t>(i)];
    BOWLINE_REQUIRE_CODE(graph_[gradient.index].shape == graph_[input].shape, Code::internal,
                         "The gradient of input {} has shape {}, the input {}.", i,
                         graph_[gradient.index].shape, graph_[input].shape);
    return d_.contribute(input, gradient.index);
  }

 private:
  Differentiator& d_;
  Graph& graph_;
  const Node& node_;
  std::vector<ValueId> douts_;
  Status status_;
};

bool Differentiator::has_trainable(const ValueInfo& info) const {
  return info.kind == ValueKind::parameter &&
         std::ranges::any_of(info.uses, [&](const StorageUse& u) {
           return u.tie < options_.rows.size() && options_.rows[u.tie].has_value();
         });
}

void Differentiator::find_needed(std::span<const bool> wanted_inputs) {
  needed_.assign(graph_.values.size(), 0);
  for (size_t i = 0; i < wanted_inputs.size(); ++i) {
    needed_[graph_.inputs[i]] = wanted_inputs[i];
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    needed_[v] = needed_[v] || has_trainable(graph_.values[v]);
  }
  for (const Node& node : graph_.nodes) {
    bool any = std::ranges::any_of(node.inputs, [&](ValueId v) { return needed_[v] != 0; });
    if (node.repeat) {
      any = any || std::ranges::any_of(node.repeat->body->values,
                                       [&](const ValueInfo& info) { return has_trainable(info); });
    }
    for (const ValueId v : node.outputs) {
      needed_[v] = any && graph_[v].dtype == DType::f32;
    }
  }
}

Result<std::vector<ValueId>> Differentiator::append(Op op, std::vector<ValueId> inputs,
                                                    const Attributes& attributes,
                                                    std::string name) {
  Node node;
  node.op = op;
  node.attributes = attributes;
  node.inputs = std::move(inputs);
  node.name = std::move(name);
  const uint32_t index = static_cast<uint32_t>(graph_.nodes.size());
  for (int i = 0; i < outputs_of(op_def(op), node.attributes, node.inputs.size()); ++i) {
    ValueInfo info;
    info.node = index;
    info.output = static_cast<uint32_t>(i);
    node.outputs.push_back(graph_.add_value(std::move(info)));
  }
  std::vector<ValueId> outputs = node.outputs;
  graph_.nodes.push_back(std::move(node));
  BOWLINE_TRY(infer_node(graph_, index, {}));
  return outputs;
}

Result<ValueId> Differentiator::filled(float value, const Shape& shape) {
  FillAttributesT fill;
  fill.value = value;
  fill.dims.assign(shape.dims().begin(), shape.dims().end());
  BOWLINE_ASSIGN(const auto out, append(Op::Fill, {}, Attributes::of(fill), ""));
  return out[0];
}

// The list of gradient rows beside a list of weights.
ValueId Differentiator::gradient_list(const ValueInfo& parameter) {
  ValueInfo list;
  list.kind = ValueKind::parameter;
  list.shape = parameter.shape;
  list.name = parameter.name + ".grad";
  for (const StorageUse& u : parameter.uses) {
    const bool trainable = u.tie < options_.rows.size() && options_.rows[u.tie].has_value();
    list.uses.push_back(trainable ? StorageUse{*options_.rows[u.tie], u.first_element, u.elements}
                                  : StorageUse{u.tie, 0, 0});
  }
  return graph_.add_value(std::move(list));
}

Status Differentiator::contribute(ValueId v, ValueId gradient) {
  if (graph_[v].kind == ValueKind::parameter) {
    if (!has_trainable(graph_[v])) {
      return {};
    }
    const ValueInfo parameter = graph_[v];
    const ValueId list = gradient_list(parameter);
    return append(Op::AccumulateGrad, {list, gradient}, no_attributes(), parameter.name + ".grad")
        .status();
  }
  if (v >= gradients_.size()) {
    gradients_.resize(graph_.values.size(), kNoValue);
  }
  if (gradients_[v] != kNoValue) {
    BOWLINE_ASSIGN(const auto sum, append(Op::Add, {gradients_[v], gradient}, no_attributes(), ""));
    gradient = sum[0];
  }
  gradients_[v] = gradient;
  return {};
}

Status Differentiator::walk(size_t count) {
  for (size_t i = count; i-- > 0;) {
    const Node& node = graph_.nodes[i];
    const bool reached =
        std::ranges::any_of(node.outputs, [&](ValueId v) { return gradient(v) != kNoValue; });
    const bool wanted = std::ranges::any_of(node.outputs, [&](ValueId v) { return needed(v); });
    if (reached && wanted) {
      BOWLINE_TRY((node.repeat ? walk_repeat(i) : walk_node(i))
                      .at(format("While building the gradient of {}.", describe(graph_, i))));
    }
  }
  return {};
}

Status Differentiator::walk_node(size_t index) {
  const Node node = graph_.nodes[index];
  const OpDef& def = op_def(node.op);
  BOWLINE_REQUIRE(def.gradient != nullptr,
                  "A trainable storage is behind {}, and the operator {} has no gradient.",
                  describe(graph_, index), node.op);
  std::vector<ValueId> douts;
  for (const ValueId v : node.outputs) {
    douts.push_back(gradient(v));
  }
  if (douts[0] == kNoValue) {
    BOWLINE_ASSIGN(douts[0], filled(0, graph_[node.outputs[0]].shape));
  }
  NodeGradient context(*this, graph_, node, std::move(douts));
  return def.gradient(context);
}

// What the backward body of a Repeat needs of the forward one, and how it gets it.
struct SplitBody {
  Graph backward;
  std::vector<ValueId> kept;         // values of the forward body that are stacked
  std::vector<uint32_t> invariants;  // positions of node inputs that the backward body reads
};

class BodySplitter {
 public:
  BodySplitter(const Graph& whole, size_t forward_nodes, uint32_t carried, size_t inputs)
      : whole_(whole),
        forward_nodes_(forward_nodes),
        carried_(carried),
        inputs_(inputs),
        map_(whole.values.size(), kNoValue),
        seen_(whole.values.size(), 0),
        position_(whole.values.size(), 0) {
    for (uint32_t i = 0; i < whole.inputs.size(); ++i) {
      position_[whole.inputs[i]] = i;
    }
  }

  // A backward input for a value of `whole` that is one already (incoming gradients).
  void add_input(ValueId v) {
    map_[v] = out_.backward.add_value(whole_[v]);
    out_.backward.inputs.push_back(map_[v]);
  }

  SplitBody split(std::span<const ValueId> outputs) {
    for (size_t n = forward_nodes_; n < whole_.nodes.size(); ++n) {
      for (const ValueId v : whole_.nodes[n].inputs) {
        classify(v);
      }
    }
    for (const ValueId v : outputs) {
      classify(v);
    }
    // Invariants first, then the stacked ones: the order of the inputs of a Repeat.
    for (const auto& [v, position] : invariant_) {
      add_input(v);
      out_.invariants.push_back(position);
    }
    for (const ValueId v : out_.kept) {
      add_input(v);
    }
    for (const ValueId v : out_.backward.inputs) {
      out_.backward[v].kind = ValueKind::input;
    }
    for (size_t n = forward_nodes_; n < whole_.nodes.size(); ++n) {
      copy_node(whole_.nodes[n]);
    }
    for (const ValueId v : outputs) {
      out_.backward.outputs.push_back(map_[v]);
    }
    out_.backward.name = whole_.name + ".grad";
    return std::move(out_);
  }

 private:
  void classify(ValueId v) {
    if (map_[v] != kNoValue || seen_[v] != 0) {
      return;
    }
    seen_[v] = 1;
    const ValueInfo& info = whole_[v];
    if (info.kind == ValueKind::parameter) {
      map_[v] = out_.backward.add_value(info);
    } else if (info.kind == ValueKind::input) {
      const uint32_t position = position_[v];
      if (position >= carried_ && position < inputs_) {
        invariant_.push_back({v, position});
      } else {
        out_.kept.push_back(v);
      }
    } else if (info.node < forward_nodes_) {
      out_.kept.push_back(v);
    }
  }

  void copy_node(const Node& node) {
    Node copy = node;
    for (ValueId& v : copy.inputs) {
      v = map_[v];
    }
    for (ValueId& v : copy.outputs) {
      ValueInfo info = whole_[v];
      info.node = static_cast<uint32_t>(out_.backward.nodes.size());
      map_[v] = out_.backward.add_value(std::move(info));
      v = map_[v];
    }
    out_.backward.nodes.push_back(std::move(copy));
  }

  const Graph& whole_;
  size_t forward_nodes_;
  uint32_t carried_;
  size_t inputs_;
  std::vector<ValueId> map_;
  std::vector<char> seen_;
  std::vector<uint32_t> position_;  // of inputs
  std::vector<std::pair<ValueId, uint32_t>> invariant_;
  SplitBody out_;
};

Status Differentiator::walk_repeat(size_t index) {
  const Node node = graph_.nodes[index];
  RepeatInfo& forward = *node.repeat;
  const uint32_t carried = forward.carried;
  const size_t inputs = node.inputs.size();
  BOWLINE_REQUIRE_CODE(forward.stacked_inputs == 0 && node.outputs.size() == carried,
                       Code::unsupported,
                       "The Repeat has stacked values, whose gradient is not implemented.");

  // Forward and backward nodes of one iteration in one graph, then apart.
  Graph whole = *forward.body;
  const size_t forward_values = whole.values.size();
  const std::unique_ptr<bool[]> wanted(new bool[inputs]);
  for (size_t i = 0; i < inputs; ++i) {
    wanted[i] =
        (i < carried || needed(node.inputs[i])) && graph_[node.inputs[i]].dtype == DType::f32;
  }
  std::vector<ValueId> incoming;
  for (uint32_t i = 0; i < carried; ++i) {
    BOWLINE_REQUIRE(whole[whole.outputs[i]].dtype == DType::f32,
                    "Carried value {} of a trained Repeat is {}.", i,
                    whole[whole.outputs[i]].dtype);
    ValueInfo info = whole[whole.outputs[i]];
    info.kind = ValueKind::input;
    info.name.clear();
    incoming.push_back(whole.add_value(std::move(info)));
  }
  Differentiator inner(whole, options_);
  inner.find_needed({wanted.get(), inputs});
  for (uint32_t i = 0; i < carried; ++i) {
    BOWLINE_TRY(inner.contribute(whole.outputs[i], incoming[i]));
  }
  BOWLINE_TRY(inner.walk(forward.body->nodes.size()));

  // Backward outputs: gradients of the carried inputs, then running sums of those of the invariants.
  std::vector<ValueId> outputs;
  std::vector<ValueId> sums;
  std::vector<size_t> summed;  // node inputs
  for (uint32_t i = 0; i < carried; ++i) {
    ValueId d = inner.gradient(whole.inputs[i]);
    if (d == kNoValue) {
      BOWLINE_ASSIGN(d, inner.filled(0, whole[whole.inputs[i]].shape));
    }
    outputs.push_back(d);
  }
  for (size_t i = carried; i < inputs; ++i) {
    const ValueId d = inner.gradient(whole.inputs[i]);
    if (d == kNoValue) {
      continue;
    }
    ValueInfo info = whole[d];
    info.kind = ValueKind::input;
    info.name.clear();
    sums.push_back(whole.add_value(std::move(info)));
    BOWLINE_ASSIGN(const auto sum, inner.append(Op::Add, {sums.back(), d}, no_attributes(), ""));
    outputs.push_back(sum[0]);
    summed.push_back(i);
  }

  // Nodes that no output and no storage needs go before the kept values are counted.
  const std::vector<ValueId> forward_outputs = whole.outputs;
  whole.outputs.insert(whole.outputs.end(), outputs.begin(), outputs.end());
  prune(whole);
  whole.outputs = forward_outputs;
  const auto forward_nodes = static_cast<size_t>(std::ranges::count_if(
      whole.nodes, [&](const Node& n) { return n.outputs[0] < forward_values; }));

  BodySplitter splitter(whole, forward_nodes, carried, inputs);
  for (const ValueId v : incoming) {
    splitter.add_input(v);
  }
  for (const ValueId v : sums) {
    splitter.add_input(v);
  }
  SplitBody split = splitter.split(outputs);

  // The forward Repeat keeps what the backward one reads.
  auto forward_body = std::make_shared<Graph>(whole);
  forward_body->nodes.resize(forward_nodes);
  forward_body->outputs.resize(carried);
  std::vector<ValueId> stacked;
  for (const ValueId v : split.kept) {
    forward_body->outputs.push_back(v);
    ValueInfo info;
    info.dtype = whole[v].dtype;
    info.name = whole[v].name;
    info.node = static_cast<uint32_t>(index);
    info.output = static_cast<uint32_t>(graph_.nodes[index].outputs.size());
    info.shape = Shape{static_cast<int64_t>(forward.count)};
    for (const int64_t d : whole[v].shape.dims()) {
      info.shape.push_back(d);
    }
    stacked.push_back(graph_.add_value(std::move(info)));
    graph_.nodes[index].outputs.push_back(stacked.back());
  }
  forward.body = std::move(forward_body);

  auto backward = std::make_shared<RepeatInfo>();
  backward->body = std::make_shared<Graph>(std::move(split.backward));
  backward->count = forward.count;
  backward->carried = static_cast<uint32_t>(carried + sums.size());
  backward->stacked_inputs = static_cast<uint32_t>(stacked.size());
  backward->reverse = true;

  Node grad;
  grad.op = Op::Repeat;
  grad.attributes = node.attributes;
  grad.name = node.name.empty() ? "" : node.name + ".grad";
  grad.repeat = backward;
  for (uint32_t i = 0; i < carried; ++i) {
    ValueId d = gradient(node.outputs[i]);
    if (d == kNoValue) {
      BOWLINE_ASSIGN(d, filled(0, graph_[node.outputs[i]].shape));
    }
    grad.inputs.push_back(d);
  }
  for (const size_t i : summed) {
    BOWLINE_ASSIGN(const ValueId zero, filled(0, graph_[node.inputs[i]].shape));
    grad.inputs.push_back(zero);
  }
  for (const uint32_t position : split.invariants) {
    grad.inputs.push_back(node.inputs[position]);
  }
  grad.inputs.insert(grad.inputs.end(), stacked.begin(), stacked.end());
  const auto grad_index = static_cast<uint32_t>(graph_.nodes.size());
  for (uint32_t i = 0; i < backward->carried; ++i) {
    ValueInfo info;
    info.node = grad_index;
    info.output = i;
    grad.outputs.push_back(graph_.add_value(std::move(info)));
  }
  const std::vector<ValueId> results = grad.outputs;
  graph_.nodes.push_back(std::move(grad));
  BOWLINE_TRY(infer_node(graph_, grad_index, {}));
  for (uint32_t i = 0; i < carried; ++i) {
    if (needed(node.inputs[i])) {
      BOWLINE_TRY(contribute(node.inputs[i], results[i]));
    }
  }
  for (size_t s = 0; s < summed.size(); ++s) {
    BOWLINE_TRY(contribute(node.inputs[summed[s]], results[carried + s]));
  }
  return {};
}

// Gradient rows of which some contribution covers only a part.
std::vector<uint32_t> partly_covered(const Graph& graph, const GradientOptions& options) {
  std::vector<uint32_t> rows;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::AccumulateGrad) {
      for (const StorageUse& u : graph[node.inputs[0]].uses) {
        if (u.elements != 0 && u.elements != options.elements[u.tie]) {
          rows.push_back(u.tie);
        }
      }
    }
    if (node.repeat) {
      std::ranges::copy(partly_covered(*node.repeat->body, options), std::back_inserter(rows));
    }
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// These rows start a step as zeros, so that every contribution may add.
Status zero_partly_covered(Graph& graph, size_t position, const GradientOptions& options) {
  const std::vector<uint32_t> rows = partly_covered(graph, options);
  if (rows.empty()) {
    return {};
  }
  ValueInfo list;
  list.kind = ValueKind::parameter;
  list.name = "partly used gradients";
  for (const uint32_t row : rows) {
    list.uses.push_back({row, 0, options.elements[row]});
  }
  Node node;
  node.op = Op::ZeroGrad;
  node.attributes = no_attributes();
  node.inputs = {graph.add_value(list)};
  node.outputs = {graph.add_value(ValueInfo{})};
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(position), std::move(node));
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : graph.nodes[n].outputs) {
      graph[v].node = n;
    }
  }
  return infer_node(graph, position, {});
}

}  // namespace

Result<TrainingGraph> differentiate(Graph graph, ValueId loss, const GradientOptions& options) {
  BOWLINE_REQUIRE(graph[loss].dtype == DType::f32 && graph[loss].shape.rank() == 0,
                  "The loss is {}{}, not an f32 scalar.", graph[loss].dtype, graph[loss].shape);
  TrainingGraph out;
  const size_t forward = graph.nodes.size();
  Differentiator d(graph, options);
  d.find_needed({});
  BOWLINE_ASSIGN(const ValueId seed, d.filled(1, Shape{}));
  BOWLINE_TRY(d.contribute(loss, seed));
  BOWLINE_TRY(d.walk(forward));
  prune(graph);
  for (const Node& n : graph.nodes) {
    if (n.op == Op::Fill && n.outputs[0] == seed) {
      break;
    }
    ++out.backward_begin;
  }
  BOWLINE_TRY(zero_partly_covered(graph, out.backward_begin, options));
  out.graph = std::move(graph);
  return out;
}

}  // namespace bowline::graph
