// Fusion of CrossEntropy with its gradient, and of both with the Linear before them: see
// graph/fuse.h.
//
//! makes FusedCrossEntropy FusedLinearCrossEntropy of CrossEntropy
#include <array>
#include <utility>

#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

class Losses : public Rewriter {
 public:
  using Rewriter::Rewriter;

  // The fused node takes the place of the gradient, so all readers of the loss must follow it.
  void fuse_at(size_t n) {
    const BoundNode& forward = graph_.nodes[n];
    if (forward.op != Op::CrossEntropy) {
      return;
    }
    const ValueId loss = forward.outputs[0], lse = forward.outputs[1];
    const size_t reader = only_reader(lse);
    if (reader == kNone || graph_.nodes[reader].op != Op::CrossEntropyGrad) {
      return;
    }
    const BoundNode& gradient = graph_.nodes[reader];
    const bool is_of_this = std::ranges::equal(
        std::span(gradient.inputs).first(3), std::array{forward.inputs[0], forward.inputs[1], lse});
    const bool is_read_before =
        std::ranges::any_of(readers_[loss], [&](size_t r) { return r <= reader; });
    if (!is_of_this || is_read_before) {
      return;
    }
    BoundNode fused =
        BoundGraph::make_node(Op::FusedCrossEntropy, forward.attributes,
                              {forward.inputs[0], forward.inputs[1], gradient.inputs[3]},
                              {gradient.outputs[0], loss}, forward.name);
    if (can_run(fused)) {
      graph_.nodes[reader] = std::move(fused);
      is_gone_[n] = 1;
    }
  }
};

// Follows Losses.
class LinearLosses : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const BoundNode& loss = graph_.nodes[n];
    if (loss.op != Op::FusedCrossEntropy) {
      return;
    }
    gone_.clear();
    const size_t linear = maker_of_logits(loss.inputs[0]);
    if (linear == kNone || !find_products(loss.outputs[0], graph_.nodes[linear])) {
      return;
    }
    const auto& of = loss.attributes.as<CrossEntropyAttributes>();
    FusedLinearCrossEntropyAttributesT t;
    t.ignore_index = of.ignore_index();
    t.reduction = of.reduction();
    t.label_smoothing = of.label_smoothing();
    t.frozen = dw_ == kNone;
    std::vector<ValueId> outputs = {graph_.nodes[dx_].outputs[0], loss.outputs[1]};
    if (!t.frozen) {
      outputs.push_back(graph_.nodes[dw_].outputs[0]);
      // The contribution to the gradient of a storage is f32 then.
      const size_t sum = only_reader(outputs[2]);
      if (sum == kNone || op_def(graph_.nodes[sum].op).gradient_rows != GradientRows::added) {
        return;
      }
    }
    const BoundNode& layer = graph_.nodes[linear];
    BoundNode fused = BoundGraph::make_node(
        Op::FusedLinearCrossEntropy, Attributes::of(t),
        {layer.inputs[0], layer.inputs[1], loss.inputs[1], loss.inputs[2]}, outputs, loss.name);
    const DType before = graph_[outputs.back()].dtype;
    if (!t.frozen) {
      graph_.values[outputs[2]].dtype = DType::f32;
    }
    if (!can_run(fused)) {
      graph_.values[outputs.back()].dtype = before;
      return;
    }
    graph_.nodes[n] = std::move(fused);
    for (const size_t node : gone_) {
      is_gone_[node] = 1;
    }
  }

 private:
  bool is_view(size_t n) const { return op_def(graph_.nodes[n].op).is_view; }

  // The Linear without a bias whose result only this value shows, if that is large. Adds the nodes
  // from it on to gone_.
  size_t maker_of_logits(ValueId v) {
    constexpr uint64_t kManyBytes = uint64_t{16} << 20;  // fewer cost little memory and time
    if (static_cast<uint64_t>(shape(v).elements()) * size_of(graph_[v].dtype) < kManyBytes) {
      return kNone;
    }
    for (;;) {
      if (graph_[v].kind != ValueKind::result || only_reader(v) == kNone) {
        return kNone;
      }
      const size_t n = graph_[v].node;
      gone_.push_back(n);
      if (!is_view(n)) {
        const BoundNode& node = graph_.nodes[n];
        return node.op == Op::Linear && node.inputs.size() == 2 ? n : kNone;
      }
      v = graph_.nodes[n].inputs[0];
    }
  }

  // Whether v and its views are read only by the gradients of the Linear: that of its input, and
  // that of its weight, unless the weight is frozen. Sets dx_ and dw_, and adds what reads v to
  // gone_.
  bool find_products(ValueId v, const BoundNode& linear) {
    dx_ = dw_ = kNone;
    std::vector<ValueId> views = {v};
    for (size_t i = 0; i < views.size(); ++i) {
      for (const size_t reader : readers_[views[i]]) {
        if (reader == kOutput) {
          return false;
        }
        const BoundNode& node = graph_.nodes[reader];
        gone_.push_back(reader);
        if (is_view(reader)) {
          views.push_back(node.outputs[0]);
        } else if (is_gradient(node, views[i], false) && node.inputs[1] == linear.inputs[1]) {
          dx_ = dx_ == kNone ? reader : kOutput;
        } else if (is_gradient(node, views[i], true) &&
                   root(node.inputs[1]) == root(linear.inputs[0])) {
          dw_ = dw_ == kNone ? reader : kOutput;
        } else {
          return false;
        }
      }
    }
    return dx_ < kNone && dw_ != kOutput;
  }

  // Whether the node is the product of v, or of its transpose, with another matrix.
  static bool is_gradient(const BoundNode& node, ValueId v, bool of_weight) {
    if (node.op != Op::MatMul || node.inputs[0] != v) {
      return false;
    }
    const auto& t = node.attributes.as<MatMulAttributes>();
    return t.transpose_a() == of_weight && !t.transpose_b();
  }

  // The value of which v is a view.
  ValueId root(ValueId v) const {
    while (graph_[v].kind == ValueKind::result && is_view(graph_[v].node)) {
      v = graph_.nodes[graph_[v].node].inputs[0];
    }
    return v;
  }

  std::vector<size_t> gone_;
  size_t dx_ = kNone, dw_ = kNone;
};

}  // namespace

size_t fuse_losses(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  if (!has_op(Op::FusedCrossEntropy)) {
    return begin;
  }
  return rewrite_all<LinearLosses>(graph, device, rewrite_all<Losses>(graph, device, begin));
}

}  // namespace bowline::detail::graph
