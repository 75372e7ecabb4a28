// Plan: a bound graph made concrete for one device: a Program, where its operands lie, and how much
// memory it takes.
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
  // For each axis the counted dim of the plan, or graph::kNotCounted; empty: of none. Behind a
  // count an input is zero, and an output holds anything.
  std::vector<int> counted;

  uint64_t bytes() const { return static_cast<uint64_t>(shape.elements()) * size_of(dtype); }
};

// A step word that records of the plan read or write.
struct StepUse {
  static constexpr uint32_t kNobody = UINT32_MAX;
  const StepWordInfo* word = nullptr;
  uint32_t offset = 0;
  uint32_t reader = kNobody;  // the first Record::node that reads it
  uint32_t writer = kNobody;
};

// What a slot of a plan is: a storage, or its derived copy of a form.
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
  std::vector<uint32_t> counts;  // by counted dim: the offset of its number in the step buffer
  uint64_t io_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t arena_lower_bound = 0;
  std::vector<std::string> nodes;  // by Record::node: how messages name it
};

// `steps` gets the step words of the nodes. Takes about n log n steps in nodes, values and items of
// tables.
// Errors  unsupported: a node that the device cannot run (node and reason). over_budget: more
//         nodes, seconds or bytes than the budget.
Result<Plan> lower(graph::BoundGraph graph, std::string name, const device::OpenDevice& device,
                   StepLayout& steps, const Budget& budget = Budget::of_plan());

// The plan that makes a derived copy: one record, from slot kFirstStorageSlot to the next one; it
// uses no other.
// Errors  unsupported: the device cannot run it.
Result<Plan> refresh(const StorageSlot& copy, const params::Storage& storage,
                     const device::OpenDevice& device);

// Nodes that only make another form of a storage (OpDef::derived_copy) leave the graph: who reads
// their result reads the derived copy. Of a parameter that shows but a part of its storage they
// stay. Returns how many of the first `boundary` nodes are left.
size_t derive_copies(graph::BoundGraph& graph, const params::Table& table, size_t boundary = 0);

// Values that depend only on parameters and are read by a node that depends on more. Left out are
// parameters that the graph writes, states, and integers (they may be out-of-range indices). For a
// view, the list has the value whose bytes the view shows.
std::vector<graph::ValueId> hoistable(const graph::BoundGraph& graph, const params::Table& table);

// The smallest ones of these values that have at most so many bytes together.
std::vector<graph::ValueId> smallest(const graph::BoundGraph& graph,
                                     std::vector<graph::ValueId> values, uint64_t bytes);

// Moves the nodes that make `values` out of `graph` and returns a graph of these nodes. `graph`
// then reads `values` as held values.
graph::BoundGraph hoist(graph::BoundGraph& graph, std::span<const graph::ValueId> values);

// Places the held values of the two graphs from `begin` on. Returns where they end.
uint64_t hold(graph::BoundGraph& makes, graph::BoundGraph& reads, uint64_t begin,
              uint64_t alignment);

// Sets TableEntry::first of gradients: the contribution to a storage that is executed first
// overwrites, unless it was started as zeros before. A storage of which some contribution covers
// only a part has one (graph/gradient.cpp).
void mark_first_contributions(device::Program& program);

// Gives each record its level: a record that touches what an earlier one of the current level
// wrote, or writes what it touches, begins a new level.
void assign_levels(device::Program& program);

}  // namespace bowline::detail::plan
