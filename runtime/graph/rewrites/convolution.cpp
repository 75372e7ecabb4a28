// Fusion of convolutions for inference: see graph/fuse.h.
//
//! makes FusedConv PackConvWeight Transpose Reshape Add Neg BroadcastTo Fill ReduceMean of Conv
#include <array>
#include <map>
#include <set>

#include "core/packed_conv.h"
#include "core/strides.h"
#include "graph/fuse.h"
#include "graph/infer.h"
#include "ops/build.h"

namespace bowline::detail::graph {
namespace {

constexpr uint32_t kNoNode = UINT32_MAX;

// A chain of nodes. Each node is the only reader of the node before it. All nodes but the first are
// optional.
struct Chain {
  uint32_t conv = kNoNode;
  uint32_t norm = kNoNode;
  uint32_t scale = kNoNode;  // Mul and Add of a number for each channel, or of one: as a norm that
                             // was decomposed
  uint32_t shift = kNoNode;
  uint32_t sum = kNoNode;
  uint32_t bound = kNoNode;
  ValueId scaled_by = kNoValue;
  ValueId shifted_by = kNoValue;
  ValueId addend = kNoValue;

  std::array<uint32_t, 6> nodes() const { return {conv, norm, scale, shift, sum, bound}; }
  uint32_t last() const {
    uint32_t last = conv;
    for (const uint32_t node : nodes()) {
      last = node != kNoNode ? node : last;
    }
    return last;
  }
  bool normalises() const { return norm != kNoNode || scale != kNoNode; }
};

// True if the operator is elementwise, so the order of the channels does not matter.
bool is_elementwise(Op op) {
  constexpr std::array kOps = {Op::Add,  Op::Clip, Op::Div,      Op::HardSwish, Op::LeakyRelu,
                               Op::Max,  Op::Min,  Op::Mul,      Op::Relu,      Op::Sigmoid,
                               Op::Silu, Op::Sub,  Op::Softplus, Op::Tanh};
  return std::ranges::find(kOps, op) != kOps.end();
}

class Convolutions {
 public:
  Convolutions(BoundGraph& graph, const device::OpenDevice& device)
      : graph_(graph), device_(device), readers_(graph.values.size()) {}

  Result<bool> rewrite() {
    note_readers();
    for (uint32_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const Chain chain = chain_from(n); chain.conv != kNoNode && device_runs(chain)) {
        for (const uint32_t part : chain.nodes()) {
          parts_.insert(part);
        }
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

  // The only reader of a value, or kNoNode.
  uint32_t reader_of(ValueId v) const { return readers_[v].size() == 1 ? readers_[v][0] : kNoNode; }
  bool is(uint32_t node, Op op) const { return node != kNoNode && graph_.nodes[node].op == op; }
  bool are_plain(const BoundNode& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId v) {
      return graph_[v].dtype == DType::f32 && graph_[v].encoding.is_plain() &&
             graph_[v].counted.empty();
    });
  }

  // The chain that begins at this node. It has no conv if there is none.
  Chain chain_from(uint32_t n) const {
    const BoundNode& conv = graph_.nodes[n];
    if (conv.op != Op::Conv || !are_plain(conv) || !has_form(conv)) {
      return {};
    }
    Chain chain{.conv = n};
    const uint32_t norm = reader_of(conv.outputs[0]);
    if (conv.inputs.size() == 2 && is(norm, Op::BatchNorm) &&
        only_normalises(graph_.nodes[norm], conv)) {
      chain.norm = norm;
    }
    extend(chain);
    return chain;
  }

  // True if FusedConv supports the convolution: one or two spatial axes, one group or one per
  // channel, and a weight that can be packed once.
  bool has_form(const BoundNode& conv) const {
    if (graph_[conv.inputs[0]].shape.rank() > 4 ||
        graph_[conv.inputs[1]].kind != ValueKind::parameter) {
      return false;
    }
    const Shape& weight = graph_[conv.inputs[1]].shape;
    const int64_t groups = conv.attributes.as<ConvAttributes>().groups();
    return groups == 1 || (weight[1] == 1 && weight[0] == groups);
  }

