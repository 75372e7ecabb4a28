#include "graph/counted.h"

#include <map>
#include <tuple>

namespace bowline::detail::graph {
namespace {

// A request of a rule: fill input `input` with `fill` after the current size of a dynamic axis.
struct Mask {
  uint32_t input;
  int axis;
  float fill;
};

// Applies the rule of one node and collects the masks that the rule requests.
class NodeCounts : public CountedContext {
 public:
  NodeCounts(BoundGraph& graph, BoundNode& node, std::span<const CountedDim> dims)
      : CountedContext(node.attributes),
        graph_(graph),
        node_(node),
        dims_(dims),
        asked_(node.counted_sizes.size()) {}

  int inputs() const override { return static_cast<int>(node_.inputs.size()); }
  const Shape& in(int i) const override { return value(i).shape; }
  const Shape& out(int o) const override {
    return graph_[node_.outputs[static_cast<size_t>(o)]].shape;
  }
  int dim(int i, int axis) const override {
    const std::vector<int>& counted = value(i).counted;
    return counted.empty() ? kNone : counted[static_cast<size_t>(axis)];
  }
  int attribute_dim(std::string_view attribute, uint32_t index) override {
    for (size_t i = 0; i < node_.counted_sizes.size(); ++i) {
      const AttributeDim& size = node_.counted_sizes[i];
      if (size.attribute == attribute && size.index == index) {
        asked_[i] = true;
        return static_cast<int>(std::ranges::find(dims_, size.dim, &CountedDim::name) -
                                dims_.begin());
      }
    }
    return kNone;
  }
  void count(int o, int axis, int dim) override {
    BoundValue& value = graph_[node_.outputs[static_cast<size_t>(o)]];
    if (dim != kNone && value.counted.empty()) {
      value.counted.assign(static_cast<size_t>(value.shape.rank()), kNone);
    }
    if (!value.counted.empty()) {
      value.counted[static_cast<size_t>(axis)] = dim;
    }
  }
  void mask(int i, int axis, double fill) override {
    if (dim(i, axis) != kNone) {
      masks_.push_back({static_cast<uint32_t>(i), axis, static_cast<float>(fill)});
    }
  }
  void read_count(int i, int axis) override {
    if (dim(i, axis) != kNone) {
      node_.read_counts.push_back({static_cast<uint32_t>(i), axis, dim(i, axis)});
    }
  }
  Status refuse(int i, int axis, std::string_view why) const override {
    return Status(Code::unsupported,
                  format("Axis {} of input {} is the dynamic dimension \"{}\", but {}.", axis, i,
                         dims_[static_cast<size_t>(dim(i, axis))].name, why));
  }

  Status run(const OpDef& def) {
    for (int i = 0; i < inputs() && def.counted == nullptr; ++i) {
      for (int a = 0; a < in(i).rank(); ++a) {
        if (dim(i, a) != kNone) {
          return refuse(i, a, format("{} has no rule for dynamic axes", def.name));
        }
      }
    }
    if (def.counted != nullptr) {
      BOWLINE_TRY(def.counted(*this));
    }
    for (size_t i = 0; i < asked_.size(); ++i) {
      const AttributeDim& size = node_.counted_sizes[i];
      BOWLINE_REQUIRE_CODE(
          asked_[i], Code::unsupported,
          "Its attribute {} is the dynamic dimension \"{}\", for which {} has no rule.",
          size.attribute, size.dim, def.name);
    }
    return {};
  }
  std::span<const Mask> masks() const { return masks_; }

 private:
  const BoundValue& value(int i) const { return graph_[node_.inputs[static_cast<size_t>(i)]]; }

  BoundGraph& graph_;
  BoundNode& node_;
  std::span<const CountedDim> dims_;
  std::vector<bool> asked_;
  std::vector<Mask> masks_;
};

// True if the node has a dynamic axis. A Repeat also counts if only its body uses a dynamic
// dimension.
bool is_counted(const BoundGraph& graph, const BoundNode& node) {
  return !node.counted_sizes.empty() ||
         std::ranges::any_of(node.inputs, [&](ValueId v) { return !graph[v].counted.empty(); }) ||
         (node.repeat && std::ranges::any_of(node.repeat->body->nodes, [&](const BoundNode& inner) {
            return is_counted(*node.repeat->body, inner);
          }));
}

// Processes one graph whose inputs are marked. `zero_tails`: its inputs are zero after the current
// size of their dynamic axes.
class Counting {
 public:
  Counting(BoundGraph& graph, std::span<const CountedDim> dims, bool zero_tails)
      : graph_(graph), dims_(dims), zero_tails_(zero_tails) {}

