// Fusion of the two writes into a KV cache with the Rope before them: see graph/fuse.h.
//
//! makes FusedWriteRows of WriteRows
#include "core/rope.h"
#include "graph/rewrites/rewriter.h"

namespace bowline::detail::graph {
namespace {

class CacheWrites : public Rewriter {
 public:
  using Rewriter::Rewriter;

  void fuse_at(size_t n) {
    const BoundNode& attention = graph_.nodes[n];
    if (attention.op != Op::Attention) {
      return;
    }
    const size_t k = write_behind(attention.inputs[1]), v = write_behind(attention.inputs[2]);
    if (k == kNone || v == kNone || k == v) {
      return;
    }
    Fusion f{.gone = {k, v}, .k = k, .v = v};
    take_ropes(f, n);
    fuse(f);
  }

 private:
  struct Fusion {
    std::vector<size_t> gone;  // the nodes that it replaces
    size_t k = 0, v = 0;       // the writes
    // (optional) The nodes that rotate q and k.
    size_t q_rope = kNone, k_rope = kNone;
  };

  // The WriteRows whose state the value shows, or kNone.
  size_t write_behind(ValueId v) const {
    while (graph_[v].kind == ValueKind::result) {
      const size_t n = graph_[v].node;
      const BoundNode& node = graph_.nodes[n];
      if (node.op == Op::WriteRows) {
        const Shape& state = shape(node.inputs[0]);
        const int axis = node.attributes.as<WriteRowsAttributes>().axis();
        const bool fits = state.rank() == 3 && positive_axis(axis, 3) == 0 && is_gone_[n] == 0;
        return fits ? n : kNone;
      }
      if (node.op != Op::Reshape && node.op != Op::Slice) {
        break;
      }
      v = node.inputs[0];
    }
    return kNone;
  }

  // The node that makes v for `reader` alone, or kNone.
  size_t maker_for(ValueId v, size_t reader, Op op) const {
    const bool is_only = graph_[v].kind == ValueKind::result && only_reader(v) == reader;
    const size_t n = is_only ? graph_[v].node : kNone;
    return is_only && graph_.nodes[n].op == op && is_gone_[n] == 0 ? n : kNone;
  }

  // Takes the rotation of the queries of the Attention and of the written keys, if both are alike.
  void take_ropes(Fusion& f, size_t attention) const {
    const size_t q = maker_for(graph_.nodes[attention].inputs[0], attention, Op::Rope);
    const size_t reshape = maker_for(graph_.nodes[f.k].inputs[1], f.k, Op::Reshape);
    const size_t k =
        reshape == kNone ? kNone : maker_for(graph_.nodes[reshape].inputs[0], reshape, Op::Rope);
    if (q == kNone || k == kNone) {
      return;
    }
    const BoundNode& of_q = graph_.nodes[q];
    const BoundNode& of_k = graph_.nodes[k];
    const Shape& rows = shape(graph_.nodes[f.k].inputs[1]);
    const bool alike =
        of_q.inputs.size() == 2 && of_k.inputs.size() == 2 && of_q.inputs[1] == of_k.inputs[1] &&
        attributes_text(Op::Rope, of_q.attributes) == attributes_text(Op::Rope, of_k.attributes);
    if (alike && shape(of_k.inputs[0]) == Shape{1, rows[0], rows[1], rows[2]}) {
      f.q_rope = q;
      f.k_rope = k;
      f.gone.insert(f.gone.end(), {q, k, reshape});
    }
  }

  BoundNode node_of(const Fusion& f) const {
    const BoundNode& k = graph_.nodes[f.k];
    const BoundNode& v = graph_.nodes[f.v];
    FusedWriteRowsAttributesT t;
    std::vector<ValueId> inputs = {k.inputs[0], v.inputs[0], k.inputs[1], v.inputs[1]};
    std::vector<ValueId> outputs = {k.outputs[0], v.outputs[0]};
    if (f.k_rope != kNone) {
      const BoundNode& q = graph_.nodes[f.q_rope];
      t.rope = true;
      copy_rope(q.attributes.as<RopeAttributes>(), t);
      inputs[2] = graph_.nodes[f.k_rope].inputs[0];
      inputs.insert(inputs.end(), q.inputs.begin(), q.inputs.end());
      outputs.push_back(q.outputs[0]);
    }
    BoundNode out = BoundGraph::make_node(Op::FusedWriteRows, Attributes::of(t), std::move(inputs),
                                          std::move(outputs), k.name);
    for (const ReadCount& c : k.read_counts) {
      out.read_counts.push_back({2, t.rope ? 1 : 0, c.dim});
    }
    for (const ReadCount& c : v.read_counts) {
      out.read_counts.push_back({3, 0, c.dim});
    }
    return out;
  }

  // Replaces the nodes by one in the place of the second write. Nodes between them that depend on
  // its results move behind it.
  void fuse(const Fusion& f) {
    BoundNode node = node_of(f);
    const size_t place = std::max(f.k, f.v);
    std::vector<char> is_late(graph_.values.size());
    for (const ValueId v : node.outputs) {
      is_late[v] = 1;
    }
    const auto late = [&](ValueId v) { return is_late[v] != 0; };
    std::vector<size_t> moved;
    for (size_t m = std::ranges::min(f.gone); m < place; ++m) {
      const BoundNode& between = graph_.nodes[m];
      const bool stays = is_gone_[m] != 0 || std::ranges::find(f.gone, m) != f.gone.end() ||
                         std::ranges::none_of(between.inputs, late);
      if (!stays) {
        moved.push_back(m);
        for (const ValueId v : between.outputs) {
          is_late[v] = 1;
        }
      }
    }
    const bool depends = std::ranges::any_of(node.inputs, [&](ValueId v) {
      return late(v) || (graph_[v].kind == ValueKind::result && graph_[v].node >= place);
    });
    if (depends || !can_run(node)) {
      return;
    }
    for (const size_t g : f.gone) {
      is_gone_[g] = 1;
    }
    is_gone_[place] = 0;
    graph_.nodes[place] = std::move(node);
    for (const size_t m : moved) {
      move_behind(m, place);
    }
  }
};

}  // namespace

void fuse_cache_writes(BoundGraph& graph, const device::OpenDevice& device) {
  if (has_op(Op::FusedWriteRows)) {
    (void)rewrite_all<CacheWrites>(graph, device, 0);
  }
}

}  // namespace bowline::detail::graph
