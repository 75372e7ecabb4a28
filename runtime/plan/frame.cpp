#include "plan/lowering.h"

namespace bowline::detail::plan {
namespace {

using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::ValueId;
using graph::ValueKind;

struct Roots {
  std::vector<ValueId> of;    // by value
  std::vector<bool> is_view;  // by node
};

// Finds for each value the root value that owns its bytes. Follows views (Reshape) and writes of
// states.
Roots roots_of(const BoundGraph& g) {
  Roots roots{std::vector<ValueId>(g.values.size()), std::vector<bool>(g.nodes.size())};
  std::vector<bool> written(g.values.size());  // states after their writer
  for (ValueId v = 0; v < roots.of.size(); ++v) {
    roots.of[v] = v;
  }
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    const BoundNode& node = g.nodes[n];
    const OpDef& def = op_def(node.op);
    roots.is_view[n] = def.is_view || (def.is_front != nullptr && written[node.inputs[0]] &&
                                       def.is_front(node.attributes, g[node.inputs[0]].shape));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int from = roots.is_view[n] ? 0 : updated_input(def, o);
      if (from >= 0) {
        const ValueId in = node.inputs[static_cast<size_t>(from)];
        roots.of[node.outputs[o]] = roots.of[in];
        written[node.outputs[o]] = !roots.is_view[n] || written[in];
      }
    }
  }
  return roots;
}

// Gives every output a result of its own. A Copy node at the end copies the others.
void separate_outputs(BoundGraph& g, const std::set<size_t>& keep) {
  const std::vector<ValueId> roots = roots_of(g).of;
  std::set<ValueId> taken;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const ValueId root = roots[g.outputs[i]];
    const bool own = g[root].kind == ValueKind::result && !g.nodes[g[root].node].repeat;
    if (keep.contains(i) || (own && taken.insert(root).second)) {
      continue;
    }
    BoundNode copy;
    copy.op = op_with(OpRole::copy);
    copy.attributes = Attributes::of(NoAttributesT{});
    copy.inputs = {g.outputs[i]};
    BoundValue info = g[g.outputs[i]];
    info.kind = ValueKind::result;
    info.node = static_cast<uint32_t>(g.nodes.size());
    info.output = 0;
    info.uses.clear();
    g.outputs[i] = g.add_value(std::move(info));
    copy.outputs = {g.outputs[i]};
    g.nodes.push_back(std::move(copy));
  }
}

}  // namespace

Frame::Frame(BoundGraph& g, Frame* around, const std::set<size_t>& keep) : graph(g), outer(around) {
  separate_outputs(graph, keep);
  Roots roots = roots_of(graph);
  roots_ = std::move(roots.of);
  is_view_ = std::move(roots.is_view);
  locations_.resize(graph.values.size());
  record_of.resize(graph.nodes.size());
  find_uses();
}

void Frame::begin_items() {
  first_item_ = outer->first_item_ + static_cast<uint32_t>(outer->items_.size());
}

void Frame::find_uses() {
  last_use_.assign(graph.values.size(), 0);
  readers_.assign(graph.values.size(), 0);
  is_output_.assign(graph.values.size(), false);
  for (uint32_t n = 0; n < graph.nodes.size(); ++n) {
    const BoundNode& node = graph.nodes[n];
    for (const ValueId v : node.inputs) {
      last_use_[roots_[v]] = n;
      readers_[roots_[v]] += is_view(n) ? 0 : 1;
    }
  }
  for (const ValueId v : graph.outputs) {
    is_output_[roots_[v]] = true;
  }
  for (const ValueId v : graph.held.values) {
    last_use_[v] = UINT32_MAX;
  }
}

uint32_t Frame::add_item(uint64_t bytes, uint32_t first, uint32_t last) {
  const auto i = first_item_ + static_cast<uint32_t>(items_.size());
  items_.push_back({bytes, first, std::max(first, last)});
  moved_into_.push_back(i);
  values_in_.push_back(0);
  return i;
}

uint32_t Frame::item_of(uint32_t i) const {
  while (owns(i) && moved_into_[i - first_item_] != i) {
    i = moved_into_[i - first_item_];
  }
  return i;
}

void Frame::move_into(uint32_t from, uint32_t region) {
  item(region).first = item(from).first;
  item(from).bytes = 0;
  moved_into_[from - first_item_] = region;
}

}  // namespace bowline::detail::plan