  bool only_normalises(const BoundNode& norm, const BoundNode& conv) const {
    return norm.inputs[0] == conv.outputs[0] && are_plain(norm) &&
           std::ranges::all_of(std::span(norm.outputs).subspan(1),
                               [&](ValueId v) { return readers_[v].empty(); });
  }

  void extend(Chain& chain) const {
    if (chain.norm == kNoNode) {
      extend_by(Op::Mul, chain, chain.scale, chain.scaled_by);
      extend_by(Op::Add, chain, chain.shift, chain.shifted_by);
    }
    const ValueId normed = graph_.nodes[chain.last()].outputs[0];
    uint32_t next = reader_of(normed);
    if (is(next, Op::Add) && nothing_is_written(chain.conv, next)) {
      const BoundNode& sum = graph_.nodes[next];
      const ValueId other = sum.inputs[sum.inputs[0] == normed ? 1 : 0];
      if (results_.contains(other) && graph_[other].shape == graph_[normed].shape) {
        chain.sum = next;
        chain.addend = other;
        next = reader_of(sum.outputs[0]);
      }
    }
    if ((is(next, Op::Clip) || is(next, Op::Relu)) && nothing_is_written(chain.conv, next)) {
      chain.bound = next;
    }
  }

  // Extends the chain by a node of `op` with an operand per channel, or a scalar operand.
  void extend_by(Op op, Chain& chain, uint32_t& node, ValueId& by) const {
    const ValueId x = graph_.nodes[chain.last()].outputs[0];
    const uint32_t next = reader_of(x);
    if (!is(next, op) || !are_plain(graph_.nodes[next]) || !nothing_is_written(chain.conv, next)) {
      return;
    }
    const BoundNode& found = graph_.nodes[next];
    const ValueId other = found.inputs[found.inputs[0] == x ? 1 : 0];
    const Shape& shape = graph_[x].shape;
    const Shape& y = graph_[found.outputs[0]].shape;
    if (y == shape && (graph_[other].shape.elements() == 1 || is_of_channels(other, shape))) {
      node = next;
      by = other;
    }
  }
  // True if the shape is [channels, 1...] or [1, channels, 1...].
  bool is_of_channels(ValueId v, const Shape& x) const {
    const Shape& shape = graph_[v].shape;
    const int axis = shape.rank() - (x.rank() - 1);
    return axis >= 0 && shape[axis] == x[1] && shape.elements() == x[1];
  }

  // True if no node between them writes a storage, so that a node can be moved. A BatchNorm does
  // not change its statistics here.
  bool nothing_is_written(uint32_t from, uint32_t to) const {
    const std::vector<BoundNode>& nodes = old_.empty() ? graph_.nodes : old_;
    return std::none_of(nodes.begin() + from, nodes.begin() + to, [](const BoundNode& n) {
      return n.op != Op::BatchNorm && (n.repeat || op_def(n.op).updates[0].output >= 0);
    });
  }

  bool device_runs(const Chain& chain) const {
    const auto operand = [](const Shape& shape) {
      return device::Operand{.dtype = DType::f32, .encoding = {}, .shape = shape};
    };
    const auto last = [&](ValueId v) { return operand(channels_last(graph_[v].shape)); };
    const BoundNode& conv = graph_.nodes[chain.conv];
    const Shape& weight = graph_[conv.inputs[1]].shape;
    const device::Operand packed = operand(packed_shape(weight)), y = last(conv.outputs[0]);
    std::vector<device::Operand> inputs = {last(conv.inputs[0]), packed};
    // The inputs of FusedConv: scale, bias, mean and variance of a norm, or a bias.
    inputs.resize(chain.normalises() ? 6 : 3, operand({weight[0]}));
    const device::Operand from = operand(weight);
    const Attributes none = no_attributes(), attributes = attributes_of(chain);
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
    if (chain.norm != kNoNode) {
      t.eps = node(chain.norm).attributes.as<BatchNormAttributes>().eps();
    } else if (chain.scale != kNoNode) {
      t.eps = 1e-12f;  // negligible next to a variance of 1
    }
    if (chain.bound != kNoNode && node(chain.bound).op == Op::Relu) {
      t.min = 0;
    } else if (chain.bound != kNoNode) {
      t.min = node(chain.bound).attributes.as<ClipAttributes>().min();
      t.max = node(chain.bound).attributes.as<ClipAttributes>().max();
    }
    return Attributes::of(t);
  }

