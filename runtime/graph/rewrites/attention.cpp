// Fusion of Split with Attention: see graph/fuse.h.
//
//! makes PackedAttention of Attention
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

class Heads : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const BoundNode& node = graph_.nodes[n];
    if (node.op != Op::Attention || node.inputs.size() != 3 || !node.read_counts.empty()) {
      return;
    }
    std::vector<size_t> gone;
    ValueId qkv = kNoValue;
    for (size_t i = 0; i < 3; ++i) {
      const ValueId whole = take_part(n, i, gone);
      if (whole == kNoValue || (i > 0 && whole != qkv)) {
        return;
      }
      qkv = whole;
    }
    BoundNode packed = packed_of(node, qkv);
    if (can_run(packed)) {
      graph_.nodes[n] = std::move(packed);
      for (const size_t g : gone) {
        is_gone_[g] = 1;
      }
    }
  }

 private:
  // The node that makes v for the reader alone, or nullptr.
  const BoundNode* maker_for(ValueId v, size_t reader, Op op) const {
    const bool is_only = graph_[v].kind == ValueKind::result && only_reader(v) == reader;
    const BoundNode* const maker = is_only ? &graph_.nodes[graph_[v].node] : nullptr;
    return maker != nullptr && maker->op == op ? maker : nullptr;
  }

  // Input i of the Attention consists of the heads of part i of a Split. Returns the value that is
  // split, or kNoValue, and adds the nodes between to `gone`.
  ValueId take_part(size_t n, size_t i, std::vector<size_t>& gone) const {
    const ValueId heads = graph_.nodes[n].inputs[i];
    const BoundNode* const reshape = maker_for(heads, n, Op::Reshape);
    if (reshape == nullptr) {
      return kNoValue;
    }
    const ValueId part = reshape->inputs[0];
    const BoundNode* const split = maker_for(part, graph_[heads].node, Op::Split);
    const Shape& h = shape(heads);
    if (split == nullptr || split->outputs.size() != 3 || split->outputs[i] != part ||
        shape(part) != Shape{h[0], h[1], h[2] * h[3]} ||
        shape(split->inputs[0]).back() == shape(part).back()) {
      return kNoValue;
    }
    gone.insert(gone.end(), {graph_[heads].node, graph_[part].node});
    return split->inputs[0];
  }

  BoundNode packed_of(const BoundNode& node, ValueId qkv) const {
    const auto& of = node.attributes.as<AttentionAttributes>();
    PackedAttentionAttributesT t;
    t.heads = shape(node.inputs[0])[2];
    t.kv_heads = shape(node.inputs[1])[2];
    t.causal = of.causal();
    t.scale = of.scale();
    t.softcap = of.softcap();
    t.window = of.window();
    return BoundGraph::make_node(Op::PackedAttention, Attributes::of(t), {qkv}, node.outputs,
                                 node.name);
  }
};

}  // namespace

void pack_attention(BoundGraph& graph, const device::OpenDevice& device) {
  if (has_op(Op::PackedAttention)) {
    (void)rewrite_all<Heads>(graph, device, 0);
  }
}

}  // namespace bowline::detail::graph
