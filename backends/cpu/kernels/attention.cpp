//! ops(f32, f16, bf16) Attention AttentionGrad
// Attention over [batch, position, head, head_dim] operands.
#include "compute/attention.h"

#include <cmath>
#include <utility>

#include "core/strides.h"
#include "wide.h"

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

AttentionStrides steps_of(const Shape& x) {
  return {static_cast<size_t>(x.elements(1, 4)), static_cast<size_t>(x[3]),
          static_cast<size_t>(x.elements(2, 4))};
}

AttentionInput input(const Arg& a) { return {a.f32(), steps_of(*a.shape)}; }
AttentionOutput output(const Arg& a) { return {a.f32(), steps_of(*a.shape)}; }

// The mask that lies at input `i`, if there is one.
AttentionMask mask_of(const Launch& l, size_t i) {
  AttentionMask m;
  const Shape& q = *l.in[0].shape;
  const Shape& k = *l.in[1].shape;
  const Shape scores{q[0], q[2], q[1], k[1]};
  switch (l.attributes<AttentionAttributes>().mask()) {
    case file::AttentionMask::none:
      break;
    case file::AttentionMask::additive: {
      const Strides strides = broadcast_strides(*l.in[i].shape, scores);
      m.added = l.in[i].f32();
      m.batch = static_cast<size_t>(strides[0]);
      m.head = static_cast<size_t>(strides[1]);
      m.query = static_cast<size_t>(strides[2]);
      m.key = static_cast<size_t>(strides[3]);
      break;
    }
    case file::AttentionMask::padding:
      m.shown = l.in[i].as<const uint8_t>();
      m.row = static_cast<size_t>(k[1]);
      break;
    case file::AttentionMask::lengths:
      m.lengths = l.in[i].i32();
      break;
  }
  return m;
}

void run(const Launch& l) {
  AttentionShape s = shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape);
  s.mask = mask_of(l, 3);
  for (size_t b = 0; s.mask.lengths != nullptr && b < s.batch; ++b) {
    const int32_t length = s.mask.lengths[b];
    if (length < 0 || static_cast<size_t>(length) > s.keys) {
      l.bad_index(length);
    }
  }
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
  AttentionShape s = shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape);
  s.mask = mask_of(l, 6);
  attention_backward(l.threads, s, b, l.workspace);
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

BOWLINE_CPU_WIDE_KERNELS(attention, run, workspace);
BOWLINE_CPU_WIDE_KERNELS(attention_grad, run_grad, workspace_grad);

}  // namespace bowline::cpu
