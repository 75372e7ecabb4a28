// Plan: a bound graph lowered for one device. It has a Program, the places of its operands, and the
// memory that it needs.
#pragma once

#include "device/device.h"
#include "graph/bind.h"
#include "plan/step_layout.h"

namespace bowline::detail::plan {

// An input or output of the graph in the io buffer.
struct IoRange {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t offset = 0;
  // For each axis: its dynamic dimension, as an index into Plan::counted, or graph::kNotCounted.
  // Empty: no axis is dynamic. Behind the current size, inputs are zero and outputs are undefined.
  std::vector<int> counted;

  uint64_t bytes() const { return static_cast<uint64_t>(shape.elements()) * size_of(dtype); }
};

// A per-step scalar that records of the plan read or write.
struct StepUse {
  static constexpr uint32_t kNobody = UINT32_MAX;
  const StepWordInfo* word = nullptr;
  uint32_t offset = 0;
  uint32_t reader = kNobody;  // the first Record::node that reads it
  uint32_t writer = kNobody;
};

// The contents of a slot of a plan: a storage, or its derived copy in a form.
struct StorageSlot {
  uint32_t tie = 0;
  std::shared_ptr<const params::Form> form;  // null: the storage

  bool operator==(const StorageSlot& other) const {
    return tie == other.tie && (form == nullptr) == (other.form == nullptr) &&
           (form == nullptr || *form == *other.form);
  }
};

struct Plan {
  std::string name;  // the segment: "forward", "accumulate", "update", "refresh"
  device::Program program;
  std::vector<StorageSlot> storages;  // slot kFirstStorageSlot + i
  std::vector<uint32_t> written;      // tie indices of the storages that the segment writes
  std::vector<IoRange> inputs;
  std::vector<IoRange> outputs;
  std::vector<StepUse> steps;
  std::vector<graph::CountedDim> counted;
  std::vector<uint32_t> counts;  // by dynamic dimension: offset of its size in the step buffer
  uint64_t io_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t arena_lower_bound = 0;
  std::vector<std::string> nodes;  // by Record::node: the node, for messages
  // By Record::node: how tuning files identify the node, and the number of its candidates. Nodes
  // without candidates have no entry.
  struct Tunable {
    std::string key;
    uint32_t candidates = 0;
  };
  std::map<uint32_t, Tunable> tunable;
};

// Lowers a graph. Adds the per-step scalars of the nodes to `steps`. Takes O(n log n) time in the
// number of nodes, values and table entries.
// Errors  unsupported: the device cannot run a node. The message has the node and the reason.
//         over_budget: the plan needs more nodes, seconds or bytes than `budget`.
Result<Plan> lower(graph::BoundGraph graph, std::string name, const device::OpenDevice& device,
                   StepLayout& steps, const Budget& budget = Budget::of_plan());

// Returns the plan that computes a derived copy. It has one record, which reads slot
// kFirstStorageSlot and writes the next slot.
// Errors  unsupported: the device cannot run the record.
Result<Plan> refresh(const StorageSlot& copy, const params::Storage& storage,
                     const device::OpenDevice& device);

// Removes nodes that only convert a storage to another form (OpDef::derived_copy). Their readers
// read the derived copy. Nodes stay if their parameter is a view of only a part of the storage.
// Returns how many of the first `boundary` nodes stay.
size_t derive_copies(graph::BoundGraph& graph, const params::Table& table, size_t boundary = 0);

// Returns the values that depend only on parameters and that a node reads which depends on more.
// Values that depend on states or on parameters that the graph writes are left out, and so are
// integers (they may be out-of-range indices). For a view node, the list has the value whose bytes
// it shares.
std::vector<graph::ValueId> hoistable(const graph::BoundGraph& graph, const params::Table& table);

// Returns the smallest values of `values` whose sizes add up to at most `bytes`.
std::vector<graph::ValueId> smallest(const graph::BoundGraph& graph,
                                     std::vector<graph::ValueId> values, uint64_t bytes);

// Moves the nodes that compute `values` out of `graph` and returns a graph of these nodes. `graph`
// then reads `values` as held values (HeldValues).
graph::BoundGraph hoist(graph::BoundGraph& graph, std::span<const graph::ValueId> values);

// Sets the offsets of the held values in both graphs, starting at offset `begin`. Returns the end.
uint64_t hold(graph::BoundGraph& makes, graph::BoundGraph& reads, uint64_t begin,
              const device::Capabilities& capabilities);

// Sets TableEntry::first of gradients: the first contribution to a storage overwrites the old
// gradient, unless a record has set the gradient to zero. graph/gradient.cpp adds such a record if
// a contribution covers only a part of the storage.
void mark_first_contributions(device::Program& program);

// Sets the level of each record. A record starts a new level if it conflicts with an earlier record
// of the current level, that is, if both use the same bytes and at least one writes them.
void assign_levels(device::Program& program);

}  // namespace bowline::detail::plan
