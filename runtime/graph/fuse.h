// Fusion: named rewrites of bound graphs that only run, one file each in rewrites/. What a graph computes stays, but for the order of
// roundings. A rewrite asks the device for the kernels that it wants: without them the graph stays as it is.
#pragma once

#include "device/device.h"
#include "graph/graph.h"

namespace bowline::detail::graph {

// All rewrites, in bodies too. Returns whether there was anything to fuse.
Result<bool> fuse(Graph& graph, const device::OpenDevice& device);

// Whether a fused graph is right in a run that gives this step word.
bool fusion_allows(const StepValue& value);

// rewrites/training.cpp: leaves out the nodes that do something only while `training` is not 0 (OpDef::only_trains), in bodies too.
// Returns whether there were any.
bool drop_what_trains(Graph& graph);

// rewrites/slices.cpp: what Slice, Concat and Reshape take apart and put together again is the value that it was, or one slice of it,
// as weights are whose gates another format has in another order. Returns whether there were any; bodies stay as they are.
bool join_slices(Graph& graph);

// rewrites/gates.cpp: x * sigmoid(x) is Silu, where nothing else reads the sigmoid. Returns whether there were any; bodies stay as they
// are.
bool join_gates(Graph& graph);

// rewrites/convolution.cpp: Conv and, if they follow, BatchNorm, Add and Clip or Relu become FusedConv, with the channels last from one
// to the next, and through what works element by element, pools or puts channels side by side. Right only while `training` is 0: the
// running statistics are read, and written no more.
Result<bool> fuse_convolutions(Graph& graph, const device::OpenDevice& device);

// rewrites/tables.cpp, for graphs that train, and no part of fuse(): the f32 rows that an Embedding gathers and a Linear or MatMul multiplies
// are gathered from the product of the table, if the table has at most half as many rows as there are ids. So the product is at most half
// as large as what is gathered from it. The gradient sums what belongs to a row in front of the products, not behind them: an order of
// roundings. A row that no id names is multiplied too, so that a number in it that is not finite reaches the gradient of the weight. The
// node that gathers keeps its name, for an id out of range. Returns whether there were any; bodies stay as they are.
bool multiply_tables(Graph& graph);

}  // namespace bowline::detail::graph
