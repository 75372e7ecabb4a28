// Convolutions that only run: see graph/fuse.h.
#include <map>
#include <set>

#include "core/packed_conv.h"
#include "graph/fuse.h"
#include "graph/infer.h"

namespace bowline::detail::graph {
namespace {

constexpr uint32_t kNoNode = UINT32_MAX;

// Nodes, each of which alone reads what the one in front of it makes.
struct Chain {
  uint32_t conv = kNoNode;
  uint32_t norm = kNoNode;
  uint32_t sum = kNoNode;    // (optional)
  uint32_t bound = kNoNode;  // (optional)
  ValueId addend = kNoValue;

  uint32_t last() const { return bound != kNoNode ? bound : sum != kNoNode ? sum : norm; }
};

class Convolutions {
 public:
  Convolutions(Graph& graph, const device::OpenDevice& device)
      : graph_(graph), device_(device), readers_(graph.values.size()) {}

  Result<bool> rewrite() {
    note_readers();
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const Chain chain = chain_from(n); chain.conv != kNoNode && device_runs(chain)) {
        parts_.insert({chain.conv, chain.norm, chain.sum, chain.bound});
        results_.insert(graph_.nodes[chain.last()].outputs[0]);
        chains_[chain.last()] = chain;
      }
    }
    if (!chains_.empty()) {
      BOWLINE_TRY(make_nodes());
    }
    return !chains_.empty();
  }

