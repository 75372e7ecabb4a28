// Graph -> Program. Values get locations, nodes become records.
//
// A Repeat becomes a Copy of each carried value into its region (left out where the value is made there), a begin, the
// records of the body and an end. A carried value has a region of two slots that the iterations use in turn, or of count + 1
// slots where its values are kept for the backward pass.
#include <map>
#include <set>

#include "plan/memory.h"
#include "plan/plan.h"

namespace bowline::plan {
namespace {

using device::Operand;
using device::Record;
using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::RepeatInfo;
using graph::root_of;
using graph::StorageUse;
using graph::ValueId;
using graph::ValueInfo;
using graph::ValueKind;

constexpr uint32_t kNoItem = UINT32_MAX;

uint64_t bytes_of(const ValueInfo& v) {
  return static_cast<uint64_t>(v.shape.elements()) * size_of(v.dtype);
}

void renumber(Graph& g) {
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    for (const ValueId v : g.nodes[n].outputs) {
      g[v].node = n;
    }
  }
}

// Lets every output be a result of its own: others are copied by a node at the end. Outputs in
// `keep` may be inputs (carried values that are kept).
void separate_outputs(Graph& g, const std::set<size_t>& keep) {
  std::set<ValueId> taken;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const ValueId root = root_of(g, g.outputs[i]);
    const bool own = g[root].kind == ValueKind::result && !g.nodes[g[root].node].repeat;
    if (keep.contains(i) || (own && taken.insert(root).second)) {
      continue;
    }
    Node copy;
    copy.op = Op::Copy;
    copy.attributes = Attributes::of(NoAttributesT{});
    copy.inputs = {g.outputs[i]};
    ValueInfo info = g[g.outputs[i]];
    info.kind = ValueKind::result;
    info.node = static_cast<uint32_t>(g.nodes.size());
    info.output = 0;
    info.parameters.clear();
    info.uses.clear();
    g.outputs[i] = g.add_value(std::move(info));
    copy.outputs = {g.outputs[i]};
    taken.insert(g.outputs[i]);
    g.nodes.push_back(std::move(copy));
  }
}

// Where the bytes of a value lie: an item of the arena of its graph plus a step rule, or a place that is known already.
struct Location {
  uint32_t item = kNoItem;  // offset counts from this item
  Operand place;            // slot, offset, table and step rule; dtype and shape are the value's
};

class Lowering {
 public:
  Lowering(const device::OpenDevice& device, Plan& plan)
      : device_(device), plan_(plan), alignment_(device.capabilities().alignment) {}

  Status run(Graph& graph);

 private:
  // One graph with the locations of its values; a body has its own.
  struct Frame {
    Graph* graph = nullptr;
    Frame* outer = nullptr;
    std::vector<Location> locations;  // by root value
    std::vector<uint32_t> last_use;   // by root value: position of the last node that reads it
    std::vector<MemoryItem> items;
    uint64_t base = 0;              // of the arena of this frame
    std::vector<size_t> record_of;  // by node
  };

  // A record operand whose offset awaits the placement of an item.
  struct Pending {
    size_t record;
    int operand;  // inputs first, then outputs, then the workspace
    uint32_t item;
  };

  void find_last_uses(Frame& f);
  uint32_t add_item(Frame& f, uint64_t bytes, uint32_t first, uint32_t last);
  Status lower_nodes(Frame& f, std::vector<Pending>& pending);
  Status lower_node(Frame& f, uint32_t n, std::vector<Pending>& pending);
  Status lower_repeat(Frame& f, uint32_t n, std::vector<Pending>& pending);
  void note_written(const ValueInfo& storages);
  bool write_into_gradient(Frame& f, uint32_t n, std::vector<Pending>& pending);
  void choose_result_locations(Frame& f, uint32_t n);
  Operand operand(Frame& f, ValueId v, size_t record, int position, std::vector<Pending>& pending);
  uint32_t table_of(const ValueInfo& v);
  uint32_t slot_of(uint32_t tie);
  Operand& operand_at(size_t record, int position);
  void resolve(std::vector<Pending>& pending, Frame& f);

  const device::OpenDevice& device_;
  Plan& plan_;
  uint64_t alignment_;
  std::map<uint32_t, uint32_t> slots_;  // tie -> slot
  std::vector<uint32_t> accumulates_;   // by record: outputs that may be gradients
};

