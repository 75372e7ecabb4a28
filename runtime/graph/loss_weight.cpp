#include "graph/loss_weight.h"

#include <algorithm>

namespace bowline::detail::graph {
namespace {

// An iteration of a Repeat, which is a node of the graph around it.
struct Iteration {
  uint32_t node = 0;
  uint32_t number = 0;
  auto operator<=>(const Iteration&) const = default;
};

// A value of the outer graph or, in one iteration each, of the bodies of the Repeats `iterations`.
struct ValuePlace {
  ValueId value = kNoValue;
  std::vector<Iteration> iterations;
  auto operator<=>(const ValuePlace&) const = default;
};

// A mean as its operator sees it. Of a body the operator reads what the outer graph holds; of other values it knows the shape.
class MeanContext : public GradientContext {
 public:
  MeanContext(Differentiator& d, Graph& outer, const Graph& graph, const Node& node,
              std::vector<std::optional<ValueId>> inputs)
      : GradientContext(node.attributes),
        d_(d),
        outer_(outer),
        graph_(graph),
        node_(node),
        inputs_(std::move(inputs)) {}

  int inputs() const override { return static_cast<int>(inputs_.size()); }
  GradientValue in(int i) const override {
    const auto at = static_cast<size_t>(i);
    return {inputs_[at].value_or(kInside + node_.inputs[at])};
  }
  GradientValue out(int i) const override {
    return {kInside + node_.outputs[static_cast<size_t>(i)]};
  }
  GradientValue dout(int) const override { return {}; }
  bool needs(int i) const override {
    const auto& input = inputs_[static_cast<size_t>(i)];
    return !input || d_.needed(*input);
  }
  bool from_batch(int i) const override {
    const auto& input = inputs_[static_cast<size_t>(i)];
    return input && d_.from_batch(*input);
  }
  const Shape& shape(GradientValue v) const override { return info(v).shape; }
  DType dtype(GradientValue v) const override { return info(v).dtype; }
  GradientValues add(Op op, const GradientValues& inputs, const Attributes& attributes) override {
    for (const GradientValue v : inputs) {
      reads_inside_ = reads_inside_ || !v.valid() || v.index >= kInside;
    }
    return reads_inside_ ? GradientValues() : d_.append_for(op, inputs, attributes, "", status_);
  }
  Status din(int, GradientValue) override { return {}; }

  // Of the nodes that could not be added.
  const Status& status() const { return status_; }
  // A node would read what the outer graph does not hold.
  bool reads_inside() const { return reads_inside_; }

 private:
  // From here on an index is that of a value of `graph_`.
  static constexpr ValueId kInside = ValueId{1} << 31;

  const ValueInfo& info(GradientValue v) const {
    return v.index >= kInside ? graph_[v.index - kInside] : outer_[v.index];
  }

  Differentiator& d_;
  Graph& outer_;
  const Graph& graph_;
  const Node& node_;
  std::vector<std::optional<ValueId>> inputs_;
  Status status_;
  bool reads_inside_ = false;
};

class WeightFinder {
 public:
  WeightFinder(Differentiator& d, Graph& outer) : d_(d), outer_(outer) {}

  Result<std::optional<LossWeight>> of(ValuePlace p) {
    while (step(p)) {
    }
    const Graph& graph = graph_of(p.iterations);
    const ValueInfo& info = graph[p.value];
    if (!is_made_by_operator(graph, info) || info.shape.elements() != 1 || steps_ > kMostSteps ||
        !seen_.insert(p).second) {
      return std::optional<LossWeight>();
    }
    const Node node = graph.nodes[info.node];
    const OpDef& def = op_def(node.op);
    std::optional<LossWeight> kept;
    for (size_t i = 0; i < node.inputs.size() && !(kept && kept->sum.valid()); ++i) {
      if ((def.keeps_loss_weight >> i & 1) != 0) {
        BOWLINE_ASSIGN(const auto found, of({node.inputs[i], p.iterations}));
        kept = found && (!kept || found->sum.valid()) ? found : kept;
      }
    }
    BOWLINE_ASSIGN(const auto own, own_weight(node, p));
    return own && kept ? product(*own, *kept) : Result(own ? own : kept);
  }