  // A node before the rewrite.
  const BoundNode& node(uint32_t n) const { return old_.empty() ? graph_.nodes[n] : old_[n]; }

  Status make_nodes() {
    std::swap(old_, graph_.nodes);
    for (uint32_t n = 0; n < old_.size(); ++n) {
      now_ = n;
      if (const auto chain = chains_.find(n); chain != chains_.end()) {
        BOWLINE_TRY(make(chain->second));
      } else if (!parts_.contains(n)) {
        BOWLINE_TRY(keeps_last(old_[n]) ? make_last(old_[n]) : keep(old_[n]));
      }
    }
    for (const ValueId v : graph_.outputs) {
      BOWLINE_TRY(want_first(v));
    }
    prune(graph_);
    return {};
  }

  Status make(const Chain& chain) {
    const BoundNode& conv = node(chain.conv);
    BOWLINE_TRY_ASSIGN(const ValueId x, want_last(conv.inputs[0]));
    BOWLINE_TRY_ASSIGN(const ValueId weight, want_packed(conv.inputs[1]));
    std::vector<ValueId> inputs = {x, weight};
    BOWLINE_TRY_ASSIGN(const std::vector<ValueId> of_channels, want_channels(chain));
    inputs.insert(inputs.end(), of_channels.begin(), of_channels.end());
    if (chain.addend != kNoValue) {
      inputs.push_back(last_.at(chain.addend));
    }
    const ValueId y = node(chain.last()).outputs[0];
    BOWLINE_TRY_ASSIGN(last_[y],
                       add(Op::FusedConv, attributes_of(chain), std::move(inputs), conv.name));
    only_last_.insert(y);
    made_last_.insert(y);
    return {};
  }

  // Scale, bias, mean and variance of a norm, or a bias.
  Result<std::vector<ValueId>> want_channels(const Chain& chain) {
    if (chain.norm != kNoNode) {
      const BoundNode& norm = node(chain.norm);
      return std::vector<ValueId>{norm.inputs.begin() + 1, norm.inputs.end()};
    }
    const BoundNode& conv = node(chain.conv);
    const int64_t channels = graph_[conv.inputs[1]].shape[0];
    const Attributes none = no_attributes();
    ValueId bias = conv.inputs.size() > 2 ? conv.inputs[2] : kNoValue;
    ValueId shift = kNoValue;
    if (chain.shift != kNoNode) {
      BOWLINE_TRY_ASSIGN(shift, want_each(chain.shifted_by, channels));
    }
    if (chain.scale == kNoNode) {
      if (bias != kNoValue && shift != kNoValue) {
        BOWLINE_TRY_ASSIGN(bias, add(Op::Add, none, {bias, shift}, conv.name));
      } else if (bias == kNoValue && shift != kNoValue) {
        bias = shift;
      } else if (bias == kNoValue) {
        BOWLINE_TRY_ASSIGN(bias, want_filled(0, channels));
      }
      return std::vector<ValueId>{bias};
    }
    BOWLINE_TRY_ASSIGN(const ValueId scale, want_each(chain.scaled_by, channels));
    BOWLINE_TRY_ASSIGN(const ValueId zero, want_filled(0, channels));
    BOWLINE_TRY_ASSIGN(const ValueId one, want_filled(1, channels));
    ValueId mean = zero;
    if (bias != kNoValue) {
      BOWLINE_TRY_ASSIGN(mean, add(Op::Neg, none, {bias}, conv.name));
    }
    return std::vector<ValueId>{scale, shift == kNoValue ? zero : shift, mean, one};
  }