void Lowering::find_last_uses(Frame& f) {
  const Graph& g = *f.graph;
  f.last_use.assign(g.values.size(), 0);
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    for (const ValueId v : g.nodes[n].inputs) {
      f.last_use[root_of(g, v)] = n;
    }
  }
}

uint32_t Lowering::add_item(Frame& f, uint64_t bytes, uint32_t first, uint32_t last) {
  f.items.push_back({bytes, first, std::max(first, last)});
  return static_cast<uint32_t>(f.items.size() - 1);
}

uint32_t Lowering::slot_of(uint32_t tie) {
  const auto [it, added] = slots_.try_emplace(
      tie, device::kFirstStorageSlot + static_cast<uint32_t>(plan_.storages.size()));
  if (added) {
    plan_.storages.push_back(tie);
  }
  return it->second;
}

uint32_t Lowering::table_of(const ValueInfo& v) {
  device::Table table;
  for (const StorageUse& use : v.uses) {
    table.entries.push_back(
        {slot_of(use.tie), use.first_element * size_of(v.dtype), use.elements, false});
  }
  plan_.program.tables.push_back(std::move(table));
  return static_cast<uint32_t>(plan_.program.tables.size() - 1);
}

// Positions count inputs, then outputs; -1 is the workspace.
Operand& Lowering::operand_at(size_t record, int position) {
  Record& r = plan_.program.records[record];
  if (position < 0) {
    return r.workspace;
  }
  const size_t p = static_cast<size_t>(position);
  return p < r.inputs.size() ? r.inputs[p] : r.outputs[p - r.inputs.size()];
}

Operand Lowering::operand(Frame& f, ValueId v, size_t record, int position,
                          std::vector<Pending>& pending) {
  const Location& at = f.locations[root_of(*f.graph, v)];
  Operand out = at.place;
  out.dtype = (*f.graph)[v].dtype;
  out.shape = (*f.graph)[v].shape;
  if (at.item != kNoItem) {
    pending.push_back({record, position, at.item});
  }
  return out;
}

// Locations of the outputs of node n that have none yet: on an input that ends here if the operator
// allows it, else an item of their own.
void Lowering::choose_result_locations(Frame& f, uint32_t n) {
  const Graph& g = *f.graph;
  const Node& node = g.nodes[n];
  const OpDef& def = op_def(node.op);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId out = node.outputs[o];
    Location& at = f.locations[out];
    if (at.item != kNoItem || at.place.slot != UINT32_MAX) {
      continue;
    }
    for (const InPlace& pair : def.in_place) {
      if (pair.output != static_cast<int>(o)) {
        continue;
      }
      const ValueId in = root_of(g, node.inputs[static_cast<size_t>(pair.input)]);
      const Location& from = f.locations[in];
      // Only a plain result of this frame that nothing reads later; a second use as another input stays exact.
      if (g[in].kind == ValueKind::result && from.item != kNoItem && from.place.modulo == 0 &&
          f.last_use[in] == n && bytes_of(g[in]) == bytes_of(g[out]) &&
          f.items[from.item].last <= n && f.items[from.item].bytes == bytes_of(g[out])) {
        at = from;
        f.items[at.item].last = std::max(n, f.last_use[out]);
        break;
      }
    }
    if (at.item == kNoItem) {
      at.place = Operand{};
      at.item = add_item(f, bytes_of(g[out]), n, f.last_use[out]);
    }
  }
}

// AccumulateGrad without a record of its own: where nothing else reads the contribution, and its kernel can, that is
// written into the gradient at once. Nothing may be accumulated between the two, so that the order of the sums stays.
bool Lowering::write_into_gradient(Frame& f, uint32_t n, std::vector<Pending>& pending) {
  const Graph& g = *f.graph;
  const Node& node = g.nodes[n];
  const ValueId value = root_of(g, node.inputs[1]);
  if (g[value].kind != ValueKind::result || g.nodes[g[value].node].repeat) {
    return false;
  }
  const uint32_t maker = g[value].node;
  const auto is_value = [&](ValueId v) { return root_of(g, v) == value; };
  for (uint32_t k = maker + 1; k < g.nodes.size(); ++k) {
    const Node& other = g.nodes[k];
    const bool reads =
        k != n && !op_def(other.op).is_view && std::ranges::any_of(other.inputs, is_value);
    if (reads || (k < n && (other.repeat || other.op == Op::AccumulateGrad))) {
      return false;
    }
  }
  const size_t index = f.record_of[maker];
  const auto output = static_cast<size_t>(g[value].output);
  const uint32_t item = f.locations[value].item;
  const auto shared =
      std::ranges::count_if(f.locations, [&](const Location& l) { return l.item == item; });
  if ((accumulates_[index] >> output & 1) == 0 || item == kNoItem || shared != 1 ||
      std::ranges::any_of(g.outputs, is_value)) {
    return false;
  }
  Record& record = plan_.program.records[index];
  const int position = static_cast<int>(record.inputs.size() + output);
  std::erase_if(pending,
                [&](const Pending& p) { return p.record == index && p.operand == position; });
  f.items[item].bytes = 0;
  const ValueInfo& gradient = g[root_of(g, node.inputs[0])];
  Operand& o = record.outputs[output];
  o = Operand{.dtype = o.dtype, .shape = o.shape, .table = table_of(gradient)};
  record.accumulate |= uint32_t{1} << output;
  note_written(gradient);
  return true;
}