 private:
  // A loss is a handful of nodes behind its mean, or one for each iteration. A longer chain comes from a hostile file.
  static constexpr size_t kMostSteps = 1024;

  const Graph& graph_of(std::span<const Iteration> iterations) const {
    const Graph* graph = &outer_;
    for (const Iteration& f : iterations) {
      graph = graph->nodes[f.node].repeat->body.get();
    }
    return *graph;
  }

  static bool is_made_by_operator(const Graph& graph, const ValueInfo& info) {
    return info.kind == ValueKind::result && !graph.nodes[info.node].repeat;
  }

  // From what leaves or enters an iteration to the same value where it comes from. False: it is made here.
  bool step(ValuePlace& p) {
    const Graph& graph = graph_of(p.iterations);
    const ValueInfo& info = graph[p.value];
    if (++steps_ > kMostSteps || is_made_by_operator(graph, info)) {
      return false;
    }
    if (info.kind == ValueKind::result) {
      const RepeatInfo& repeat = *graph.nodes[info.node].repeat;
      if (info.output >= repeat.carried) {
        return false;
      }
      p.value = repeat.body->outputs[info.output];
      p.iterations.push_back({info.node, repeat.count - 1});
      return true;
    }
    if (info.kind != ValueKind::input || p.iterations.empty()) {
      return false;
    }
    const auto input =
        static_cast<size_t>(std::ranges::find(graph.inputs, p.value) - graph.inputs.begin());
    Iteration& last = p.iterations.back();
    const Node& node =
        graph_of(std::span(p.iterations).first(p.iterations.size() - 1)).nodes[last.node];
    if (input < node.repeat->carried && last.number > 0) {
      p.value = graph.outputs[input];
      --last.number;
      return true;
    }
    if (input >= node.inputs.size() - node.repeat->stacked_inputs) {
      return false;
    }
    p.value = node.inputs[input];
    p.iterations.pop_back();
    return true;
  }

  // Of the operator `node`, whose output is at `p`.
  Result<std::optional<LossWeight>> own_weight(const Node& node, const ValuePlace& p) {
    const OpDef& def = op_def(node.op);
    if (def.loss_weight == nullptr) {
      return std::optional<LossWeight>();
    }
    std::vector<std::optional<ValueId>> inputs;
    for (const ValueId v : node.inputs) {
      ValuePlace from{v, p.iterations};
      while (!from.iterations.empty() && step(from)) {
      }
      inputs.push_back(from.iterations.empty() ? std::optional(from.value) : std::nullopt);
    }
    MeanContext context(d_, outer_, graph_of(p.iterations), node, std::move(inputs));
    std::optional<LossWeight> own = def.loss_weight(context);
    BOWLINE_TRY(Status(context.status()));
    return context.reads_inside() ? std::nullopt : own;
  }

  // Of a mean of means: the sums multiply.
  Result<std::optional<LossWeight>> product(const LossWeight& a, const LossWeight& b) {
    LossWeight out{{}, a.terms * b.terms};
    if (a.sum.valid() && b.sum.valid()) {
      BOWLINE_ASSIGN(const auto both,
                     d_.append(Op::Mul, {a.sum.index, b.sum.index}, no_attributes(), ""));
      out.sum = {both[0]};
    } else if (a.sum.valid() || b.sum.valid()) {
      const LossWeight& counted = a.sum.valid() ? a : b;
      const LossWeight& fixed = a.sum.valid() ? b : a;
      BOWLINE_ASSIGN(const ValueId sum, d_.scaled(counted.sum.index, fixed.terms));
      out.sum = {sum};
    }
    return std::optional(out);
  }

  Differentiator& d_;
  Graph& outer_;
  std::set<ValuePlace> seen_;
  size_t steps_ = 0;
};

}  // namespace

Result<std::optional<LossWeight>> loss_weight(Differentiator& d, Graph& graph, ValueId loss) {
  return WeightFinder(d, graph).of({loss, {}});
}

}  // namespace bowline::detail::graph
