// Fusion of the gradients of norms with the Add of a residual connection: see graph/fuse.h.
//
//! makes FusedNormGrad of LayerNormGrad RmsNormGrad
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

class Norms : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const BoundNode& norm = graph_.nodes[n];
    if (norm.op != Op::LayerNormGrad && norm.op != Op::RmsNormGrad) {
      return;
    }
    const ValueId dx = norm.outputs[0];
    const size_t reader = only_reader(dx);
    if (reader == kNone || graph_.nodes[reader].op != Op::Add) {
      return;
    }
    const BoundNode& add = graph_.nodes[reader];
    const ValueId other = add.inputs[add.inputs[0] == dx ? 1 : 0];
    const BoundValue& addend = graph_[other];
    const bool is_before = addend.kind != ValueKind::result || addend.node < n;
    if (!is_before || addend.shape != shape(dx) || addend.dtype != graph_[dx].dtype ||
        !addend.encoding.is_plain()) {
      return;
    }
    FusedNormGradAttributesT t;
    t.rms = norm.op == Op::RmsNormGrad;
    t.eps = t.rms ? norm.attributes.as<RmsNormAttributes>().eps()
                  : norm.attributes.as<LayerNormAttributes>().eps();
    std::vector<ValueId> inputs = norm.inputs;
    inputs.push_back(other);
    std::vector<ValueId> outputs = norm.outputs;
    outputs[0] = add.outputs[0];
    BoundNode fused = BoundGraph::make_node(Op::FusedNormGrad, Attributes::of(t), std::move(inputs),
                                            std::move(outputs), norm.name);
    if (can_run(fused)) {
      graph_.nodes[n] = std::move(fused);
      is_gone_[reader] = 1;
    }
  }
};

}  // namespace

size_t fuse_norm_gradients(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  return has_op(Op::FusedNormGrad) ? rewrite_all<Norms>(graph, device, begin) : begin;
}

}  // namespace bowline::detail::graph
