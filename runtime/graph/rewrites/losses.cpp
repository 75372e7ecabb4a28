// Fusion of CrossEntropy with its gradient: see graph/fuse.h.
#include <array>

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

}  // namespace

size_t fuse_losses(BoundGraph& graph, const device::OpenDevice& device, size_t begin) {
  return rewrite_all<Losses>(graph, device, begin);
}

}  // namespace bowline::detail::graph
