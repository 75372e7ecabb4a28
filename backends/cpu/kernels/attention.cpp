//! ops Attention AttentionGrad
// Attention over [batch, position, head, head_dim] operands.
#include "compute/attention.h"

#include <cmath>
#include <utility>

#include "kernel.h"

namespace bowline::cpu {
namespace {

AttentionShape shape_of(const AttentionAttributes& t, const Shape& q, const Shape& k) {
  AttentionShape s;
  s.batch = static_cast<size_t>(q[0]);
  s.queries = static_cast<size_t>(q[1]);
  s.heads = static_cast<size_t>(q[2]);
  s.dim = static_cast<size_t>(q[3]);
  s.keys = static_cast<size_t>(k[1]);
  s.kv_heads = static_cast<size_t>(k[2]);
  s.causal = t.causal();
  s.scale =
      t.scale() != 0 ? t.scale() : static_cast<float>(1 / std::sqrt(static_cast<double>(q[3])));
  return s;
}

AttentionStrides strides_of(const Shape& x) {
  return {static_cast<size_t>(x.elements(1, 4)), static_cast<size_t>(x[3]),
          static_cast<size_t>(x.elements(2, 4))};
}

AttentionInput input(const Arg& a) { return {a.f32(), strides_of(*a.shape)}; }
AttentionOutput output(const Arg& a) { return {a.f32(), strides_of(*a.shape)}; }

void run(const Launch& l) {
  AttentionShape s = shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape);
  const size_t rows = std::exchange(s.queries, static_cast<size_t>(l.extent(0, 1)));
  s.keys = static_cast<size_t>(l.extent(1, 1));
  attention(l.threads, s, input(l.in[0]), input(l.in[1]), input(l.in[2]), output(l.out[0]),
            l.out[1].f32(), rows, l.workspace);
}

void run_grad(const Launch& l) {
  AttentionBackward b;
  b.q = input(l.in[0]);
  b.k = input(l.in[1]);
  b.v = input(l.in[2]);
  b.o = input(l.in[3]);
  b.lse = l.in[4].f32();
  b.dout = input(l.in[5]);
  b.dq = output(l.out[0]);
  b.dk = output(l.out[1]);
  b.dv = output(l.out[2]);
  attention_backward(l.threads,
                     shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape),
                     b, l.workspace);
}

uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  return attention_scratch_bytes(shape_of(node.attributes.as<AttentionAttributes>(),
                                          node.inputs[0].shape, node.inputs[1].shape),
                                 threads);
}

uint64_t workspace_grad(const device::NodeQuery& node, const Threads& threads) {
  return attention_backward_scratch_bytes(shape_of(node.attributes.as<AttentionAttributes>(),
                                                   node.inputs[0].shape, node.inputs[1].shape),
                                          threads);
}

}  // namespace

extern const Kernel kernel_attention, kernel_attention_grad;
const Kernel kernel_attention{.run = run, .workspace = workspace};
const Kernel kernel_attention_grad{.run = run_grad, .workspace = workspace_grad};

}  // namespace bowline::cpu
