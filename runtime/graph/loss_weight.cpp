#include "graph/loss_weight.h"

#include <algorithm>

namespace bowline::detail::graph {
namespace {

// One iteration of the Repeat `node` of the enclosing graph.
struct Iteration {
  uint32_t node = 0;
  uint32_t number = 0;
  auto operator<=>(const Iteration&) const = default;
};

// A value of the outer graph, or of the bodies of nested Repeats in the given iterations.
struct ValuePlace {
  ValueId value = kNoValue;
  std::vector<Iteration> iterations;
  auto operator<=>(const ValuePlace&) const = default;
};

// The context of a mean for its operator. Inside a body, the operator can read values that the
// outer graph has. It knows only the shapes of other values.
class MeanContext : public GradientContext {
 public:
  MeanContext(Differentiator& d, BoundGraph& outer, const BoundGraph& graph, const BoundNode& node,
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
  Shape shape(GradientValue v) const override { return info(v).shape; }
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
  // True if a node would read a value that the outer graph does not have.
  bool reads_inside() const { return reads_inside_; }

 private:
  // Indices from here on denote values of `graph_`.
  static constexpr ValueId kInside = ValueId{1} << 31;

  const BoundValue& info(GradientValue v) const {
    return v.index >= kInside ? graph_[v.index - kInside] : outer_[v.index];
  }

  Differentiator& d_;
  BoundGraph& outer_;
  const BoundGraph& graph_;
  const BoundNode& node_;
  std::vector<std::optional<ValueId>> inputs_;
  Status status_;
  bool reads_inside_ = false;
};

class WeightFinder {
 public:
  WeightFinder(Differentiator& d, BoundGraph& outer) : d_(d), outer_(outer) {}

  // A term of the loss that depends on the batch.
  struct Term {
    ValueId value = kNoValue;  // in the outer graph, after all Repeats around the term
    std::optional<LossWeight> weight;
  };

  Result<std::optional<LossWeight>> of(ValuePlace p) {
    go_home(p);
    if (!is_one_of_operator(p) || steps_ > kMostSteps || !seen_.insert(p).second) {
      return std::optional<LossWeight>();
    }
    const BoundNode node = maker_of(p);
    std::optional<LossWeight> kept;
    for (size_t i = 0; i < node.inputs.size() && !(kept && kept->sum.valid()); ++i) {
      if (keeps(node, i, p)) {
        BOWLINE_TRY_ASSIGN(const auto found, of({node.inputs[i], p.iterations}));
        kept = found && (!kept || found->sum.valid()) ? found : kept;
      }
    }
    BOWLINE_TRY_ASSIGN(const auto own, own_weight(node, p));
    return own && kept ? product(*own, *kept) : Result(own ? own : kept);
  }

  // The terms of `loss`, a value of the outer graph.
  Status find_terms(ValueId loss) {
    std::vector<std::pair<ValuePlace, std::optional<ValueId>>> open = {{{loss, {}}, std::nullopt}};
    std::set<std::pair<ValuePlace, std::optional<ValueId>>> visited;
    while (!open.empty()) {
      auto [p, from] = open.back();
      open.pop_back();
      if (!from && is_repeated(p)) {
        from = p.value;
      }
      steps_ = 0;
      go_home(p);
      if (!visited.insert({p, from}).second || !from_batch(p)) {
        continue;
      }
      BOWLINE_REQUIRE_CODE(visited.size() <= kMostPlaces, Code::unsupported,
                           "The loss has more than {} nodes, so its means cannot be separated for "
                           "micro-batches. Train with an accumulation of 1.",
                           kMostPlaces);
      BOWLINE_TRY_ASSIGN(const std::vector<size_t> added, added_by(p));
      if (added.empty()) {
        seen_.clear();
        BOWLINE_TRY_ASSIGN(const auto weight, of(p));
        terms_.push_back({from.value_or(p.value), weight});
        continue;
      }
      if (!from) {
        sums_.insert(p.value);
      }
      for (const size_t i : added) {
        open.push_back({{maker_of(p).inputs[i], p.iterations}, from});
      }
    }
    return {};
  }
  const std::vector<Term>& terms() const { return terms_; }
  // Values of the outer graph on the way from the terms to the loss.
  const std::set<ValueId>& sums() const { return sums_; }

