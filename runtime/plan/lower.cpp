#include "base/checked.h"
#include "plan/lowering.h"

namespace bowline::detail::plan {

using device::Operand;
using device::Record;
using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundValue;
using graph::StorageUse;
using graph::ValueId;
using graph::ValueKind;

namespace {

// The place in the storage, or in its copy of another form.
CodePlace place_of(const BoundValue& v, const StorageUse& use) {
  return v.encoding.is_plain() ? CodePlace{use.first_element * size_of(v.dtype), 0, 0} : use.place;
}

// True if every input of the node with the bytes of input `pair.input` allows the output to
// overwrite it. Counterexample: a weight of Gru that is a view of its gates is read again after the
// gates are written.
bool reads_in_step(const Frame& f, const BoundNode& node, const InPlace& pair) {
  const ValueId in = f.root(node.inputs[static_cast<size_t>(pair.input)]);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto is_it = [&](const InPlace& p) {
      return p.output == pair.output && p.input == static_cast<int>(i);
    };
    if (f.root(node.inputs[i]) == in && std::ranges::none_of(op_def(node.op).in_place, is_it)) {
      return false;
    }
  }
  return true;
}

// True if nodes [begin, n) may add to the gradient to which AccumulateGrad n adds.
bool adds_between(const Frame& f, uint32_t begin, uint32_t n) {
  const BoundGraph& g = f.graph;
  const auto uses_of = [&](const BoundNode& node) { return g[f.root(node.inputs[0])].uses; };
  const std::vector<StorageUse> mine = uses_of(g.nodes[n]);
  const auto is_mine = [&](const StorageUse& u) {
    return std::ranges::find(mine, u.tie, &StorageUse::tie) != mine.end();
  };
  for (uint32_t i = begin; i < n; ++i) {
    const BoundNode& node = g.nodes[i];
    const bool adds = op_def(node.op).gradient_rows == GradientRows::added;
    if (node.repeat || (adds && std::ranges::any_of(uses_of(node), is_mine))) {
      return true;
    }
  }
  return false;
}

}  // namespace

Status set_type(Record& record) {
  std::vector<DType> inputs, outputs;
  std::ranges::transform(record.inputs, std::back_inserter(inputs), &Operand::dtype);
  std::ranges::transform(record.outputs, std::back_inserter(outputs), &Operand::dtype);
  const OpDef& def = op_def(record.op);
  BOWLINE_TRY(check_operand_types(def.types, def.name, inputs, outputs));
  record.type = storage_type(def.types, inputs, outputs);
  return {};
}

uint32_t Lowering::slot_of(uint32_t tie, const std::shared_ptr<const params::Form>& form) {
  const StorageSlot wanted{tie, form};
  const auto [begin, end] = slots_.equal_range(tie);
  for (auto it = begin; it != end; ++it) {
    if (plan_.storages[it->second - device::kFirstStorageSlot] == wanted) {
      return it->second;
    }
  }
  const uint32_t slot = device::kFirstStorageSlot + static_cast<uint32_t>(plan_.storages.size());
  slots_.emplace(tie, slot);
  plan_.storages.push_back(wanted);
  return slot;
}

