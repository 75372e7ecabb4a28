// The gradient of a Repeat. The forward and backward nodes of one iteration are built in one graph,
// which is then split. The backward body reads the parameters, the invariant inputs, and values
// that the forward Repeat keeps for it. Kept values are stacked over the iterations.
#include <algorithm>

#include "graph/differentiator.h"

namespace bowline::detail::graph {
namespace {

// The backward body of a Repeat, and the values of the forward body that it needs.
struct SplitBody {
  BoundGraph backward;
  std::vector<ValueId> kept;         // values of the forward body that are stacked
  std::vector<uint32_t> invariants;  // positions of node inputs that the backward body reads
};

class BodySplitter {
 public:
  BodySplitter(const BoundGraph& whole, size_t forward_nodes, uint32_t carried, size_t inputs,
               Differentiator& d)
      : whole_(whole),
        d_(d),
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

  // Adds a backward input for a value that is an input already (an incoming gradient).
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
    for (const uint32_t n : again_) {
      copy_node(whole_.nodes[n]);
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
    const BoundValue& info = whole_[v];
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
      keep_or_run_again(v, info.node);
    }
  }

  // A parameter, or one in another dtype, packed, or with other dims. Plans read it as a derived
  // copy or as quantized values in every body. Keeping it would copy the weights of all iterations.
  bool is_form_of_parameter(ValueId v) const {
    const BoundValue& info = whole_[v];
    if (info.kind != ValueKind::result) {
      return info.kind == ValueKind::parameter;
    }
    const BoundNode& n = whole_.nodes[info.node];
    const OpDef& def = op_def(n.op);
    return (def.derived_copy != DerivedCopy::none || def.is_view) &&
           is_form_of_parameter(n.inputs[0]);
  }

  // A view is made again, so that a value and its views are kept once.
  void keep_or_run_again(ValueId v, uint32_t node) {
    const bool is_view = op_def(whole_.nodes[node].op).is_view;
    if (!is_view && !is_form_of_parameter(v) && !d_.runs_again(whole_, node)) {
      d_.note_kept(whole_, v);
      out_.kept.push_back(v);
    } else if (again_.insert(node).second) {
      for (const ValueId in : whole_.nodes[node].inputs) {
        classify(in);
      }
    }
  }

  void copy_node(const BoundNode& node) {
    BoundNode copy = node;
    for (ValueId& v : copy.inputs) {
      v = map_[v];
    }
    for (ValueId& v : copy.outputs) {
      BoundValue info = whole_[v];
      info.node = static_cast<uint32_t>(out_.backward.nodes.size());
      map_[v] = out_.backward.add_value(std::move(info));
      v = map_[v];
    }
    out_.backward.nodes.push_back(std::move(copy));
  }

  const BoundGraph& whole_;
  Differentiator& d_;
  size_t forward_nodes_;
  uint32_t carried_;
  size_t inputs_;
  std::set<uint32_t> again_;  // nodes of the forward body that the backward one runs too
  std::vector<ValueId> map_;
  std::vector<char> seen_;
  std::vector<uint32_t> position_;  // of inputs
  std::vector<std::pair<ValueId, uint32_t>> invariant_;
  SplitBody out_;
};

class RepeatGradient {
 public:
  RepeatGradient(Differentiator& outer, BoundGraph& graph, size_t index,
                 const GradientOptions& options)
      : outer_(outer),
        graph_(graph),
        index_(index),
        node_(graph.nodes[index]),
        forward_(*node_.repeat),
        carried_(forward_.carried),
        whole_(*forward_.body),
        forward_values_(whole_.values.size()),
        inner_(whole_, options, path_of(outer, index), outer.iterations() * forward_.count,
               outer.kept()) {}

  Status run() {
    BOWLINE_REQUIRE_CODE(forward_.stacked_inputs == 0 && node_.outputs.size() == carried_,
                         Code::unsupported,
                         "The Repeat has stacked values, whose gradient is not implemented.");
    BOWLINE_TRY(walk_body());
    BOWLINE_TRY(add_outputs());
    const SplitBody split = take_apart();
    keep(split.kept);
    BOWLINE_TRY(append(split));
    return contribute();
  }

 private:
  static std::vector<uint32_t> path_of(const Differentiator& outer, size_t index) {
    std::vector<uint32_t> path = outer.path();
    path.push_back(static_cast<uint32_t>(index));
    return path;
  }

  ValueId add_input(BoundValue info) {
    info.kind = ValueKind::input;
    info.name.clear();
    return whole_.add_value(std::move(info));
  }

  // Adds the backward nodes of one iteration after the forward nodes.
  Status walk_body() {
    const Marks needed = outer_.needed_inputs(node_);
    inner_.find_needed(needed);
    for (uint32_t i = 0; i < carried_; ++i) {
      if (needed[i]) {
        through_.push_back(i);
        incoming_.push_back(add_input(whole_[whole_.outputs[i]]));
        BOWLINE_TRY(inner_.contribute(whole_.outputs[i], incoming_.back()));
      }
    }
    return inner_.walk(forward_.body->nodes.size());
  }

  // Outputs: the gradients of the carried inputs, then running sums of the gradients of invariants.
  Status add_outputs() {
    for (const uint32_t i : through_) {
      BOWLINE_TRY_ASSIGN(outputs_.emplace_back(), inner_.gradient_or_zero(whole_.inputs[i]));
    }
    for (size_t i = carried_; i < node_.inputs.size(); ++i) {
      const ValueId d = inner_.gradient(whole_.inputs[i]);
      if (d == kNoValue) {
        continue;
      }
      sums_.push_back(add_input(whole_[d]));
      BOWLINE_TRY_ASSIGN(outputs_.emplace_back(),
                         inner_.append(Op::Add, {sums_.back(), d}, no_attributes(), ""));
      summed_.push_back(i);
    }
    return {};
  }