  // Value v, a scalar or one value per channel, as [channels].
  Result<ValueId> want_each(ValueId v, int64_t channels) {
    BOWLINE_TRY(want_first(v));
    if (graph_[v].shape.elements() == channels) {
      return add_reshape(v, {channels});
    }
    BOWLINE_TRY_ASSIGN(const ValueId one, add_reshape(v, {1}));
    return add(Op::BroadcastTo, dims_attributes({channels}), {one}, {});
  }

  Result<ValueId> want_filled(float value, int64_t channels) {
    const auto [at, fresh] = filled_.try_emplace({value, channels}, kNoValue);
    if (fresh) {
      BOWLINE_TRY_ASSIGN(at->second,
                         add(Op::Fill, fill_attributes(value, {channels}, DType::f32), {}, {}));
    }
    return at->second;
  }

  Status keep(const BoundNode& node) {
    if (node.op == Op::Transpose && only_last_.contains(node.inputs[0])) {
      const std::vector<int32_t> first = first_axes(graph_[node.inputs[0]].shape);
      std::vector<int32_t> axes = axes_of(node);
      std::ranges::transform(axes, axes.begin(), [&](int32_t a) { return first[to_index(a)]; });
      return turn(last_.at(node.inputs[0]), std::move(axes), node.name, node.outputs[0]).status();
    }
    for (const ValueId v : node.inputs) {
      BOWLINE_TRY(want_first(v));
    }
    graph_.nodes.push_back(node);
    return {};
  }

  // True if a node can run with channels last: an elementwise node, a concatenation of channels, or
  // a pool.
  bool keeps_last(const BoundNode& node) const {
    const Shape& y = graph_[node.outputs[0]].shape;
    const auto is_one = [&](ValueId v) { return graph_[v].shape.elements() == 1; };
    const auto fits = [&](ValueId v) {
      return graph_[v].shape.rank() == y.rank() || (is_one(v) && graph_[v].shape.rank() < y.rank());
    };
    const ValueId largest =
        std::ranges::max(node.inputs, {}, [&](ValueId v) { return graph_[v].shape.elements(); });
    const bool stays =
        is_elementwise(node.op) || is_pool(node) || is_reduced(node) ||
        (node.op == Op::Concat &&
         positive_axis(node.attributes.as<ConcatAttributes>().axis(), y.rank()) == 1);
    return ((stays && std::ranges::all_of(node.inputs, fits)) || drops_ones(node)) &&
           are_plain(node) && node.outputs.size() == 1 && made_last_.contains(largest);
  }
  // A pool over two spatial axes. With channels last, they are the first two of three axes of one
  // channel.
  bool is_pool(const BoundNode& node) const {
    return (node.op == Op::MaxPool || node.op == Op::AveragePool) &&
           graph_[node.outputs[0]].shape.rank() == 4;
  }

  // A reduction over the spatial axes of one sample: with channels last, it reduces columns.
  bool is_reduced(const BoundNode& node) const {
    const Shape& x = graph_[node.inputs[0]].shape;
    if ((node.op == Op::ReduceMean || node.op == Op::ReduceMax) && x.rank() > 2) {
      const auto& t = node.attributes.as<ReduceAttributes>();
      const Axes axes = named_axes({t.axes()->data(), t.axes()->size()}, x.rank());
      const auto spatial = std::span(axes).subspan(2, static_cast<size_t>(x.rank() - 2));
      return x[0] == 1 && t.keep_dims() && !axes[0] && !axes[1] &&
             std::ranges::all_of(spatial, std::identity());
    }
    return node.op == Op::GlobalAveragePool && x[0] == 1;
  }

