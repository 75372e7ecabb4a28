// What an optimizer adds to a model: rows of the table, and the graph of the update segment.
#pragma once

#include "graph/graph.h"
#include "params/table.h"

namespace bowline::detail::train {

// Returns the tie indices of the storages to train, ascending, without those of 0 elements.
std::vector<uint32_t> trained(const params::Table& table);

// Returns true if the storage is trained through an f32 master: its dtype is not f32.
bool has_master(const params::Storage& storage);

// A row that the optimizer keeps for a storage. Its slot is its index in moments().
struct Moment {
  Shape shape;
  bool squares = false;  // a mean or sum of squares: never negative
};
// Returns the moments that the optimizer keeps for a weight of this shape.
std::vector<Moment> moments(const Optimizer& optimizer, const Shape& weight);

// Adds the missing rows of gradients, and those of moments and masters of the storages that this
// process owns. They get memory in place_waiting().
void add_rows(params::Table& table, const TrainOptions& options);
// Adds one such row, unless the table has it already.
void add_row(params::Table& table, uint32_t owner, params::Role role, uint32_t slot,
             const Shape& shape);

// Adds the memory that rows of training without a device block need.
void add_waiting(const params::Table& table, device::Demand& demand);
// Allocates these blocks on the devices of the owners. A row gets its values from a file, or else
// zeros. After a failure, some rows may have blocks.
Status place_waiting(params::Table& table);

// Returns the graph of the update segment: clipping, and one optimizer node per group of storages
// with equal rules. The number of nodes does not depend on the number of storages. An optimizer
// also writes the 16-bit weights of f32 masters, and the 16-bit copies of f32 weights that
// `training` reads. It updates only the storages that this process owns. The input is the loss,
// which is checked for a non-finite value. There are no outputs: the gradient norm and flags are
// per-step scalars.
Result<graph::BoundGraph> update_graph(const params::Table& table, const TrainOptions& options,
                                       const graph::BoundGraph& training);

}  // namespace bowline::detail::train
