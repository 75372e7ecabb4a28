// What an optimizer adds: rows of the table, and the graph of the update segment.
#pragma once

#include "graph/graph.h"
#include "params/table.h"

namespace bowline::detail::train {

// Tie indices of the storages that are trained, ascending; one without elements has nothing to
// train.
std::vector<uint32_t> trained(const params::Table& table);

// Whether the storage is trained through an f32 master, which is rounded into it.
bool has_master(const params::Storage& storage);

// A row that the optimizer keeps for a storage; its slot is its place among them.
struct Moment {
  Shape shape;
  bool squares = false;  // a mean or sum of squares: never negative
};
std::vector<Moment> moments(const Optimizer& optimizer, const Shape& weight);

// Adds the missing rows of gradients, moments and masters. They wait: nothing is allocated.
void add_rows(params::Table& table, const Optimizer& optimizer);
// One row of them, unless it is there.
void add_row(params::Table& table, uint32_t owner, params::Role role, uint32_t slot,
             const Shape& shape);

// The blocks of the rows of a training that wait for one.
void add_waiting(const params::Table& table, device::Demand& demand);
// Gives them their blocks on the devices of their owners, with what a file holds for them, else
// zeros. After a failure some have theirs.
Status place_waiting(params::Table& table);

// The update segment: clip, then one optimizer node per group of equal rules. Its size does not
// depend on the number of storages. Its input is the loss, for a look whether it is finite. No
// outputs: norm and flags go into the step words.
Result<graph::BoundGraph> update_graph(const params::Table& table, const TrainOptions& options);

}  // namespace bowline::detail::train