  // A Reshape that drops or adds a spatial axis of size 1.
  bool drops_ones(const BoundNode& node) const {
    const Shape& x = graph_[node.inputs[0]].shape;
    const Shape& y = graph_[node.outputs[0]].shape;
    return node.op == Op::Reshape && x.rank() + y.rank() == 3 + 4 && x[0] == y[0] && x[1] == y[1] &&
           (x.rank() == 4 ? x[2] == 1 || x[3] == 1 : y[2] == 1 || y[3] == 1);
  }

  Status make_last(const BoundNode& node) {
    std::vector<ValueId> inputs;
    for (const ValueId v : node.inputs) {
      if (graph_[v].shape.elements() == 1) {
        BOWLINE_TRY(want_first(v));
        inputs.push_back(v);
      } else {
        BOWLINE_TRY_ASSIGN(inputs.emplace_back(), want_last(v));
      }
    }
    const ValueId y = node.outputs[0];
    if (is_pool(node)) {
      BOWLINE_TRY_ASSIGN(last_[y], pool_last(node, inputs[0]));
    } else if (drops_ones(node)) {
      BOWLINE_TRY_ASSIGN(last_[y], add_reshape(inputs[0], channels_last(graph_[y].shape)));
    } else if (is_reduced(node)) {
      ReduceAttributesT t;
      for (int a = 1; a < graph_[y].shape.rank() - 1; ++a) {
        t.axes.push_back(a);
      }
      t.keep_dims = true;
      BOWLINE_TRY_ASSIGN(last_[y], add(node.op == Op::ReduceMax ? node.op : Op::ReduceMean,
                                       Attributes::of(t), std::move(inputs), node.name));
    } else if (node.op == Op::Concat) {
      ConcatAttributesT t;
      t.axis = graph_[y].shape.rank() - 1;
      BOWLINE_TRY_ASSIGN(last_[y], add(node.op, Attributes::of(t), std::move(inputs), node.name));
    } else {
      BOWLINE_TRY_ASSIGN(last_[y], add(node.op, node.attributes, std::move(inputs), node.name));
    }
    only_last_.insert(y);
    made_last_.insert(y);
    return {};
  }

  Result<ValueId> pool_last(const BoundNode& node, ValueId x) {
    const auto& pool = node.attributes.as<PoolAttributes>();
    PoolAttributesT t;
    const auto sizes = [](const flatbuffers::Vector<int64_t>& given, int64_t otherwise) {
      return given.size() == 0 ? std::vector{otherwise, otherwise, otherwise}
                               : std::vector{given[0], given[1], otherwise};
    };
    t.window = sizes(*pool.window(), 1);
    t.strides = sizes(*pool.strides(), 1);
    t.dilations = sizes(*pool.dilations(), 1);
    if (const auto& pads = *pool.pads(); pads.size() != 0) {
      t.pads = {pads[0], pads[1], 0, pads[2], pads[3], 0};
    }
    t.ceil = pool.ceil();
    t.count_pads = pool.count_pads();
    const Shape& in = graph_[x].shape;
    BOWLINE_TRY_ASSIGN(const ValueId one, add_reshape(x, {in[0], 1, in[1], in[2], in[3]}));
    BOWLINE_TRY_ASSIGN(const ValueId pooled, add(node.op, Attributes::of(t), {one}, node.name));
    const Shape& out = graph_[pooled].shape;
    return add_reshape(pooled, {out[0], out[2], out[3], out[4]});
  }

  // Makes value v with channels first, if it exists only with channels last.
  Status want_first(ValueId v) {
    if (only_last_.erase(v) == 0) {
      return {};
    }
    return turn(last_.at(v), first_axes(graph_[v].shape), {}, v).status();
  }

  Result<ValueId> want_last(ValueId v) {
    if (!last_.contains(v)) {
      std::vector<int32_t> axes =
          graph_[v].shape.rank() == 3 ? std::vector{0, 2, 1} : std::vector{0, 2, 3, 1};
      ValueId from = v;
      if (const BoundNode* const turned = transpose_of(v)) {
        const std::vector<int32_t> before = axes_of(*turned);
        std::ranges::transform(axes, axes.begin(), [&](int32_t a) { return before[to_index(a)]; });
        from = turned->inputs[0];
        BOWLINE_TRY(want_first(from));
      }
      BOWLINE_TRY_ASSIGN(last_[v], turn(from, std::move(axes), {}));
    }
    return last_.at(v);
  }