 private:
  // A loss is a handful of nodes behind its mean, or one for each iteration. A longer chain comes
  // from a hostile file.
  static constexpr size_t kMostSteps = 1024;
  static constexpr size_t kMostPlaces = 1 << 16;

  const BoundGraph& graph_of(std::span<const Iteration> iterations) const {
    const BoundGraph* graph = &outer_;
    for (const Iteration& f : iterations) {
      graph = graph->nodes[f.node].repeat->body.get();
    }
    return *graph;
  }

  const BoundNode& maker_of(const ValuePlace& p) const {
    const BoundGraph& graph = graph_of(p.iterations);
    return graph.nodes[graph[p.value].node];
  }

  // True for a scalar, or for a stack of scalars, that an operator made.
  bool is_one_of_operator(const ValuePlace& p) const {
    const BoundGraph& graph = graph_of(p.iterations);
    return is_made_by_operator(graph, graph[p.value]) &&
           (graph[p.value].shape.elements() == 1 || is_stack(p));
  }

  // For example the stacked losses of several heads.
  bool is_stack(const ValuePlace& p) const {
    const BoundGraph& graph = graph_of(p.iterations);
    return is_made_by_operator(graph, graph[p.value]) &&
           op_def(maker_of(p).op).loss_terms == LossTerms::stack &&
           std::ranges::all_of(maker_of(p).inputs,
                               [&](ValueId v) { return graph[v].shape.elements() == 1; });
  }
  bool is_total_of_stack(const BoundNode& node, const ValuePlace& p) const {
    return op_def(node.op).loss_terms == LossTerms::total &&
           is_stack({node.inputs[0], p.iterations});
  }

  // True if the output of `node`, the value at `p`, is a mean with the weights of input `i`.
  bool keeps(const BoundNode& node, size_t i, const ValuePlace& p) const {
    return (op_def(node.op).keeps_loss_weight >> i & 1) != 0 || is_stack(p) ||
           is_total_of_stack(node, p);
  }

  // A result of a Repeat of the outer graph.
  bool is_repeated(const ValuePlace& p) const {
    return p.iterations.empty() && outer_[p.value].kind == ValueKind::result &&
           outer_.nodes[outer_[p.value].node].repeat != nullptr;
  }

  // Returns the inputs of the node that makes the value at `p` whose terms the value adds. The node
  // may scale these terms by a factor that does not depend on the batch. Empty: the value is a
  // single term.
  Result<std::vector<size_t>> added_by(const ValuePlace& p) {
    if (!is_one_of_operator(p)) {
      return std::vector<size_t>();
    }
    const BoundNode node = maker_of(p);
    BOWLINE_TRY_ASSIGN(const auto own, own_weight(node, p));
    if (own) {
      return std::vector<size_t>();
    }
    std::vector<size_t> of_batch;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (from_batch({node.inputs[i], p.iterations})) {
        of_batch.push_back(i);
      }
    }
    const bool adds = op_def(node.op).loss_terms == LossTerms::sum || is_stack(p);
    const bool scales = of_batch.size() == 1 && keeps(node, of_batch[0], p);
    return adds || scales ? of_batch : std::vector<size_t>();
  }

  // True if the value may differ between micro-batches: it depends on an input of the outer graph,
  // or on a per-step scalar such as the counter of Dropout.
  bool from_batch(const ValuePlace& p) const {
    std::vector<ValuePlace> open = {p};
    std::set<ValuePlace> seen = {p};
    while (!open.empty()) {
      ValuePlace at = std::move(open.back());
      open.pop_back();
      while (step(at)) {
      }
      const BoundGraph& graph = graph_of(at.iterations);
      const BoundValue& info = graph[at.value];
      if (info.kind == ValueKind::parameter) {
        continue;
      }
      // Stacked values of a Repeat are not followed.
      if (!is_made_by_operator(graph, info) || seen.size() > kMostPlaces ||
          !step_words(graph.nodes[info.node].op).empty()) {
        return true;
      }
      for (const ValueId in : graph.nodes[info.node].inputs) {
        const ValuePlace next{in, at.iterations};
        if (seen.insert(next).second) {
          open.push_back(next);
        }
      }
    }
    return false;
  }

