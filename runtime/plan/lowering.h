// Lowering turns a graph into a Program: values get locations, nodes become records.
#pragma once

#include <map>
#include <set>

#include "core/budget.h"
#include "plan/memory.h"
#include "plan/plan.h"

namespace bowline::detail::plan {

constexpr uint32_t kNoItem = UINT32_MAX;
constexpr uint32_t kNoSlot = UINT32_MAX;

inline uint64_t bytes_of(const graph::BoundValue& v) {
  return static_cast<uint64_t>(v.shape.elements()) * size_of(v.dtype);
}

// Where the bytes of a value are: in an item of the arena, or at a place that is known already.
struct Location {
  uint32_t item = kNoItem;  // if set, the offset of `place` is relative to this item
  device::Operand place;    // slot, offset, table and step rule, but not dtype and shape

  Location() { place.slot = kNoSlot; }
};

// An operand of a record whose offset is not known before the item is placed.
struct Pending {
  size_t record;
  int operand;  // inputs first, then outputs, then the workspace
  uint32_t item;
};

// A graph with the locations of its values. The body of a Repeat has its own Frame. A body can use
// items of its own and of the outer graph, so their numbers do not overlap.
class Frame {
 public:
  // Outputs in `keep` may be inputs (carried values that are kept). Other outputs that are inputs
  // get a result of their own.
  Frame(graph::BoundGraph& g, Frame* around, const std::set<size_t>& keep);

  graph::ValueId root(graph::ValueId v) const { return roots_[v]; }
  Location& location(graph::ValueId v) { return locations_[roots_[v]]; }
  // Whether node n has no record because its output has the bytes of its input.
  bool is_view(uint32_t n) const { return is_view_[n]; }
  // The item that replaces `i`. The item of an initial value moves into the region that it enters.
  uint32_t item_of(uint32_t i) const;

  // Starts the item numbers of a body after the current items of the outer graph.
  void begin_items();
  uint32_t add_item(uint64_t bytes, uint32_t first, uint32_t last);
  bool owns(uint32_t item) const { return item != kNoItem && item >= first_item_; }
  MemoryItem& item(uint32_t i) { return items_[i - first_item_]; }
  std::span<MemoryItem> items() { return items_; }
  void move_into(uint32_t from, uint32_t region);
  // Counts one more value of this frame in the item.
  void occupy(uint32_t i) { ++values_in_[i - first_item_]; }
  bool is_shared(uint32_t i) const { return values_in_[i - first_item_] > 1; }

  // The last node that reads a root value, and the number of node inputs that read it.
  uint32_t last_use(graph::ValueId root) const { return last_use_[root]; }
  uint32_t readers(graph::ValueId root) const { return readers_[root]; }
  bool is_output(graph::ValueId root) const { return is_output_[root]; }

  graph::BoundGraph& graph;
  Frame* const outer;
  std::vector<size_t> record_of;  // by node
  std::vector<Pending> pending;

 private:
  void find_uses();

  std::vector<graph::ValueId> roots_;
  std::vector<bool> is_view_;
  std::vector<Location> locations_;  // by root value
  std::vector<uint32_t> last_use_, readers_;
  std::vector<bool> is_output_;
  uint32_t first_item_ = 0;
  std::vector<MemoryItem> items_;
  std::vector<uint32_t> moved_into_;  // by item: itself, or the region
  std::vector<uint32_t> values_in_;
};

// Sets Record::type. Fails if an operand has a dtype that the operator does not accept, because
// backends do not check this again.
Status set_type(device::Record& record);

class Lowering {
 public:
  Lowering(const device::OpenDevice& device, Plan& plan, StepLayout& steps, const Budget& budget)
      : device_(device),
        plan_(plan),
        steps_(steps),
        meter_(budget),
        alignment_(device.capabilities().alignment),
        part_bytes_(arena_part_bytes(device.capabilities())) {}

  Status run(graph::BoundGraph& g);

 private:
  Status spend_nodes(const graph::BoundGraph& g);
  Status spend_time();
  Status add_counts(const graph::BoundGraph& g);
  Result<IoRange> add_io(Frame& f, graph::ValueId v, const std::string& name);
  static void find_held(Frame& f);
  void place_made(Frame& f);
  static void pin(Frame& f, uint32_t item, uint64_t offset);
  Status lower_nodes(Frame& f);
  Status lower_node(Frame& f, uint32_t n);
  Status lower_operator(Frame& f, uint32_t n);
  bool write_into_gradient(Frame& f, uint32_t n);
  void choose_result_locations(Frame& f, uint32_t n);
  device::Operand operand(Frame& f, graph::ValueId v, size_t record, int position);
  static Status require_whole_rows(Frame& f, uint32_t n, graph::ValueId v,
                                   const device::Operand& o);
  device::Operand parameter_operand(const Frame& f, const graph::BoundNode& node,
                                    const graph::BoundValue& v, device::Operand o);
  uint32_t table_of(const graph::BoundValue& v);
  uint32_t slot_of(uint32_t tie, const std::shared_ptr<const params::Form>& form);
  void note_written(const graph::BoundValue& storages);
  void note_steps(const device::Record& record);
  // Adds a record. All records are added here, also records without a node in the graph. `n` is the
  // position at which the record runs.
  device::NodeAnswer query(const device::Record& record) const;
  Status add_record(Frame& f, uint32_t n, std::string name, device::Record record);
  device::Operand& operand_at(size_t record, int position);
  void resolve(Frame& f);

  // lower_repeat.cpp
  Status lower_repeat(Frame& f, uint32_t n);
  Status enter(Frame& f, uint32_t n, uint32_t c, uint32_t region, bool alone);
  Status place_carried(Frame& f, Frame& inner, uint32_t n,
                       const std::map<graph::ValueId, size_t>& kept);
  void place_inputs(Frame& f, Frame& inner, const graph::BoundNode& node);
  Status place_stacked(Frame& f, Frame& inner, uint32_t n, const std::set<size_t>& kept_outputs);
  Status lower_body(Frame& f, Frame& inner, uint32_t n);

  const device::OpenDevice& device_;
  Plan& plan_;
  StepLayout& steps_;
  Meter meter_;
  uint64_t alignment_;
  uint64_t part_bytes_;
  uint32_t lowered_ = 0;                     // nodes
  std::multimap<uint32_t, uint32_t> slots_;  // tie index -> slots of the storage and its copies
  std::vector<uint32_t> accumulates_;        // by record: outputs that may be gradients
};

}  // namespace bowline::detail::plan