void Lowering::note_written(const ValueInfo& storages) {
  for (const StorageUse& u : storages.uses) {
    if (u.elements != 0) {
      plan_.written.push_back(u.tie);
    }
  }
}

Status Lowering::lower_node(Frame& f, uint32_t n, std::vector<Pending>& pending) {
  const Graph& g = *f.graph;
  const Node& node = g.nodes[n];
  f.record_of.resize(g.nodes.size());
  f.record_of[n] = plan_.program.records.size();
  if (op_def(node.op).is_view ||
      (node.op == Op::AccumulateGrad && write_into_gradient(f, n, pending))) {
    return {};
  }
  if (node.repeat) {
    return lower_repeat(f, n, pending);
  }
  const OpDef& def = op_def(node.op);
  const size_t index = plan_.program.records.size();
  Record record;
  record.op = node.op;
  record.attributes = node.attributes;
  record.node = static_cast<uint32_t>(plan_.nodes.size());
  plan_.nodes.push_back(describe(g, n));
  // Outputs that update a storage lie where the storage is.
  for (const InPlace& pair : def.updates) {
    if (pair.output >= 0 && static_cast<size_t>(pair.output) < node.outputs.size()) {
      f.locations[node.outputs[static_cast<size_t>(pair.output)]].place.slot = 0;
    }
  }
  choose_result_locations(f, n);
  int position = 0;
  for (const ValueId v : node.inputs) {
    Operand o = operand(f, v, index, position, pending);
    const ValueId root = root_of(g, v);
    if (g[root].kind == ValueKind::parameter) {
      o.table = table_of(g[root]);
      if (def.takes_lists) {
        uint64_t largest = 0;
        for (const StorageUse& u : g[root].uses) {
          largest = std::max(largest, u.elements);
        }
        o.shape = Shape{static_cast<int64_t>(largest)};
      }
      // Outside a body a single weight is a plain operand, unless the operator takes lists.
      if (f.outer == nullptr && !def.takes_lists && node.op != Op::AccumulateGrad) {
        const device::TableEntry e = plan_.program.tables.back().entries[0];
        plan_.program.tables.pop_back();
        o.table = device::kNoTable;
        o.slot = e.slot;
        o.offset = e.offset;
      }
    }
    record.inputs.push_back(o);
    ++position;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    Operand o = operand(f, v, index, position++, pending);
    for (const InPlace& pair : def.updates) {
      if (pair.output == static_cast<int>(i)) {
        o = record.inputs[static_cast<size_t>(pair.input)];
        note_written(g[root_of(g, node.inputs[static_cast<size_t>(pair.input)])]);
      }
    }
    record.outputs.push_back(o);
  }
  const device::NodeAnswer answer =
      device_.query({node.op, record.attributes, record.inputs, record.outputs});
  BOWLINE_REQUIRE_CODE(answer.reason.empty(), Code::unsupported, "Device {} cannot run {}: {}",
                       device_.info().name, plan_.nodes.back(), answer.reason);
  accumulates_.resize(index + 1);
  accumulates_[index] = answer.accumulates;
  record.workspace.dtype = DType::u8;
  record.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
  if (answer.workspace_bytes != 0) {
    pending.push_back({index, -1, add_item(f, answer.workspace_bytes, n, n)});
  }
  plan_.program.records.push_back(std::move(record));
  return {};
}

Status Lowering::lower_nodes(Frame& f, std::vector<Pending>& pending) {
  for (uint32_t n = 0; n < f.graph->nodes.size(); ++n) {
    BOWLINE_TRY(lower_node(f, n, pending));
  }
  return {};
}