uint32_t Lowering::table_of(const BoundValue& v) {
  device::Table table;
  for (const StorageUse& use : v.uses) {
    const CodePlace at = place_of(v, use);
    table.entries.push_back({slot_of(use.tie, v.form), at.codes, use.elements, false,
                             v.encoding.is_plain() ? Encoding() : use.encoding, at.scales,
                             at.zeros});
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

Operand Lowering::operand(Frame& f, ValueId v, size_t record, int position) {
  const Location& at = f.location(v);
  Operand out = at.place;
  out.dtype = f.graph[v].dtype;
  if (const BoundValue& root = f.graph[f.root(v)]; root.kind == ValueKind::parameter) {
    out.encoding = root.encoding;
  }
  out.shape = f.graph[v].shape;
  if (at.item != kNoItem) {
    f.pending.push_back({record, position, at.item});
  }
  return out;
}

// A kernel finds scales by rows of the last axis, so the rows must be those that were encoded.
Status Lowering::require_whole_rows(Frame& f, uint32_t n, ValueId v, const Operand& o) {
  const BoundValue& root = f.graph[f.root(v)];
  const Shape& encoded = root.kind == ValueKind::parameter ? root.shape : f.location(v).place.shape;
  const bool keeps_rows = o.shape == encoded || (o.shape.rank() > 0 && encoded.rank() > 0 &&
                                                 o.shape.back() == encoded.back());
  BOWLINE_REQUIRE_CODE(
      o.encoding.is_plain() || keeps_rows, Code::unsupported,
      "{} reads a storage that is stored as {} with other rows ({}) than its parameter has ({}).",
      describe(f.graph, n), o.encoding, o.shape, encoded);
  return {};
}

// Places `o` in the storages of a parameter: through a table in a body, and for lists and
// gradients.
Operand Lowering::parameter_operand(const Frame& f, const BoundNode& node, const BoundValue& v,
                                    Operand o) {
  const OpDef& def = op_def(node.op);
  const bool list = def.takes_lists;
  if (f.outer == nullptr && !list && def.gradient_rows == GradientRows::none) {
    o.slot = slot_of(v.uses[0].tie, v.form);
    const CodePlace at = place_of(v, v.uses[0]);
    o.offset = at.codes;
    o.scales = at.scales;
    o.zeros = at.zeros;
    return o;
  }
  o.slot = device::kArenaSlot;
  o.table = table_of(v);
  if (list) {
    uint64_t largest = 0;
    for (const StorageUse& u : v.uses) {
      largest = std::max(largest, u.elements);
    }
    o.shape = Shape{static_cast<int64_t>(largest)};
  }
  return o;
}

// Chooses locations for the outputs of node n that have none yet. An output takes the place of an
// input that ends here if the operator allows it. Otherwise it gets an item of its own.
void Lowering::choose_result_locations(Frame& f, uint32_t n) {
  const BoundGraph& g = f.graph;
  const BoundNode& node = g.nodes[n];
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId out = node.outputs[o];
    Location& at = f.location(out);
    if (updated_input(op_def(node.op), o) >= 0) {
      continue;  // it has the location of the storage
    }
    if (at.item != kNoItem || at.place.slot != kNoSlot) {
      continue;
    }
    for (const InPlace& pair : op_def(node.op).in_place) {
      if (pair.output != static_cast<int>(o)) {
        continue;
      }
      const ValueId in = f.root(node.inputs[static_cast<size_t>(pair.input)]);
      const Location& from = f.location(in);
      const uint32_t item = f.item_of(from.item);
      // The input must be a plain result of this frame. No later node may read it, and this node
      // may read it only in order.
      if (g[in].kind == ValueKind::result && reads_in_step(f, node, pair) && f.owns(item) &&
          from.place.modulo == 0 && f.last_use(in) == n && bytes_of(g[in]) == bytes_of(g[out]) &&
          f.item(item).last <= n && f.item(item).bytes == bytes_of(g[out])) {
        at = from;
        at.item = item;
        f.item(item).last = std::max(n, f.last_use(out));
        f.occupy(item);
        break;
      }
    }
    if (at.item == kNoItem) {
      at.place = Operand{};
      at.item = f.add_item(bytes_of(g[out]), n, f.last_use(out));
      f.occupy(at.item);
    }
  }
}

// Fuses the sum into a gradient with the kernel of the contribution, which then writes into the
// gradient. The kernel must support it, and nothing else may read the contribution. Nothing may be
// added to the same gradient in between, so the order of the sums stays the same. A contribution of
// 16 bits is then not rounded before it is added.
bool Lowering::write_into_gradient(Frame& f, uint32_t n) {
  const BoundGraph& g = f.graph;
  const BoundNode& node = g.nodes[n];
  const ValueId value = f.root(node.inputs[1]);
  if (g[value].kind != ValueKind::result || g.nodes[g[value].node].repeat) {
    return false;
  }
  const uint32_t maker = g[value].node;
  const size_t index = f.record_of[maker];
  const auto output = static_cast<size_t>(g[value].output);
  const uint32_t item = f.location(value).item;
  if (f.readers(value) != 1 || adds_between(f, maker + 1, n) ||
      (accumulates_[index] >> output & 1) == 0 || f.is_output(value) || !f.owns(item) ||
      f.is_shared(item)) {
    return false;
  }
  Record& record = plan_.program.records[index];
  f.item(item).bytes = 0;
  const BoundValue& gradient = g[f.root(node.inputs[0])];
  // An operand with a table needs no placement.
  Operand& o = record.outputs[output];
  o = Operand{
      .dtype = gradient.dtype, .encoding = {}, .shape = o.shape, .table = table_of(gradient)};
  record.accumulate |= uint32_t{1} << output;
  note_written(gradient);
  return true;
}

void Lowering::note_written(const BoundValue& storages) {
  for (const StorageUse& u : storages.uses) {
    if (u.elements != 0) {
      plan_.written.push_back(u.tie);
    }
  }
}

void Lowering::note_steps(const Record& record) {
  const std::span<const StepWordInfo> words = step_words(record.op);
  for (size_t i = 0; i < words.size(); ++i) {
    auto use = std::ranges::find(plan_.steps, record.step[i], &StepUse::offset);
    if (use == plan_.steps.end()) {
      use = plan_.steps.insert(use, StepUse{&words[i], record.step[i]});
    }
    uint32_t& user = words[i].written ? use->writer : use->reader;
    user = std::min(user, record.node);
  }
}

Status Lowering::lower_node(Frame& f, uint32_t n) {
  const BoundNode& node = f.graph.nodes[n];
  BOWLINE_TRY(spend_time());
  f.record_of[n] = plan_.program.records.size();
  const OpDef& def = op_def(node.op);
  const bool adds = def.gradient_rows == GradientRows::added;
  if (f.is_view(n) || (adds && write_into_gradient(f, n))) {
    return {};
  }
  return node.repeat ? lower_repeat(f, n) : lower_operator(f, n);
}

Status Lowering::lower_operator(Frame& f, uint32_t n) {
  const BoundGraph& g = f.graph;
  const BoundNode& node = g.nodes[n];
  const OpDef& def = op_def(node.op);
  const size_t index = plan_.program.records.size();
  Record record;
  record.op = node.op;
  record.attributes = node.attributes;
  choose_result_locations(f, n);
  int position = 0;
  for (const ValueId v : node.inputs) {
    Operand o = operand(f, v, index, position++);
    const BoundValue& info = g[f.root(v)];
    BOWLINE_TRY(require_whole_rows(f, n, v, o));
    record.inputs.push_back(info.kind == ValueKind::parameter ? parameter_operand(f, node, info, o)
                                                              : o);
  }
  for (const graph::ReadCount& read : node.read_counts) {
    Operand& o = record.inputs[read.input];
    o.counted_axis = read.axis;
    o.count_at = plan_.counts[static_cast<size_t>(read.dim)];
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Operand o = operand(f, node.outputs[i], index, position++);
    if (const int from = updated_input(def, i); from >= 0) {
      o = record.inputs[static_cast<size_t>(from)];
      o.counted_axis = -1;
      note_written(g[f.root(node.inputs[static_cast<size_t>(from)])]);
    }
    record.outputs.push_back(o);
  }
  return add_record(f, n, describe(g, n), std::move(record));
}

// The answer for all iterations of the Repeat around the record: the storages of a table may have
// different encodings.
device::NodeAnswer Lowering::query(const Record& record) const {
  std::vector<Operand> inputs = record.inputs;
  const auto ask = [&] {
    return device_.query(
        {record.op, record.type, record.attributes, inputs, record.outputs, record.candidate});
  };
  // Sets the encodings of an iteration. Returns false if none changes.
  const auto enter = [&](size_t iteration) {
    bool changed = false;
    for (Operand& o : inputs) {
      if (o.table != device::kNoTable && !o.encoding.is_plain()) {
        const auto& entries = plan_.program.tables[o.table].entries;
        changed = changed || entries[iteration].encoding != o.encoding;
        o.encoding = entries[iteration].encoding;
      }
    }
    return changed;
  };
  size_t iterations = 0;
  for (const Operand& o : inputs) {
    const bool listed = o.table != device::kNoTable && !o.encoding.is_plain();
    iterations = listed ? plan_.program.tables[o.table].entries.size() : iterations;
  }
  device::NodeAnswer out = ask();
  for (size_t i = 0; i < iterations && out.reason.empty(); ++i) {
    if (enter(i)) {
      const device::NodeAnswer answer = ask();
      out.reason = answer.reason;
      out.accumulates &= answer.accumulates;
      out.workspace_bytes = std::max(out.workspace_bytes, answer.workspace_bytes);
    }
  }
  return out;
}

Status Lowering::add_record(Frame& f, uint32_t n, std::string name, Record record) {
  const size_t index = plan_.program.records.size();
  BOWLINE_TRY(set_type(record).at(format("While planning {}.", name)));
  BOWLINE_TRY(device_.check_caller());
  record.node = static_cast<uint32_t>(plan_.nodes.size());
  device::NodeAnswer answer = query(record);
  if (answer.candidates != 0) {
    std::string key = device::node_key(
        {record.op, record.type, record.attributes, record.inputs, record.outputs});
    record.candidate = device_.choose(key, answer.candidates);
    if (record.candidate != device::kNoCandidate) {
      answer = query(record);
    }
    plan_.tunable[record.node] = {std::move(key), answer.candidates};
  }
  BOWLINE_REQUIRE_CODE(answer.reason.empty(), Code::unsupported, "Device {} cannot run {}: {}",
                       device_.info().name, name, answer.reason);
  plan_.nodes.push_back(std::move(name));
  BOWLINE_TRY(steps_.clash(record.op).at(format("While planning {}.", plan_.nodes.back())));
  record.step = steps_.add(record.op);
  note_steps(record);
  accumulates_.resize(index + 1);
  accumulates_[index] = answer.accumulates;
  record.workspace.dtype = DType::u8;
  record.workspace.shape = Shape{static_cast<int64_t>(answer.workspace_bytes)};
  if (answer.workspace_bytes != 0) {
    f.pending.push_back({index, -1, f.add_item(answer.workspace_bytes, n, n)});
  }
  plan_.program.records.push_back(std::move(record));
  return {};
}

Status Lowering::lower_nodes(Frame& f) {
  for (uint32_t n = 0; n < f.graph.nodes.size(); ++n) {
    BOWLINE_TRY(lower_node(f, n));
  }
  return {};
}

void Lowering::resolve(Frame& f) {
  for (const Pending& p : f.pending) {
    Operand& o = operand_at(p.record, p.operand);
    if (o.table == device::kNoTable) {
      o.offset += f.item(f.item_of(p.item)).offset;
    }
  }
}

// Counts the nodes that one run executes: those of a Repeat once per iteration.
Status Lowering::spend_nodes(const BoundGraph& g) {
  for (const BoundNode& node : g.nodes) {
    uint64_t nodes = 1;
    if (node.repeat &&
        !checked_mul(uint64_t{node.repeat->count}, node.repeat->body->nodes.size() + 1, nodes)) {
      nodes = UINT64_MAX;
    }
    BOWLINE_TRY(meter_.spend(0, nodes).at("While counting the nodes that one run executes."));
  }
  return {};
}

// Checks the clock only now and then, because a check costs as much as a small node.
Status Lowering::spend_time() {
  constexpr uint32_t kEach = 64;
  return lowered_++ % kEach == 0 ? meter_.spend(0).at("While planning.") : Status();
}

Result<IoRange> Lowering::add_io(Frame& f, ValueId v, const std::string& name) {
  const BoundValue& info = f.graph[v];
  IoRange range{name, info.dtype, info.shape, plan_.io_bytes, info.counted};
  Location& at = f.location(v);
  at.place = Operand{};
  at.place.slot = device::kIoSlot;
  at.place.offset = range.offset;
  BOWLINE_REQUIRE_CODE(
      checked_add(plan_.io_bytes, round_up(bytes_of(info), alignment_), plan_.io_bytes),
      Code::out_of_memory, "Inputs and outputs have more than 2^64 - 1 bytes together.");
  return range;
}

// If the graph reads held values, its temporaries are placed after them.
void Lowering::find_held(Frame& f) {
  const graph::HeldValues& held = f.graph.held;
  for (size_t i = 0; i < held.values.size() && !held.made; ++i) {
    Location& at = f.location(held.values[i]);
    at.place = Operand{};
    at.place.slot = device::kArenaSlot;
    at.place.offset = held.offsets[i];
  }
  if (!held.made && held.bytes != 0) {
    pin(f, f.add_item(held.bytes, 0, UINT32_MAX), 0);
  }
}

// If the graph makes held values, its temporaries may use the places of these values until they are
// made. They never use the places of held values of other plans.
void Lowering::place_made(Frame& f) {
  const graph::HeldValues& held = f.graph.held;
  if (!held.made) {
    return;
  }
  uint64_t end = held.offsets[0];
  pin(f, f.add_item(end, 0, UINT32_MAX), 0);
  for (size_t i = 0; i < held.values.size(); ++i) {
    const uint32_t item = f.item_of(f.location(held.values[i]).item);
    pin(f, item, held.offsets[i]);
    end = held.offsets[i] + round_up(f.item(item).bytes, alignment_);
  }
  pin(f, f.add_item(held.bytes - end, 0, UINT32_MAX), end);
}

void Lowering::pin(Frame& f, uint32_t item, uint64_t offset) {
  f.item(item).offset = offset;
  f.item(item).pinned = true;
}

Status Lowering::add_counts(const BoundGraph& g) {
  plan_.counted = g.counted;
  for (const graph::CountedDim& dim : g.counted) {
    BOWLINE_TRY_ASSIGN(plan_.counts.emplace_back(), steps_.add_count(dim.name, dim.capacity));
  }
  return {};
}

Status Lowering::run(BoundGraph& g) {
  BOWLINE_TRY(spend_nodes(g));
  BOWLINE_TRY(add_counts(g));
  Frame f(g, nullptr, {});
  for (const ValueId v : g.inputs) {
    BOWLINE_TRY_ASSIGN(plan_.inputs.emplace_back(), add_io(f, v, g[v].name));
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    BOWLINE_TRY_ASSIGN(plan_.outputs.emplace_back(), add_io(f, g.outputs[i], g.output_names[i]));
  }
  find_held(f);
  BOWLINE_TRY(lower_nodes(f));
  place_made(f);
  BOWLINE_TRY_ASSIGN(const MemoryLayout layout, place(f.items(), alignment_, part_bytes_));
  plan_.arena_bytes = layout.bytes;
  plan_.arena_lower_bound = layout.lower_bound;
  BOWLINE_TRY(meter_.spend(plan_.arena_bytes).at("While placing the arena."));
  BOWLINE_TRY(meter_.spend(plan_.io_bytes).at("While placing inputs and outputs."));
  resolve(f);
  plan_.program.slots = device::kFirstStorageSlot + static_cast<uint32_t>(plan_.storages.size());
  std::ranges::sort(plan_.written);
  plan_.written.erase(std::unique(plan_.written.begin(), plan_.written.end()), plan_.written.end());
  return {};
}

Result<Plan> lower(BoundGraph graph, std::string name, const device::OpenDevice& device,
                   StepLayout& steps, const Budget& budget) {
  Plan plan;
  plan.name = std::move(name);
  graph = graph::deep_copy(graph);
  renumber(graph);
  Lowering lowering(device, plan, steps, budget);
  BOWLINE_TRY(lowering.run(graph));
  mark_first_contributions(plan.program);
  assign_levels(plan.program);
  return plan;
}

}  // namespace bowline::detail::plan
