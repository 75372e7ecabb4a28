// Fusion of the gradient of a weight with that of its bias: see graph/fuse.h.
//
//! makes FusedMatMul of MatMul
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

class BiasGradients : public Rewriter {
 public:
  using Rewriter::Rewriter;

  // Node n: the sum of dy over rows. The product of dy with the inputs of the layer comes later.
  void fuse_at(size_t n) {
    const BoundNode& sum = graph_.nodes[n];
    if (sum.op != Op::SumTo || shape(sum.outputs[0]).rank() != 1) {
      return;
    }
    const ValueId db = sum.outputs[0];
    const size_t reader = only_reader(db);
    const size_t product = product_of(root(sum.inputs[0]), shape(db)[0]);
    // The reader can move behind the product if nothing reads its results.
    if (product == kNone || product < n || reader == kNone ||
        (reader < product && is_read(graph_.nodes[reader]))) {
      return;
    }
    const BoundNode& node = graph_.nodes[product];
    FusedMatMulAttributesT t;
    t.transpose_a = true;
    t.sum_b = root(node.inputs[1]) == root(sum.inputs[0]);
    t.sum_a = !t.sum_b;
    BoundNode fused = BoundGraph::make_node(Op::FusedMatMul, Attributes::of(t), node.inputs,
                                            {node.outputs[0], db}, node.name);
    if (!can_run(fused)) {
      return;
    }
    graph_.nodes[product] = std::move(fused);
    is_gone_[n] = 1;
    if (reader < product) {
      move_behind(reader, product);
    }
  }

 private:
  bool is_read(const BoundNode& node) const {
    return std::ranges::any_of(node.outputs, [&](ValueId v) { return !readers_[v].empty(); });
  }

  // The value of which v is a view with the same rows.
  ValueId root(ValueId v) const {
    while (graph_[v].kind == ValueKind::result) {
      const BoundNode& maker = graph_.nodes[graph_[v].node];
      const ValueId from = maker.inputs.empty() ? kNoValue : maker.inputs[0];
      if (!op_def(maker.op).is_view || shape(from).rank() == 0 || shape(v).rank() == 0 ||
          shape(from).back() != shape(v).back()) {
        break;
      }
      v = from;
    }
    return v;
  }

  // The first product of a matrix with the rows of dy, summed over the rows; `columns`: of dy.
  size_t product_of(ValueId dy, int64_t columns) const {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const BoundNode& node = graph_.nodes[n];
      if (is_gone_[n] != 0 || node.op != Op::MatMul || shape(node.outputs[0]).rank() != 2) {
        continue;
      }
      const auto& t = node.attributes.as<MatMulAttributes>();
      const auto is_dy = [&](ValueId v) {
        return shape(v).rank() == 2 && shape(v)[1] == columns && root(v) == dy;
      };
      if (t.transpose_a() && !t.transpose_b() && std::ranges::any_of(node.inputs, is_dy)) {
        return n;
      }
    }
    return kNone;
  }
};

}  // namespace

size_t fuse_bias_gradients(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  return has_op(Op::FusedMatMul) ? rewrite_all<BiasGradients>(graph, device, begin) : begin;
}

}  // namespace bowline::detail::graph