  Status run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      BoundNode node = graph_.nodes[n];
      if (is_counted(graph_, node)) {
        BOWLINE_TRY((node.repeat ? count_repeat(node) : count_node(node))
                        .at(format("While checking the dynamic axes of {}.", describe(graph_, n))));
      }
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    renumber(graph_);
    return {};
  }

 private:
  Status count_node(BoundNode& node) {
    NodeCounts counts(graph_, node, dims_);
    BOWLINE_TRY(counts.run(op_def(node.op)));
    for (const Mask& mask : counts.masks()) {
      ValueId& input = node.inputs[mask.input];
      BOWLINE_TRY_ASSIGN(input, masked(input, mask, node.name));
    }
    return {};
  }

  Status count_repeat(BoundNode& node) {
    BoundGraph& body = *node.repeat->body;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      body[body.inputs[i]].counted = graph_[node.inputs[i]].counted;
    }
    BOWLINE_TRY(Counting(body, dims_, false).run());
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const std::vector<int>& enters = body[body.inputs[o]].counted;
      const std::vector<int>& leaves = body[body.outputs[o]].counted;
      BOWLINE_REQUIRE_CODE(
          enters == leaves, Code::unsupported,
          "Carried value {} enters and leaves the Repeat with different dynamic axes.", o);
      graph_[node.outputs[o]].counted = leaves;
    }
    return {};
  }

  // The value with a masked tail. Requests with equal arguments share one node.
  Result<ValueId> masked(ValueId v, const Mask& mask, const std::string& name) {
    if (zero_tails_ && graph_[v].kind == ValueKind::input && mask.fill == 0) {
      return v;
    }
    const auto [known, is_new] = masked_.try_emplace({v, mask.axis, mask.fill}, kNoValue);
    if (!is_new) {
      return known->second;
    }
    MaskTailAttributesT attributes;
    attributes.axis = mask.axis;
    attributes.fill = mask.fill;
    BoundNode node = BoundGraph::make_node(op_with(OpRole::mask_tail), Attributes::of(attributes),
                                           {v}, {}, name.empty() ? "" : name + ".tail");
    node.read_counts = {{0, mask.axis, graph_[v].counted[static_cast<size_t>(mask.axis)]}};
    BoundValue info;
    info.dtype = graph_[v].dtype;
    info.shape = graph_[v].shape;
    info.counted = graph_[v].counted;
    node.outputs = {graph_.add_value(std::move(info))};
    known->second = node.outputs[0];
    nodes_.push_back(std::move(node));
    return known->second;
  }

  BoundGraph& graph_;
  std::span<const CountedDim> dims_;
  bool zero_tails_;
  std::vector<BoundNode> nodes_;
  std::map<std::tuple<ValueId, int, float>, ValueId> masked_;
};

bool names(const BoundGraph& graph, const std::string& dim) {
  const auto of_node = [&](const BoundNode& node) {
    return std::ranges::find(node.counted_sizes, dim, &AttributeDim::dim) !=
               node.counted_sizes.end() ||
           (node.repeat && names(*node.repeat->body, dim));
  };
  return std::ranges::any_of(graph.inputs,
                             [&](ValueId v) {
                               const auto& dims = graph[v].dims;
                               return std::ranges::find(dims, dim, &GraphDim::name) != dims.end();
                             }) ||
         std::ranges::any_of(graph.nodes, of_node);
}

void mark_input(BoundValue& input, std::span<const CountedDim> dims) {
  std::vector<int> counted;
  for (const GraphDim& d : input.dims) {
    const auto at = std::ranges::find(dims, d.name, &CountedDim::name);
    counted.push_back(at == dims.end() ? kNotCounted : static_cast<int>(at - dims.begin()));
  }
  if (std::ranges::any_of(counted, [](int dim) { return dim != kNotCounted; })) {
    input.counted = std::move(counted);
  }
}

}  // namespace

Status count(BoundGraph& graph, const std::vector<NamedDim>& dims, Dims capacities) {
  for (const NamedDim& dim : dims) {
    const auto bound = std::ranges::find(capacities, dim.name, &BoundDim::name);
    if (dim.dynamic && bound != capacities.end() && names(graph, dim.name)) {
      graph.counted.push_back({dim.name, dim.min, bound->value});
    }
  }
  if (graph.counted.empty()) {
    return {};
  }
  for (const ValueId v : graph.inputs) {
    mark_input(graph[v], graph.counted);
  }
  return Counting(graph, graph.counted, true).run();
}

}  // namespace bowline::detail::graph