void Lowering::resolve(std::vector<Pending>& pending, Frame& f) {
  for (const Pending& p : pending) {
    operand_at(p.record, p.operand).offset += f.base + f.items[p.item].offset;
  }
}

Status Lowering::lower_repeat(Frame& f, uint32_t n, std::vector<Pending>& pending) {
  Graph& g = *f.graph;
  const Node& node = g.nodes[n];
  const RepeatInfo& repeat = *node.repeat;
  Graph& body = *repeat.body;
  const uint32_t count = repeat.count;

  // Which carried inputs are kept as they are: stacked outputs whose root is that input.
  std::map<ValueId, size_t> kept;  // body input -> output position
  std::set<size_t> keep_outputs;
  for (size_t o = repeat.carried; o < body.outputs.size(); ++o) {
    const ValueId root = root_of(body, body.outputs[o]);
    for (uint32_t c = 0; c < repeat.carried; ++c) {
      if (root == body.inputs[c] && kept.try_emplace(root, o).second) {
        keep_outputs.insert(o);
      }
    }
  }
  separate_outputs(body, keep_outputs);

  Frame inner;
  inner.graph = &body;
  inner.outer = &f;
  inner.locations.resize(body.values.size());
  for (Location& l : inner.locations) {
    l.place.slot = UINT32_MAX;
  }
  find_last_uses(inner);

  std::vector<Pending> entering;  // into items of the outer frame
  // Carried values.
  for (uint32_t c = 0; c < repeat.carried; ++c) {
    const ValueInfo& value = body[body.inputs[c]];
    const uint64_t step = round_up(bytes_of(value), alignment_);
    const auto kept_as = kept.find(body.inputs[c]);
    const uint32_t modulo = kept_as != kept.end() ? count + 1 : 2;
    const ValueId final_value = node.outputs[c];
    uint32_t last = f.last_use[final_value];
    if (kept_as != kept.end()) {
      last = std::max(last, f.last_use[node.outputs[kept_as->second]]);
    }
    const uint32_t item = add_item(f, step * modulo, n, last);

    // A reversed Repeat does iteration count - 1 first: slot 0 belongs to it.
    const uint32_t shift = repeat.reverse ? (count - 1) % 2 : 0;
    Location& in = inner.locations[body.inputs[c]];
    in.item = item;
    in.place = Operand{};
    in.place.modulo = modulo;
    in.place.shift = shift;
    in.place.step_bytes = step;
    Location& out = inner.locations[root_of(body, body.outputs[c])];
    out = in;
    out.place.shift = repeat.reverse ? count % 2 : 1;

    Location& result = f.locations[final_value];
    result.item = item;
    result.place = Operand{};
    result.place.offset = step * (modulo == 2 ? count % 2 : count);
    if (kept_as != kept.end()) {
      Location& stacked = f.locations[node.outputs[kept_as->second]];
      stacked.item = item;
      stacked.place = Operand{};
      stacked.place.modulo = modulo;
      stacked.place.step_bytes = step;
    }

    const ValueId init = node.inputs[c];
    const ValueId root = root_of(g, init);
    Location& from = f.locations[root];
    const bool moves =
        g[root].kind == ValueKind::result && from.item != kNoItem && from.place.modulo == 0 &&
        from.place.offset == 0 && f.last_use[root] == n && f.items[from.item].last == n &&
        f.items[from.item].bytes == bytes_of(value) &&
        std::ranges::count_if(node.inputs, [&](ValueId v) { return root_of(g, v) == root; }) == 1;
    if (moves) {
      // The item of the initial value becomes the region.
      f.items[item].first = f.items[from.item].first;
      const uint32_t old = from.item;
      for (Location& l : f.locations) {
        if (l.item == old) {
          l.item = item;
        }
      }
      for (Pending& p : pending) {
        if (p.item == old) {
          p.item = item;
        }
      }
      f.items[old].bytes = 0;
    } else {
      const size_t index = plan_.program.records.size();
      Record copy;
      copy.op = Op::Copy;
      copy.attributes = Attributes::of(NoAttributesT{});
      copy.node = static_cast<uint32_t>(plan_.nodes.size());
      plan_.nodes.push_back(format("the entry of {}", describe(g, n)));
      Operand source = operand(f, init, index, 0, pending);
      if (g[root].kind == ValueKind::parameter) {
        source.slot = slot_of(g[root].uses[0].tie);
        source.offset = g[root].uses[0].first_element * size_of(g[root].dtype);
      }
      copy.inputs = {source};
      Operand target;
      target.dtype = value.dtype;
      target.shape = value.shape;
      copy.outputs = {target};
      pending.push_back({index, 1, item});
      plan_.program.records.push_back(std::move(copy));
    }
  }
  // Invariant and stacked inputs.
  for (size_t i = repeat.carried; i < node.inputs.size(); ++i) {
    const ValueId outer_root = root_of(g, node.inputs[i]);
    Location& in = inner.locations[body.inputs[i]];
    in = f.locations[outer_root];
    if (g[outer_root].kind == ValueKind::parameter) {
      in.place = Operand{};
      in.place.slot = slot_of(g[outer_root].uses[0].tie);
      in.place.offset = g[outer_root].uses[0].first_element * size_of(g[outer_root].dtype);
    }
  }
  // Stacked outputs.
  for (size_t o = repeat.carried; o < body.outputs.size(); ++o) {
    if (keep_outputs.contains(o)) {
      continue;
    }
    const ValueInfo& value = body[body.outputs[o]];
    const uint64_t step = round_up(bytes_of(value), alignment_);
    Location& stacked = f.locations[node.outputs[o]];
    stacked.item = add_item(f, step * count, n, f.last_use[node.outputs[o]]);
    stacked.place = Operand{};
    stacked.place.modulo = count;
    stacked.place.step_bytes = step;
    inner.locations[root_of(body, body.outputs[o])] = stacked;
  }

  Record begin;
  begin.kind = Record::Kind::repeat_begin;
  begin.count = count;
  begin.reverse = repeat.reverse;
  plan_.program.records.push_back(begin);

  // Items of the outer frame that the body uses are told apart from its own by an offset in the item number.
  const auto first_own = static_cast<uint32_t>(f.items.size());
  std::vector<Pending> body_pending;
  inner.items.assign(first_own, MemoryItem{});
  BOWLINE_TRY(lower_nodes(inner, body_pending).at(format("In the body of {}.", describe(g, n))));

  Record end;
  end.kind = Record::Kind::repeat_end;
  plan_.program.records.push_back(end);

  const std::span own = std::span(inner.items).subspan(first_own);
  const MemoryLayout layout = place(own, alignment_);
  const uint32_t body_item = add_item(f, layout.bytes, n, n);
  for (const Pending& p : body_pending) {
    if (p.item < first_own) {
      pending.push_back(p);
    } else {
      operand_at(p.record, p.operand).offset += inner.items[p.item].offset;
      pending.push_back({p.record, p.operand, body_item});
    }
  }
  return {};
}

