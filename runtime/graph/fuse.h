// Fusion: named rewrites of bound graphs that only run, one file each in rewrites/. What a graph
// computes stays, but for the order of roundings. A rewrite asks the device for the kernels that it
// wants: without them the graph stays as it is.
#pragma once

#include "device/device.h"
#include "graph/graph.h"

namespace bowline::detail::graph {

// All rewrites, in bodies too. Returns whether there was anything to fuse.
Result<bool> fuse(BoundGraph& graph, const device::OpenDevice& device);

// Whether a fused graph is right in a run that gives this step word.
bool fusion_allows(const StepScalar& scalar);

// rewrites/training.cpp: leaves out the nodes that do something only while `training` is not 0
// (OpDef::only_trains), in bodies too. Returns whether there were any.
bool drop_what_trains(BoundGraph& graph);

// rewrites/slices.cpp: what Slice, Concat and Reshape take apart and put together again is the
// value that it was, or one slice of it, as weights are whose gates another format has in another
// order. Returns whether there were any; bodies stay as they are.
bool join_slices(BoundGraph& graph);

// rewrites/gates.cpp: x * sigmoid(x) is Silu, where nothing else reads the sigmoid. Returns whether
// there were any; bodies stay as they are.
bool join_gates(BoundGraph& graph);

// rewrites/convolution.cpp: Conv and, if they follow, BatchNorm, Add and Clip or Relu become
// FusedConv, with the channels last from one to the next, and through what works element by
// element, pools or puts channels side by side. Right only while `training` is 0: the running
// statistics are read, and written no more.
Result<bool> fuse_convolutions(BoundGraph& graph, const device::OpenDevice& device);

// Training graphs only; not part of fuse() (rewrites/tables.cpp). If a Linear or MatMul multiplies
// f32 rows that an Embedding gathers, the graph multiplies the whole table first. The Embedding
// then gathers rows of the product. The table may have at most half as many rows as there are ids,
// so the product is at most half as large as the gathered rows. Gradients are summed per row before
// the products, not after them. This changes only the rounding. Rows that no id selects are
// multiplied too, so a non-finite value in such a row reaches the gradient of the weight. The
// Embedding keeps its name for out-of-range errors. Bodies of Repeats are not changed. Returns true
// if the graph changed.
bool multiply_tables(BoundGraph& graph);

}  // namespace bowline::detail::graph