  static bool is_made_by_operator(const BoundGraph& graph, const BoundValue& info) {
    return info.kind == ValueKind::result && !graph.nodes[info.node].repeat;
  }

  // Moves `p` to the place where the value is made, through the Repeats that pass it on.
  void go_home(ValuePlace& p) {
    while (++steps_ <= kMostSteps && step(p)) {
    }
  }

  // Moves `p` one iteration boundary back to the origin of the value. Returns false if the value is
  // made here.
  bool step(ValuePlace& p) const {
    const BoundGraph& graph = graph_of(p.iterations);
    const BoundValue& info = graph[p.value];
    if (is_made_by_operator(graph, info)) {
      return false;
    }
    if (info.kind == ValueKind::result) {
      const BoundRepeat& repeat = *graph.nodes[info.node].repeat;
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
    const BoundNode& node =
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

  // The loss weight of the operator `node`, whose output is at `p`.
  Result<std::optional<LossWeight>> own_weight(const BoundNode& node, const ValuePlace& p) {
    const OpDef& def = op_def(node.op);
    if (def.loss_weight == nullptr || is_total_of_stack(node, p)) {
      return std::optional<LossWeight>();
    }
    std::vector<std::optional<ValueId>> inputs;
    for (const ValueId v : node.inputs) {
      ValuePlace from{v, p.iterations};
      while (!from.iterations.empty() && ++steps_ <= kMostSteps && step(from)) {
      }
      inputs.push_back(from.iterations.empty() ? std::optional(from.value) : std::nullopt);
    }
    MeanContext context(d_, outer_, graph_of(p.iterations), node, std::move(inputs));
    std::optional<LossWeight> own = def.loss_weight(context);
    BOWLINE_TRY(Status(context.status()));
    return context.reads_inside() ? std::nullopt : own;
  }

  // The weight of a mean of means: the sums multiply.
  Result<std::optional<LossWeight>> product(const LossWeight& a, const LossWeight& b) {
    LossWeight out{{}, a.terms * b.terms};
    if (a.sum.valid() && b.sum.valid()) {
      BOWLINE_TRY_ASSIGN(out.sum.index,
                         d_.append(Op::Mul, {a.sum.index, b.sum.index}, no_attributes(), ""));
    } else if (a.sum.valid() || b.sum.valid()) {
      const LossWeight& counted = a.sum.valid() ? a : b;
      const LossWeight& fixed = a.sum.valid() ? b : a;
      BOWLINE_TRY_ASSIGN(out.sum.index, d_.scaled(counted.sum.index, fixed.terms));
    }
    return std::optional(out);
  }

  Differentiator& d_;
  BoundGraph& outer_;
  std::set<ValuePlace> seen_;
  size_t steps_ = 0;
  std::vector<Term> terms_;
  std::set<ValueId> sums_;
};

// True if both values are computed in the same way from the same values.
bool is_same(const BoundGraph& graph, ValueId a, ValueId b) {
  std::vector<std::pair<ValueId, ValueId>> open = {{a, b}};
  std::set<std::pair<ValueId, ValueId>> seen;
  while (!open.empty()) {
    const auto [left, right] = open.back();
    open.pop_back();
    if (left == right || !seen.insert({left, right}).second) {
      continue;
    }
    const BoundValue& l = graph[left];
    const BoundValue& r = graph[right];
    if (l.kind == ValueKind::parameter && r.kind == ValueKind::parameter && l.uses == r.uses &&
        l.shape == r.shape) {
      continue;
    }
    if (l.kind != ValueKind::result || r.kind != ValueKind::result || l.output != r.output) {
      return false;
    }
    const BoundNode& n = graph.nodes[l.node];
    const BoundNode& m = graph.nodes[r.node];
    const bool alike = n.op == m.op && !n.repeat && op_def(n.op).updates[0].output < 0 &&
                       n.inputs.size() == m.inputs.size() &&
                       attributes_text(n.op, n.attributes) == attributes_text(m.op, m.attributes);
    if (!alike) {
      return false;
    }
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      open.push_back({n.inputs[i], m.inputs[i]});
    }
  }
  return true;
}

using Term = WeightFinder::Term;

LossWeight weight_of(const Term& term) { return term.weight.value_or(LossWeight()); }

// The graph that computes only the divisors that depend on the batch.
BoundGraph weights_graph(const BoundGraph& graph, std::span<const Term> terms) {
  BoundGraph out = deep_copy(graph);
  out.outputs.clear();
  out.output_names.clear();
  for (const Term& t : terms) {
    if (weight_of(t).sum.valid()) {
      out.output_names.push_back(format("weight {}", out.outputs.size()));
      out.outputs.push_back(weight_of(t).sum.index);
    }
  }
  prune(out);
  return out;
}

// Multiplies term `number`, the value `value`, by an input of its own.
Result<ValueId> with_factor(Differentiator& d, BoundGraph& graph, ValueId value, size_t number) {
  BoundValue info;
  info.kind = ValueKind::input;
  info.name = factor_name(number);
  ValueId factor = graph.add_value(std::move(info));
  graph.inputs.push_back(factor);
  if (const DType dtype = graph[value].dtype; dtype != DType::f32) {
    BOWLINE_TRY_ASSIGN(factor, d.append(Op::Cast, {factor}, cast_attributes(dtype), ""));
  }
  return d.append(Op::Mul, {value, factor}, no_attributes(), "");
}

// Appends copies of the sums that add the values in `factored`. Adds the copies to `factored`.
Status add_sums(Differentiator& d, const BoundGraph& graph, const std::set<ValueId>& sums,
                std::map<ValueId, ValueId>& factored) {
  std::vector<ValueId> order(sums.begin(), sums.end());
  std::ranges::sort(order, {}, [&](ValueId v) { return graph[v].node; });
  for (const ValueId v : order) {
    const BoundNode node = graph.nodes[graph[v].node];
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& in : inputs) {
      const auto it = factored.find(in);
      in = it == factored.end() ? in : it->second;
    }
    BOWLINE_TRY_ASSIGN(factored[v],
                       d.append(node.op, std::move(inputs), node.attributes, node.name));
  }
  return {};
}

}  // namespace

Result<std::optional<LossWeight>> loss_weight(Differentiator& d, BoundGraph& graph, ValueId loss) {
  return WeightFinder(d, graph).of({loss, {}});
}

std::string factor_name(size_t mean) { return format("factor of mean {}", mean); }

Result<FactoredLoss> factored_loss(const BoundGraph& graph, ValueId loss,
                                   const GradientOptions& options, bool one_shape) {
  BoundGraph g = deep_copy(graph);
  std::map<ForwardNode, Kept> kept;
  Differentiator d(g, options, {}, 1, kept);
  d.find_needed({});
  WeightFinder finder(d, g);
  BOWLINE_TRY(finder.find_terms(loss));
  const auto divide_alike = [&](const Term& a, const Term& b) {
    const LossWeight l = weight_of(a), r = weight_of(b);
    return l.sum.valid() && r.sum.valid()
               ? is_same(g, l.sum.index, r.sum.index)
               : l.sum.valid() == r.sum.valid() && (one_shape || l.terms == r.terms);
  };
  FactoredLoss out;
  std::vector<Term> terms;
  for (const Term& t : finder.terms()) {
    out.has_one_weight = out.has_one_weight && divide_alike(t, finder.terms()[0]);
    const auto other = std::ranges::find(terms, t.value, &Term::value);
    if (other == terms.end()) {
      terms.push_back(t);
      continue;
    }
    BOWLINE_REQUIRE_CODE(divide_alike(t, *other), Code::unsupported,
                         "{} adds means with different divisors, but micro-batches need each mean "
                         "separately. Return the means as separate results of that node and add "
                         "them after it, or train with an accumulation of 1.",
                         describe(g, g[t.value].node));
  }
  if (terms.empty()) {
    return out;
  }
  for (const Term& t : terms) {
    out.means.push_back({weight_of(t).sum.valid(), weight_of(t).terms});
  }
  out.weights = weights_graph(g, terms);
  std::map<ValueId, ValueId> factored;
  for (size_t i = 0; i < terms.size(); ++i) {
    BOWLINE_TRY_ASSIGN(factored[terms[i].value], with_factor(d, g, terms[i].value, i));
  }
  BOWLINE_TRY(add_sums(d, g, finder.sums(), factored));
  out.loss = factored.at(loss);
  g.outputs = {out.loss};
  prune(g);
  out.graph = std::move(g);
  return out;
}

}  // namespace bowline::detail::graph