Status Lowering::run(Graph& graph) {
  separate_outputs(graph, {});
  Frame f;
  f.graph = &graph;
  f.locations.resize(graph.values.size());
  for (Location& l : f.locations) {
    l.place.slot = UINT32_MAX;
  }
  find_last_uses(f);
  const auto add_io = [&](ValueId v, const std::string& name) {
    const ValueInfo& info = graph[v];
    IoRange range{name, info.dtype, info.shape, plan_.io_bytes};
    Location& at = f.locations[root_of(graph, v)];
    at.place = Operand{};
    at.place.slot = device::kIoSlot;
    at.place.offset = range.offset;
    plan_.io_bytes += round_up(bytes_of(info), alignment_);
    return range;
  };
  for (const ValueId v : graph.inputs) {
    plan_.inputs.push_back(add_io(v, graph[v].name));
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    plan_.outputs.push_back(add_io(graph.outputs[i], graph.output_names[i]));
  }
  std::vector<Pending> pending;
  BOWLINE_TRY(lower_nodes(f, pending));
  const MemoryLayout layout = place(f.items, alignment_);
  plan_.arena_bytes = layout.bytes;
  plan_.arena_lower_bound = layout.lower_bound;
  resolve(pending, f);
  plan_.program.slots = device::kFirstStorageSlot + static_cast<uint32_t>(plan_.storages.size());
  std::ranges::sort(plan_.written);
  plan_.written.erase(std::unique(plan_.written.begin(), plan_.written.end()), plan_.written.end());
  return {};
}

}  // namespace

Result<Plan> lower(Graph graph, std::string name, const device::OpenDevice& device) {
  Plan plan;
  plan.name = std::move(name);
  graph = graph::deep_copy(graph);
  renumber(graph);
  Lowering lowering(device, plan);
  BOWLINE_TRY(lowering.run(graph));
  mark_first_contributions(plan.program);
  assign_levels(plan.program);
  return plan;
}

}  // namespace bowline::plan
