#include "graph/gradient.h"

#include <algorithm>

#include "graph/loss_weight.h"

namespace bowline::detail::graph {
namespace {

class NodeGradient : public GradientContext {
 public:
  NodeGradient(Differentiator& d, BoundGraph& graph, const BoundNode& node,
               std::vector<ValueId> douts)
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
  bool from_batch(int i) const override {
    return d_.from_batch(node_.inputs[static_cast<size_t>(i)]);
  }
  // Of the nodes that could not be added.
  const Status& status() const { return status_; }
  Shape shape(GradientValue v) const override { return graph_[v.index].shape; }
  DType dtype(GradientValue v) const override { return graph_[v.index].dtype; }

  GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) override {
    const bool all = std::ranges::all_of(inputs, [](GradientValue v) { return v.valid(); });
    return all ? d_.append_for(op, inputs, attributes,
                               node_.name.empty() ? "" : node_.name + ".grad", status_)
               : GradientValues();
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
  BoundGraph& graph_;
  const BoundNode& node_;
  std::vector<ValueId> douts_;
  Status status_;
};

}  // namespace

bool Differentiator::has_trainable(const BoundValue& info) const {
  return info.kind == ValueKind::parameter &&
         std::ranges::any_of(info.uses, [&](const StorageUse& u) {
           return u.tie < options_.rows.size() && options_.rows[u.tie].has_value();
         });
}

Marks Differentiator::reached(const BoundGraph& graph, const Marks& inputs) const {
  Marks marks(graph.values.size(), 0);
  for (size_t v = 0; v < marks.size(); ++v) {
    marks[v] = has_trainable(graph.values[v]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    marks[graph.inputs[i]] = inputs[i];
  }
  for (const BoundNode& node : graph.nodes) {
    if (node.repeat) {
      const BoundGraph& body = *node.repeat->body;
      const Marks inside = reached(body, reached_inputs(node, marks));
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        marks[node.outputs[i]] = inside[body.outputs[i]];
      }
      continue;
    }
    const bool any = !op_def(node.op).stops_gradient &&
                     std::ranges::any_of(node.inputs, [&](ValueId v) { return marks[v] != 0; });
    for (const ValueId v : node.outputs) {
      marks[v] = any && is_float(graph[v].dtype);
    }
  }
  return marks;
}

// If a value is reached when it leaves an iteration, it is reached when it enters the next one.
Marks Differentiator::reached_inputs(const BoundNode& repeat, const Marks& around) const {
  const BoundRepeat& info = *repeat.repeat;
  Marks inputs;
  for (const ValueId v : repeat.inputs) {
    inputs.push_back(around[v]);
  }
  for (bool grows = true; grows;) {
    grows = false;
    const Marks inside = reached(*info.body, inputs);
    for (uint32_t i = 0; i < info.carried; ++i) {
      if (inputs[i] == 0 && inside[info.body->outputs[i]] != 0) {
        inputs[i] = 1;
        grows = true;
      }
    }
  }
  return inputs;
}

Result<ValueId> Differentiator::append(Op op, std::vector<ValueId> inputs,
                                       const Attributes& attributes, std::string name) {
  const size_t index = graph_.nodes.size();
  const int count = outputs_of(op_def(op), attributes, inputs.size());
  std::vector<ValueId> outputs = graph_.add_results(static_cast<size_t>(count));
  const ValueId first = outputs[0];
  graph_.nodes.push_back(BoundGraph::make_node(op, attributes, std::move(inputs),
                                               std::move(outputs), std::move(name)));
  BOWLINE_TRY(infer_node(graph_, index, {}));
  return first;
}

namespace {

// True if the node can run twice.
bool is_repeatable(const BoundNode& node) {
  return !node.repeat && op_def(node.op).updates[0].output < 0;
}

}  // namespace

bool Differentiator::runs_again(const BoundGraph& whole, uint32_t node) const {
  const BoundNode& n = whole.nodes[node];
  if (options_.again == nullptr || options_.again->empty() || !is_repeatable(n)) {
    return false;
  }
  return op_def(n.op).is_view || options_.again->contains({path_, n.outputs[0]});
}

void Differentiator::note_kept(const BoundGraph& whole, ValueId v) {
  const BoundNode& n = whole.nodes[whole[v].node];
  if (is_repeatable(n) && !op_def(n.op).is_view) {
    Kept& kept = kept_[{path_, n.outputs[0]}];
    kept.bytes +=
        static_cast<uint64_t>(whole[v].shape.elements()) * size_of(whole[v].dtype) * iterations_;
    kept.costly = op_def(n.op).costly;
  }
}

GradientValues Differentiator::append_for(Op op, const GradientValues& inputs,
                                          const Attributes& attributes, std::string name,
                                          Status& failed) {
  std::vector<ValueId> ids;
  for (const GradientValue v : inputs) {
    ids.push_back(v.index);
  }
  Result<ValueId> first = append(op, std::move(ids), attributes, std::move(name));
  if (!first.ok()) {
    failed = std::move(first).status();
    return {};
  }
  GradientValues out;
  for (const ValueId v : graph_.nodes.back().outputs) {
    out.push_back({v});
  }
  return out;
}

Result<ValueId> Differentiator::filled(float value, const Shape& shape, DType dtype) {
  return append(Op::Fill, {}, fill_attributes(value, shape, dtype), "");
}

Result<ValueId> Differentiator::gradient_or_zero(ValueId v) {
  const ValueId d = gradient(v);
  return d != kNoValue ? d : filled(0, graph_[v].shape, graph_[v].dtype);
}

// The list of gradient rows for a list of weights.
ValueId Differentiator::gradient_list(const BoundValue& parameter) {
  BoundValue list;
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

// Returns the input of the Cast that made `v`, or `v`. A gradient row accepts contributions of
// every float dtype, so the Cast is not needed.
ValueId Differentiator::before_cast(ValueId v) const {
  if (graph_[v].kind != ValueKind::result || graph_.nodes[graph_[v].node].op != Op::Cast) {
    return v;
  }
  const ValueId from = graph_.nodes[graph_[v].node].inputs[0];
  return is_float(graph_[from].dtype) && size_of(graph_[from].dtype) < size_of(graph_[v].dtype)
             ? from
             : v;
}

Status Differentiator::contribute(ValueId v, ValueId gradient) {
  if (graph_[v].kind == ValueKind::parameter) {
    if (!has_trainable(graph_[v])) {
      return {};
    }
    gradient = before_cast(gradient);
    const BoundValue parameter = graph_[v];
    const ValueId list = gradient_list(parameter);
    return append(Op::AccumulateGrad, {list, gradient}, no_attributes(), parameter.name + ".grad")
        .status();
  }
  if (v >= gradients_.size()) {
    gradients_.resize(graph_.values.size(), kNoValue);
  }
  if (gradients_[v] != kNoValue) {
    BOWLINE_TRY_ASSIGN(gradient, append(Op::Add, {gradients_[v], gradient}, no_attributes(), ""));
  }
  gradients_[v] = gradient;
  return {};
}

Status Differentiator::walk(size_t count) {
  for (size_t i = count; i-- > 0;) {
    const BoundNode& node = graph_.nodes[i];
    const bool reached =
        std::ranges::any_of(node.outputs, [&](ValueId v) { return gradient(v) != kNoValue; });
    const bool wanted = std::ranges::any_of(node.outputs, [&](ValueId v) { return needed(v); });
    if (reached && wanted) {
      BOWLINE_TRY((node.repeat ? walk_repeat(*this, graph_, i, options_) : walk_node(i))
                      .at(format("While building the gradient of {}.", describe(graph_, i))));
    }
  }
  return {};
}

Status Differentiator::walk_node(size_t index) {
  const BoundNode node = graph_.nodes[index];
  const OpDef& def = op_def(node.op);
  BOWLINE_REQUIRE(
      def.gradient != nullptr,
      "A trainable storage needs a gradient through {}, but the operator {} has no gradient.",
      describe(graph_, index), node.op);
  std::vector<ValueId> douts;
  for (const ValueId v : node.outputs) {
    douts.push_back(gradient(v));
  }
  BOWLINE_TRY_ASSIGN(douts[0], gradient_or_zero(node.outputs[0]));
  NodeGradient context(*this, graph_, node, std::move(douts));
  return def.gradient(context);
}

bool Differentiator::from_batch(ValueId v) const {
  std::vector<ValueId> open = {v};
  std::set<ValueId> seen = {v};
  while (!open.empty()) {
    const BoundValue& info = graph_[open.back()];
    open.pop_back();
    if (info.kind == ValueKind::input) {
      return true;
    }
    if (info.kind == ValueKind::result) {
      for (const ValueId in : graph_.nodes[info.node].inputs) {
        if (seen.insert(in).second) {
          open.push_back(in);
        }
      }
    }
  }
  return false;
}

Result<ValueId> Differentiator::scaled(ValueId v, double factor) {
  return factor == 1 ? v : append(Op::Scale, {v}, scale_attributes(static_cast<float>(factor)), "");
}

namespace {

// Number of elements that the scalar `v` sums. `v` may be the (clipped) divisor of a masked mean. 1
// if `v` is not a sum.
double summed_elements(const BoundGraph& graph, ValueId v) {
  while (graph[v].kind == ValueKind::result && !graph.nodes[graph[v].node].repeat) {
    const BoundNode& node = graph.nodes[graph[v].node];
    if (node.inputs.empty() || graph[v].shape.elements() != 1) {
      break;
    }
    if (op_def(node.op).loss_terms == LossTerms::total) {
      return static_cast<double>(graph[node.inputs[0]].shape.elements());
    }
    v = node.inputs[0];
  }
  return 1;
}

}  // namespace

Result<ValueId> Differentiator::seed(ValueId loss, TrainingGraph& out) {
  std::optional<LossWeight> found;
  if (options_.weighs_loss) {
    BOWLINE_TRY_ASSIGN(found, loss_weight(*this, graph_, loss));
  }
  const LossWeight weight = found.value_or(LossWeight());
  out.loss_terms = weight.terms;
  // A Div does not report how many terms its divisor sums. With a unit of 1 the backward pass would
  // start from that sum, which can overflow f16.
  const double terms = weight.sum.valid() && weight.terms == 1
                           ? summed_elements(graph_, weight.sum.index)
                           : weight.terms;
  out.weight_unit = options_.weight_unit != 0 ? options_.weight_unit : std::max(terms, 1.0);
  ValueId factor = kNoValue;
  if (weight.sum.valid()) {
    out.has_loss_weight = true;
    graph_.outputs.push_back(weight.sum.index);
    graph_.output_names.emplace_back("loss weight");
    BOWLINE_TRY_ASSIGN(factor, scaled(weight.sum.index, 1 / out.weight_unit));
  }
  BOWLINE_TRY_ASSIGN(const ValueId scale, append(Op::LossScale, {}, no_attributes(), ""));
  return factor == kNoValue ? scaled(scale, weight.terms / out.weight_unit)
                            : append(Op::Mul, {scale, factor}, no_attributes(), "");
}

namespace {

// Gradient rows with a contribution that covers only a part.
std::vector<uint32_t> partly_covered(const BoundGraph& graph, const GradientOptions& options) {
  std::vector<uint32_t> rows;
  for (const BoundGraph* const g : with_bodies(graph)) {
    for (const BoundNode& node : g->nodes) {
      if (op_def(node.op).gradient_rows != GradientRows::added) {
        continue;
      }
      for (const StorageUse& u : (*g)[node.inputs[0]].uses) {
        if (u.elements != 0 && u.elements != options.elements[u.tie]) {
          rows.push_back(u.tie);
        }
      }
    }
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// These rows start a step as zeros, so that every contribution may add.
Status zero_partly_covered(BoundGraph& graph, size_t position, const GradientOptions& options) {
  const std::vector<uint32_t> rows = partly_covered(graph, options);
  if (rows.empty()) {
    return {};
  }
  BoundValue list;
  list.kind = ValueKind::parameter;
  list.name = "partly used gradients";
  for (const uint32_t row : rows) {
    list.uses.push_back({row, 0, options.elements[row]});
  }
  const ValueId zeroed = graph.add_value(list), result = graph.add_value({});
  graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(position),
                     BoundGraph::make_node(Op::ZeroGrad, no_attributes(), {zeroed}, {result}, ""));
  renumber(graph);
  return infer_node(graph, position, {});
}

}  // namespace

namespace {

// Takes a graph whose backward part begins at node `begin`. Adds nodes that recompute the
// activations that are not kept.
class RunAgain {
 public:
  RunAgain(BoundGraph& graph, size_t begin, Differentiator& d)
      : graph_(graph), begin_(begin), d_(d) {}

  void rewrite() {
    std::vector<BoundNode> backward(
        std::make_move_iterator(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(begin_)),
        std::make_move_iterator(graph_.nodes.end()));
    graph_.nodes.resize(begin_);
    for (BoundNode& node : backward) {
      for (ValueId& v : node.inputs) {
        v = read(v);
      }
      graph_.nodes.push_back(std::move(node));
    }
    renumber(graph_);
  }

 private:
  // The value that the backward part reads instead of `v`.
  ValueId read(ValueId v) {
    if (graph_[v].kind != ValueKind::result || graph_[v].node >= begin_) {
      return v;
    }
    if (const auto it = made_.find(v); it != made_.end()) {
      return it->second;
    }
    const uint32_t maker = graph_[v].node;
    if (!d_.runs_again(graph_, maker)) {
      d_.note_kept(graph_, v);
      return made_[v] = v;
    }
    BoundNode copy = graph_.nodes[maker];
    for (ValueId& in : copy.inputs) {
      in = read(in);
    }
    for (ValueId& out : copy.outputs) {
      const ValueId from = out;
      out = graph_.add_value(graph_[from]);
      graph_[out].node = static_cast<uint32_t>(graph_.nodes.size());
      made_[from] = out;
    }
    graph_.nodes.push_back(std::move(copy));
    return made_[v];
  }

  BoundGraph& graph_;
  size_t begin_;
  Differentiator& d_;
  std::map<ValueId, ValueId> made_;
};

}  // namespace

Result<TrainingGraph> differentiate(BoundGraph graph, ValueId loss,
                                    const GradientOptions& options) {
  BOWLINE_REQUIRE(graph[loss].dtype == DType::f32 && graph[loss].shape.rank() == 0,
                  "The loss is {}{}, not an f32 scalar.", graph[loss].dtype, graph[loss].shape);
  TrainingGraph out;
  const size_t forward = graph.nodes.size();
  out.again = options.again == nullptr ? 0 : options.again->size();
  Differentiator d(graph, options, {}, 1, out.kept);
  d.find_needed({});
  BOWLINE_TRY_ASSIGN(const ValueId seed, d.seed(loss, out));
  BOWLINE_TRY(d.contribute(loss, seed));
  BOWLINE_TRY(d.walk(forward));
  prune(graph);
  for (const BoundNode& n : graph.nodes) {
    if (n.op == Op::LossScale) {
      break;
    }
    ++out.backward_begin;
  }
  RunAgain(graph, out.backward_begin, d).rewrite();
  BOWLINE_TRY(zero_partly_covered(graph, out.backward_begin, options));
  out.graph = std::move(graph);
  return out;
}

}  // namespace bowline::detail::graph