  // The Transpose that made v, if its input still has the same value.
  const BoundNode* transpose_of(ValueId v) const {
    const uint32_t n = graph_[v].node;
    const bool is_one = n < now_ && old_[n].op == Op::Transpose && old_[n].outputs[0] == v;
    return is_one && nothing_is_written(n, now_) ? &old_[n] : nullptr;
  }

  static size_t to_index(int32_t axis) { return static_cast<size_t>(axis); }
  static std::vector<int32_t> axes_of(const BoundNode& transpose) {
    const auto& axes = *transpose.attributes.as<TransposeAttributes>().permutation();
    return {axes.begin(), axes.end()};
  }
  // The axes of a shape with channels last, in channels-first order.
  static std::vector<int32_t> first_axes(const Shape& shape) {
    return shape.rank() == 3 ? std::vector{0, 2, 1} : std::vector{0, 3, 1, 2};
  }

  // Permutes the axes of x. Copies only if elements change places.
  Result<ValueId> turn(ValueId x, std::vector<int32_t> axes, const std::string& name,
                       ValueId out = kNoValue) {
    Shape shape;
    bool stay = true;
    int32_t latest = 0;
    for (const int32_t axis : axes) {
      shape.push_back(graph_[x].shape[axis]);
      if (shape.back() != 1) {
        stay = stay && axis >= latest;
        latest = axis;
      }
    }
    if (stay) {
      return add_reshape(x, shape, out);
    }
    TransposeAttributesT t;
    t.permutation = std::move(axes);
    return add(Op::Transpose, Attributes::of(t), {x}, name, out);
  }

  Result<ValueId> add_reshape(ValueId x, const Shape& shape, ValueId out = kNoValue) {
    return add(Op::Reshape, reshape_attributes(shape), {x}, {}, out);
  }

  Result<ValueId> want_packed(ValueId weight) {
    if (!packed_.contains(weight)) {
      BOWLINE_TRY_ASSIGN(packed_[weight],
                         add(Op::PackConvWeight, no_attributes(), {weight}, graph_[weight].name));
    }
    return packed_.at(weight);
  }

  // Adds a node whose output is a new value, or `out`.
  Result<ValueId> add(Op op, Attributes attributes, std::vector<ValueId> inputs, std::string name,
                      ValueId out = kNoValue) {
    out = out == kNoValue ? graph_.add_value({}) : out;
    graph_.nodes.push_back(BoundGraph::make_node(op, std::move(attributes), std::move(inputs),
                                                 {out}, std::move(name)));
    BOWLINE_TRY(infer_node(graph_, graph_.nodes.size() - 1, {}));
    return out;
  }

  BoundGraph& graph_;
  const device::OpenDevice& device_;
  std::vector<std::vector<uint32_t>> readers_;  // nodes by value; kNoNode for an output
  std::vector<BoundNode> old_;                  // during the rewrite: the old nodes
  uint32_t now_ = 0;                            // during the rewrite: the current old node
  std::map<uint32_t, Chain> chains_;            // by their last nodes
  std::set<uint32_t> parts_;
  std::set<ValueId> results_;
  std::map<ValueId, ValueId> last_;  // values with their channels last
  std::set<ValueId> only_last_;      // ... and not with channels first
  std::set<ValueId> made_last_;      // ... that were made with channels last
  std::map<ValueId, ValueId> packed_;
  std::map<std::pair<float, int64_t>, ValueId> filled_;  // by value and channels
};

}  // namespace

Result<bool> fuse_convolutions(BoundGraph& graph, const device::OpenDevice& device) {
  if (!has_op(Op::FusedConv)) {
    return false;
  }
  return Convolutions(graph, device).rewrite();
}

}  // namespace bowline::detail::graph