 private:
  void note_readers() {
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId v : graph_.nodes[n].inputs) {
        readers_[v].push_back(n);
      }
    }
    for (const ValueId v : graph_.outputs) {
      readers_[v].push_back(kNoNode);
    }
  }

  // The node that alone reads a value.
  uint32_t reader_of(ValueId v) const { return readers_[v].size() == 1 ? readers_[v][0] : kNoNode; }
  bool is(uint32_t node, Op op) const { return node != kNoNode && graph_.nodes[node].op == op; }
  bool are_plain(const Node& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId v) {
      return graph_[v].dtype == DType::f32 && graph_[v].encoding.is_plain();
    });
  }

  // Without a conv if none begins at this node.
  Chain chain_from(uint32_t n) const {
    const Node& conv = graph_.nodes[n];
    if (conv.op != Op::Conv || !are_plain(conv) || !has_form(conv)) {
      return {};
    }
    Chain chain{.conv = n, .norm = reader_of(conv.outputs[0])};
    if (!is(chain.norm, Op::BatchNorm) || !only_normalises(graph_.nodes[chain.norm], conv)) {
      return {};
    }
    extend(chain);
    return chain;
  }

  // That of FusedConv: two spatial axes, no bias, one group or as many as channels; a weight that can be packed once.
  bool has_form(const Node& conv) const {
    if (conv.inputs.size() != 2 || graph_[conv.inputs[0]].shape.rank() != 4 ||
        graph_[conv.inputs[1]].kind != ValueKind::parameter) {
      return false;
    }
    const Shape& weight = graph_[conv.inputs[1]].shape;
    const int64_t groups = conv.attributes.as<ConvAttributes>().groups();
    return groups == 1 || (weight[1] == 1 && weight[0] == groups);
  }

  bool only_normalises(const Node& norm, const Node& conv) const {
    return norm.inputs[0] == conv.outputs[0] && are_plain(norm) &&
           std::ranges::all_of(std::span(norm.outputs).subspan(1),
                               [&](ValueId v) { return readers_[v].empty(); });
  }

  void extend(Chain& chain) const {
    const ValueId normed = graph_.nodes[chain.norm].outputs[0];
    uint32_t next = reader_of(normed);
    if (is(next, Op::Add) && nothing_is_written(chain.norm, next)) {
      const Node& sum = graph_.nodes[next];
      const ValueId other = sum.inputs[sum.inputs[0] == normed ? 1 : 0];
      if (results_.contains(other) && graph_[other].shape == graph_[normed].shape) {
        chain.sum = next;
        chain.addend = other;
        next = reader_of(sum.outputs[0]);
      }
    }
    if ((is(next, Op::Clip) || is(next, Op::Relu)) && nothing_is_written(chain.norm, next)) {
      chain.bound = next;
    }
  }

  // What is read by a node is the same behind another one. A BatchNorm leaves its statistics as they are.
  bool nothing_is_written(uint32_t from, uint32_t to) const {
    return std::none_of(graph_.nodes.begin() + from, graph_.nodes.begin() + to, [](const Node& n) {
      return n.op != Op::BatchNorm && (n.repeat || op_def(n.op).updates[0].output >= 0);
    });
  }

  bool device_runs(const Chain& chain) const {
    const auto operand = [](const Shape& shape) {
      return device::Operand{.dtype = DType::f32, .encoding = {}, .shape = shape};
    };
    const auto last = [&](ValueId v) { return operand(channels_last(graph_[v].shape)); };
    const Node& conv = graph_.nodes[chain.conv];
    const Node& norm = graph_.nodes[chain.norm];
    const Shape& weight = graph_[conv.inputs[1]].shape;
    const device::Operand packed = operand(packed_shape(weight)), y = last(conv.outputs[0]);
    std::vector<device::Operand> inputs = {last(conv.inputs[0]), packed};
    for (size_t i = 1; i < norm.inputs.size(); ++i) {
      inputs.push_back(operand(graph_[norm.inputs[i]].shape));
    }
    const device::Operand from = operand(weight);
    const Attributes none = Attributes::of(NoAttributesT{}), attributes = attributes_of(chain);
    const auto runs = [&](Op op, const Attributes& a, std::span<const device::Operand> in,
                          const device::Operand& out) {
      return device_.query({op, DType::f32, a, in, {&out, 1}}).reason.empty();
    };
    return runs(Op::FusedConv, attributes, inputs, y) &&
           runs(Op::PackConvWeight, none, {&from, 1}, packed);
  }

  Attributes attributes_of(const Chain& chain) const {
    const auto& conv = node(chain.conv).attributes.as<ConvAttributes>();
    FusedConvAttributesT t;
    t.strides.assign(conv.strides()->begin(), conv.strides()->end());
    t.pads.assign(conv.pads()->begin(), conv.pads()->end());
    t.dilations.assign(conv.dilations()->begin(), conv.dilations()->end());
    t.groups = conv.groups();
    t.eps = node(chain.norm).attributes.as<BatchNormAttributes>().eps();
    if (chain.bound != kNoNode && node(chain.bound).op == Op::Relu) {
      t.min = 0;
    } else if (chain.bound != kNoNode) {
      t.min = node(chain.bound).attributes.as<ClipAttributes>().min();
      t.max = node(chain.bound).attributes.as<ClipAttributes>().max();
    }
    return Attributes::of(t);
  }

  // A node as it was.
  const Node& node(uint32_t n) const { return old_.empty() ? graph_.nodes[n] : old_[n]; }

  Status make_nodes() {
    std::swap(old_, graph_.nodes);
    for (uint32_t n = 0; n < old_.size(); ++n) {
      if (const auto chain = chains_.find(n); chain != chains_.end()) {
        BOWLINE_TRY(make(chain->second));
      } else if (!parts_.contains(n)) {
        for (const ValueId v : old_[n].inputs) {
          BOWLINE_TRY(want_first(v));
        }
        graph_.nodes.push_back(old_[n]);
      }
    }
    for (const ValueId v : graph_.outputs) {
      BOWLINE_TRY(want_first(v));
    }
    renumber(graph_);
    return {};
  }

  Status make(const Chain& chain) {
    const Node& conv = node(chain.conv);
    const Node& norm = node(chain.norm);
    BOWLINE_ASSIGN(const ValueId x, want_last(conv.inputs[0]));
    BOWLINE_ASSIGN(const ValueId weight, want_packed(conv.inputs[1]));
    std::vector<ValueId> inputs = {x, weight};
    inputs.insert(inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
    if (chain.addend != kNoValue) {
      inputs.push_back(last_.at(chain.addend));
    }
    const ValueId y = node(chain.last()).outputs[0];
    BOWLINE_ASSIGN(last_[y],
                   add(Op::FusedConv, attributes_of(chain), std::move(inputs), conv.name));
    only_last_.insert(y);
    return {};
  }

  // Value v, if it is there with its channels last alone.
  Status want_first(ValueId v) {
    return only_last_.erase(v) == 0
               ? Status()
               : add(Op::Transpose, transposition({0, 3, 1, 2}), {last_.at(v)}, {}, v).status();
  }

  Result<ValueId> want_last(ValueId v) {
    if (!last_.contains(v)) {
      BOWLINE_ASSIGN(last_[v], add(Op::Transpose, transposition({0, 2, 3, 1}), {v}, {}));
    }
    return last_.at(v);
  }

  Result<ValueId> want_packed(ValueId weight) {
    if (!packed_.contains(weight)) {
      BOWLINE_ASSIGN(packed_[weight], add(Op::PackConvWeight, Attributes::of(NoAttributesT{}),
                                          {weight}, graph_[weight].name));
    }
    return packed_.at(weight);
  }

  static Attributes transposition(std::vector<int32_t> permutation) {
    TransposeAttributesT t;
    t.permutation = std::move(permutation);
    return Attributes::of(t);
  }

  // A node that makes a new value, or `out`.
  Result<ValueId> add(Op op, Attributes attributes, std::vector<ValueId> inputs, std::string name,
                      ValueId out = kNoValue) {
    Node made;
    made.op = op;
    made.attributes = std::move(attributes);
    made.inputs = std::move(inputs);
    made.name = std::move(name);
    made.outputs = {out == kNoValue ? graph_.add_value({}) : out};
    graph_.nodes.push_back(std::move(made));
    BOWLINE_TRY(infer_node(graph_, graph_.nodes.size() - 1, {}));
    return graph_.nodes.back().outputs[0];
  }

  Graph& graph_;
  const device::OpenDevice& device_;
  std::vector<std::vector<uint32_t>> readers_;  // nodes by value, kNoNode of an output
  std::vector<Node> old_;                       // while they are made anew
  std::map<uint32_t, Chain> chains_;            // by their last nodes
  std::set<uint32_t> parts_;
  std::set<ValueId> results_;
  std::map<ValueId, ValueId> last_;  // values with their channels last
  std::set<ValueId> only_last_;
  std::map<ValueId, ValueId> packed_;
};

}  // namespace

Result<bool> fuse_convolutions(Graph& graph, const device::OpenDevice& device) {
  return Convolutions(graph, device).rewrite();
}

}  // namespace bowline::detail::graph
