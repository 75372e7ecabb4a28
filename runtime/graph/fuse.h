// Fusion: rewrites of bound graphs, one file each in rewrites/. A rewrite changes results
// only by rounding. If the device lacks the kernel that a rewrite needs, the graph does not change.
#pragma once

#include "device/device.h"
#include "graph/graph.h"

namespace bowline::detail::graph {

// Applies all rewrites, in bodies too. Returns true if the graph changed.
Result<bool> fuse(BoundGraph& graph, const device::OpenDevice& device);

// Whether a fused graph computes the right results in a run with this per-step scalar.
bool fusion_allows(const StepScalar& scalar);

// rewrites/training.cpp: removes nodes that have an effect only while `training` is not 0
// (OpDef::only_trains), in bodies too. Returns true if the graph changed.
bool drop_what_trains(BoundGraph& graph);

// rewrites/slices.cpp: if Slice, Concat and Reshape only take a value apart and join it again in
// the same order, replaces them by the value or one slice of it. Imported models contain such nodes
// because other formats order gates differently. Does not change bodies. Returns true if the graph
// changed.
bool join_slices(BoundGraph& graph);

// rewrites/gates.cpp: replaces x * sigmoid(x) by Silu if nothing else reads the sigmoid. Does not
// change bodies. Returns true if the graph changed.
bool join_gates(BoundGraph& graph);

// rewrites/convolution.cpp: replaces a Conv, with the BatchNorm, Add and Clip or Relu behind it, by
// FusedConv. Values between FusedConv nodes have the channels last, also through elementwise
// operators, pools and concatenations of channels. Right only while `training` is 0: the running
// statistics are read but not updated.
Result<bool> fuse_convolutions(BoundGraph& graph, const device::OpenDevice& device);

// Inference and training graphs, in bodies too (rewrites/products.cpp). Replaces a matrix product,
// with the Adds, Gelu or GeluGrad behind it, by FusedMatMul. Returns the new index of node
// `begin`.
size_t fuse_products(BoundGraph& graph, const device::OpenDevice& device, size_t begin);

// Inference graphs, in bodies too, before fuse_products() (rewrites/norm_products.cpp). A norm and
// the products that read it become FusedNormMatMul, with the biases, the activation or the gate, or
// the Split behind them. Nothing else may read the norm.
void fuse_norm_products(BoundGraph& graph, const device::OpenDevice& device);

// Inference graphs, in bodies too (rewrites/caches.cpp). The writes of new keys and values into the
// states that an Attention reads become one FusedWriteRows, with the Rope of keys and queries.
void fuse_cache_writes(BoundGraph& graph, const device::OpenDevice& device);

// Training graphs, in bodies too. All return the new index of node `begin`. The gradient of a norm
// and the Add of a residual connection behind it become FusedNormGrad (rewrites/norms.cpp). The
// gradients of a weight and of its bias become one FusedMatMul (rewrites/bias_gradients.cpp).
// CrossEntropy and its gradient become FusedCrossEntropy. If a Linear computes many logits, all
// these, the Linear and its gradients become FusedLinearCrossEntropy (rewrites/losses.cpp).
size_t fuse_norm_gradients(BoundGraph& graph, const device::OpenDevice& device, size_t begin);
size_t fuse_bias_gradients(BoundGraph& graph, const device::OpenDevice& device, size_t begin);
size_t fuse_losses(BoundGraph& graph, const device::OpenDevice& device, size_t begin);

// Graphs before they are differentiated, in bodies too (rewrites/attention.cpp). If q, k and v are
// the parts of a Split, Attention becomes PackedAttention, which reads the whole.
void pack_attention(BoundGraph& graph, const device::OpenDevice& device);

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
