// Simplification of Slice and Concat: see graph/fuse.h.
//
//! makes Slice Reshape of Split Concat
#include <map>
#include <numeric>

#include "core/strides.h"
#include "graph/fuse.h"
#include "graph/infer.h"
#include "ops/build.h"

namespace bowline::detail::graph {
namespace {

// The pieces of a value along an axis.
struct Piece {
  ValueId source;
  int64_t start, length;
};
struct Pieces {
  int axis = 0;
  std::vector<Piece> list;

  void append(const Piece& p) {
    if (!list.empty() && list.back().source == p.source &&
        list.back().start + list.back().length == p.start) {
      list.back().length += p.length;
    } else if (p.length > 0) {
      list.push_back(p);
    }
  }
};

class Slices {
 public:
  explicit Slices(BoundGraph& graph) : graph_(graph), same_(graph.values.size()) {
    std::iota(same_.begin(), same_.end(), ValueId{0});
  }

  bool rewrite() {
    if (std::ranges::any_of(graph_.nodes, [](const BoundNode& n) {
          return n.repeat || (n.op != Op::BatchNorm && op_def(n.op).updates[0].output >= 0);
        })) {
      return false;
    }
    for (BoundNode& node : graph_.nodes) {
      for (ValueId& v : node.inputs) {
        v = same_[v];
      }
      if (is_plain(node)) {
        note(node);
      }
    }
    if (any_) {
      prune(graph_);
    }
    return any_;
  }

 private:
  bool is_plain(const BoundNode& node) const {
    const auto plain = [&](ValueId v) {
      return graph_[v].encoding.is_plain() && graph_[v].counted.empty();
    };
    return node.outputs.size() == 1 && std::ranges::all_of(node.inputs, plain) &&
           std::ranges::find(graph_.outputs, node.outputs[0]) == graph_.outputs.end();
  }

  void note(BoundNode& node) {
    const ValueId y = node.outputs[0];
    if (node.op == Op::Reshape) {
      const auto at = reshaped_.find(node.inputs[0]);
      const ValueId from = at == reshaped_.end() ? node.inputs[0] : at->second;
      reshaped_[y] = from;
      replace(y, graph_[from].shape == graph_[y].shape ? from : y);
    } else if (node.op == Op::Slice || node.op == Op::Concat) {
      Pieces pieces = node.op == Op::Slice ? sliced(node) : joined(node);
      if (pieces.list.size() == 1) {
        take(node, pieces.axis, pieces.list[0]);
      }
      pieces_[y] = std::move(pieces);
    }
  }

  Pieces of(ValueId v, int axis) const {
    const auto at = pieces_.find(v);
    return at != pieces_.end() && at->second.axis == axis
               ? at->second
               : Pieces{axis, {{v, 0, graph_[v].shape[axis]}}};
  }

  Pieces sliced(const BoundNode& node) const {
    const auto& t = node.attributes.as<SliceAttributes>();
    const int axis = positive_axis(t.axis(), graph_[node.inputs[0]].shape.rank());
    int64_t skip = t.start(), left = graph_[node.outputs[0]].shape[axis];
    Pieces out{axis, {}};
    for (const Piece& p : of(node.inputs[0], axis).list) {
      const int64_t length = std::clamp<int64_t>(p.length - skip, 0, left);
      out.append({p.source, p.start + skip, length});
      skip = std::max<int64_t>(skip - p.length, 0);
      left -= length;
    }
    return out;
  }

  Pieces joined(const BoundNode& node) const {
    const int axis = positive_axis(node.attributes.as<ConcatAttributes>().axis(),
                                   graph_[node.outputs[0]].shape.rank());
    Pieces out{axis, {}};
    for (const ValueId v : node.inputs) {
      for (const Piece& p : of(v, axis).list) {
        out.append(p);
      }
    }
    return out;
  }

  // Replaces the node by a Slice of this piece.
  void take(BoundNode& node, int axis, const Piece& p) {
    if (p.length == graph_[p.source].shape[axis]) {
      return replace(node.outputs[0], p.source);
    }
    any_ = any_ || node.op != Op::Slice || node.inputs[0] != p.source;
    node.op = Op::Slice;
    node.attributes = slice_attributes(axis, p.start, p.length);
    node.inputs = {p.source};
  }

  void replace(ValueId v, ValueId by) {
    any_ = any_ || v != by;
    same_[v] = by;
  }

  BoundGraph& graph_;
  std::vector<ValueId> same_;
  std::map<ValueId, ValueId> reshaped_;  // result of a Reshape -> its input
  std::map<ValueId, Pieces> pieces_;     // of results of Slice and Concat
  bool any_ = false;
};

}  // namespace

bool join_slices(BoundGraph& graph) { return Slices(graph).rewrite(); }

}  // namespace bowline::detail::graph
