// A Repeat becomes a Copy of each carried value into its region (omitted if the value is made
// there), a begin, the records of the body and an end. The region of a carried value has two slots
// that the iterations use in turn. If its values are kept for the backward pass, it has count + 1
// slots.
#include "base/checked.h"
#include "plan/lowering.h"

namespace bowline::detail::plan {

using device::Operand;
using device::Record;
using graph::BoundGraph;
using graph::BoundNode;
using graph::BoundRepeat;
using graph::BoundValue;
using graph::ValueId;
using graph::ValueKind;

namespace {

// The carried inputs of the body that are kept unchanged: stacked outputs whose root is such an
// input. Maps inputs to output positions.
std::map<ValueId, size_t> kept_inputs(const BoundRepeat& repeat) {
  const BoundGraph& body = *repeat.body;
  const std::set<ValueId> carried(body.inputs.begin(), body.inputs.begin() + repeat.carried);
  std::map<ValueId, size_t> kept;
  for (size_t o = repeat.carried; o < body.outputs.size(); ++o) {
    ValueId v = body.outputs[o];
    while (body[v].kind == ValueKind::result && op_def(body.nodes[body[v].node].op).is_view) {
      v = body.nodes[body[v].node].inputs[0];
    }
    if (carried.contains(v)) {
      kept.try_emplace(v, o);
    }
  }
  return kept;
}

Result<uint64_t> region_bytes(uint64_t step, uint64_t slots) {
  uint64_t bytes = 0;
  BOWLINE_REQUIRE_CODE(checked_mul(step, slots, bytes), Code::out_of_memory,
                       "{} values of {} bytes are kept by a Repeat: more than 2^64 - 1 bytes.",
                       slots, step);
  return bytes;
}

}  // namespace

// Moves the initial value of carried value c into its region. `alone`: no other input of the Repeat
// has the same value.
Status Lowering::enter(Frame& f, uint32_t n, uint32_t c, uint32_t region, bool alone) {
  const BoundGraph& g = f.graph;
  const BoundNode& node = g.nodes[n];
  const ValueId init = node.inputs[c];
  const ValueId root = f.root(init);
  const BoundValue& value = (*node.repeat->body)[node.repeat->body->inputs[c]];
  const Location& from = f.location(init);
  const uint32_t item = f.item_of(from.item);
  // It is made in the region if it is a plain result that nothing else reads.
  if (g[root].kind == ValueKind::result && f.owns(item) && from.place.modulo == 0 &&
      from.place.offset == 0 && f.last_use(root) == n && f.item(item).last == n &&
      f.item(item).bytes == bytes_of(value) && alone) {
    f.move_into(item, region);
    return {};
  }
  const size_t index = plan_.program.records.size();
  Record copy;
  copy.op = op_with(OpRole::copy);
  copy.attributes = Attributes::of(NoAttributesT{});
  Operand source = operand(f, init, index, 0);
  if (g[root].kind == ValueKind::parameter) {
    source = parameter_operand(f, node, g[root], source);
  }
  copy.inputs = {source};
  Operand target;
  target.dtype = value.dtype;
  target.shape = value.shape;
  copy.outputs = {target};
  f.pending.push_back({index, 1, region});
  return add_record(f, n, format("the entry of {}", describe(g, n)), std::move(copy));
}

Status Lowering::place_carried(Frame& f, Frame& inner, uint32_t n,
                               const std::map<ValueId, size_t>& kept) {
  const BoundNode& node = f.graph.nodes[n];
  const BoundRepeat& repeat = *node.repeat;
  const BoundGraph& body = inner.graph;
  const uint32_t count = repeat.count;
  std::map<ValueId, uint32_t> entering;  // root -> inputs
  for (const ValueId v : node.inputs) {
    ++entering[f.root(v)];
  }
  for (uint32_t c = 0; c < repeat.carried; ++c) {
    const ValueId value = body.inputs[c];
    const uint64_t step = round_up(bytes_of(body[value]), alignment_);
    const auto kept_as = kept.find(value);
    const bool keeps = kept_as != kept.end();
    const uint32_t modulo = keeps ? count + 1 : 2;
    const ValueId final_value = node.outputs[c];
    uint32_t last = f.last_use(final_value);
    if (keeps) {
      last = std::max(last, f.last_use(node.outputs[kept_as->second]));
    }
    BOWLINE_TRY_ASSIGN(const uint64_t bytes, region_bytes(step, modulo));
    const uint32_t region = f.add_item(bytes, n, last);

    // A reversed Repeat starts with iteration count - 1, which uses slot 0.
    Location& in = inner.location(value);
    in.item = region;
    in.place = Operand{};
    in.place.modulo = modulo;
    in.place.shift = repeat.reverse ? (count - 1) % 2 : 0;
    in.place.step_bytes = step;
    const Location begun = in;
    Location& out = inner.location(body.outputs[c]);
    out = begun;
    out.place.shift = repeat.reverse ? count % 2 : 1;

    Location& result = f.location(final_value);
    result.item = region;
    result.place = Operand{};
    result.place.offset = step * (keeps ? count : count % 2);
    if (keeps) {
      Location& stacked = f.location(node.outputs[kept_as->second]);
      stacked.item = region;
      stacked.place = Operand{};
      stacked.place.modulo = modulo;
      stacked.place.step_bytes = step;
    }
    BOWLINE_TRY(enter(f, n, c, region, entering[f.root(node.inputs[c])] == 1));
  }
  return {};
}

// Invariant and stacked inputs keep the locations that they have outside.
void Lowering::place_inputs(Frame& f, Frame& inner, const BoundNode& node) {
  for (size_t i = node.repeat->carried; i < node.inputs.size(); ++i) {
    const BoundValue& outer = f.graph[f.root(node.inputs[i])];
    Location& in = inner.location(inner.graph.inputs[i]);
    in = f.location(node.inputs[i]);
    if (outer.kind == ValueKind::parameter) {
      in.place = parameter_operand(f, node, outer, Operand{});
      in.place.encoding = outer.encoding;
      in.place.shape = outer.shape;
    }
  }
}

Status Lowering::place_stacked(Frame& f, Frame& inner, uint32_t n,
                               const std::set<size_t>& kept_outputs) {
  const BoundNode& node = f.graph.nodes[n];
  const BoundGraph& body = inner.graph;
  const uint32_t count = node.repeat->count;
  for (size_t o = node.repeat->carried; o < body.outputs.size(); ++o) {
    if (kept_outputs.contains(o)) {
      continue;
    }
    const uint64_t step = round_up(bytes_of(body[body.outputs[o]]), alignment_);
    BOWLINE_TRY_ASSIGN(const uint64_t bytes, region_bytes(step, count));
    Location& stacked = f.location(node.outputs[o]);
    stacked.item = f.add_item(bytes, n, f.last_use(node.outputs[o]));
    stacked.place = Operand{};
    stacked.place.modulo = count;
    stacked.place.step_bytes = step;
    inner.location(body.outputs[o]) = stacked;
  }
  return {};
}

// The items of the body become one item of the enclosing frame.
Status Lowering::lower_body(Frame& f, Frame& inner, uint32_t n) {
  const BoundRepeat& repeat = *f.graph.nodes[n].repeat;
  Record begin;
  begin.kind = Record::Kind::repeat_begin;
  begin.count = repeat.count;
  begin.reverse = repeat.reverse;
  plan_.program.records.push_back(begin);
  BOWLINE_TRY(lower_nodes(inner).at(format("In the body of {}.", describe(f.graph, n))));
  Record end;
  end.kind = Record::Kind::repeat_end;
  plan_.program.records.push_back(end);

  BOWLINE_TRY_ASSIGN(const MemoryLayout layout, place(inner.items(), alignment_, part_bytes_));
  const uint32_t body_item = f.add_item(layout.bytes, n, n);
  for (const Pending& p : inner.pending) {
    const uint32_t item = inner.item_of(p.item);
    if (inner.owns(item)) {
      operand_at(p.record, p.operand).offset += inner.item(item).offset;
      f.pending.push_back({p.record, p.operand, body_item});
    } else {
      f.pending.push_back(p);
    }
  }
  return {};
}

Status Lowering::lower_repeat(Frame& f, uint32_t n) {
  const BoundNode& node = f.graph.nodes[n];
  const std::map<ValueId, size_t> kept = kept_inputs(*node.repeat);
  std::set<size_t> kept_outputs;
  for (const auto& [value, output] : kept) {
    kept_outputs.insert(output);
  }
  // Its items follow the current items of the enclosing frame.
  Frame inner(*node.repeat->body, &f, kept_outputs);
  BOWLINE_TRY(place_carried(f, inner, n, kept));
  place_inputs(f, inner, node);
  BOWLINE_TRY(place_stacked(f, inner, n, kept_outputs));
  inner.begin_items();
  return lower_body(f, inner, n);
}

}  // namespace bowline::detail::plan