  SplitBody take_apart() {
    // Removes unused nodes before the kept values are counted.
    const std::vector<ValueId> forward_outputs = whole_.outputs;
    whole_.outputs.insert(whole_.outputs.end(), outputs_.begin(), outputs_.end());
    prune(whole_);
    whole_.outputs = forward_outputs;
    forward_nodes_ = static_cast<size_t>(std::ranges::count_if(
        whole_.nodes, [&](const BoundNode& n) { return n.outputs[0] < forward_values_; }));
    BodySplitter splitter(whole_, forward_nodes_, carried_, node_.inputs.size(), inner_);
    for (const std::vector<ValueId>* inputs : {&incoming_, &sums_}) {
      for (const ValueId v : *inputs) {
        splitter.add_input(v);
      }
    }
    return splitter.split(outputs_);
  }

  // Makes the forward Repeat keep the values that the backward Repeat reads.
  void keep(const std::vector<ValueId>& kept) {
    auto body = std::make_shared<BoundGraph>(whole_);
    body->nodes.resize(forward_nodes_);
    body->outputs.resize(carried_);
    for (const ValueId v : kept) {
      body->outputs.push_back(v);
      BoundValue info;
      info.dtype = whole_[v].dtype;
      info.name = whole_[v].name;
      info.node = static_cast<uint32_t>(index_);
      info.output = static_cast<uint32_t>(graph_.nodes[index_].outputs.size());
      info.shape = Shape{static_cast<int64_t>(forward_.count)};
      for (const int64_t d : whole_[v].shape.dims()) {
        info.shape.push_back(d);
      }
      stacked_.push_back(graph_.add_value(std::move(info)));
      graph_.nodes[index_].outputs.push_back(stacked_.back());
    }
    forward_.body = std::move(body);
  }

  // The inputs of the backward Repeat, in the order of its body inputs.
  Result<std::vector<ValueId>> backward_inputs(const SplitBody& split) {
    std::vector<ValueId> inputs;
    for (const uint32_t i : through_) {
      BOWLINE_TRY_ASSIGN(inputs.emplace_back(), outer_.gradient_or_zero(node_.outputs[i]));
    }
    for (const size_t i : summed_) {
      const BoundValue& like = graph_[node_.inputs[i]];
      BOWLINE_TRY_ASSIGN(inputs.emplace_back(), outer_.filled(0, like.shape, like.dtype));
    }
    for (const uint32_t position : split.invariants) {
      inputs.push_back(node_.inputs[position]);
    }
    inputs.insert(inputs.end(), stacked_.begin(), stacked_.end());
    return inputs;
  }

  Status append(const SplitBody& split) {
    BoundNode node = BoundGraph::make_node(node_.op, node_.attributes, {}, {},
                                           node_.name.empty() ? "" : node_.name + ".grad");
    node.repeat = std::make_shared<BoundRepeat>();
    node.repeat->body = std::make_shared<BoundGraph>(split.backward);
    node.repeat->count = forward_.count;
    node.repeat->carried = static_cast<uint32_t>(through_.size() + sums_.size());
    node.repeat->stacked_inputs = static_cast<uint32_t>(stacked_.size());
    node.repeat->reverse = true;
    BOWLINE_TRY_ASSIGN(node.inputs, backward_inputs(split));
    results_ = graph_.add_results(node.repeat->carried);
    node.outputs = results_;
    graph_.nodes.push_back(std::move(node));
    return infer_node(graph_, graph_.nodes.size() - 1, {});
  }

  Status contribute() {
    for (size_t t = 0; t < through_.size(); ++t) {
      if (outer_.needed(node_.inputs[through_[t]])) {
        BOWLINE_TRY(outer_.contribute(node_.inputs[through_[t]], results_[t]));
      }
    }
    for (size_t s = 0; s < summed_.size(); ++s) {
      BOWLINE_TRY(outer_.contribute(node_.inputs[summed_[s]], results_[through_.size() + s]));
    }
    return {};
  }

  Differentiator& outer_;
  BoundGraph& graph_;
  size_t index_;
  const BoundNode node_;  // a copy: nodes are appended meanwhile
  BoundRepeat& forward_;
  uint32_t carried_;
  BoundGraph whole_;  // forward and backward nodes of one iteration
  size_t forward_values_;
  size_t forward_nodes_ = 0;
  Differentiator inner_;
  std::vector<uint32_t> through_;  // the carried values that need a gradient
  std::vector<ValueId> incoming_;  // gradients of these when they leave
  std::vector<ValueId> sums_;      // of invariant inputs, so far
  std::vector<size_t> summed_;     // which inputs of the node
  std::vector<ValueId> outputs_;   // of the backward body, in `whole_`
  std::vector<ValueId> stacked_;   // of the outer graph: what the forward Repeat keeps
  std::vector<ValueId> results_;   // of the backward Repeat
};

}  // namespace

Status walk_repeat(Differentiator& outer, BoundGraph& graph, size_t index,
                   const GradientOptions& options) {
  return RepeatGradient(outer, graph, index, options).run();
}

}  // namespace bowline::detail::graph
