//! ops(f32, f16, bf16) Attention AttentionGrad
// Attention over [batch, position, head, head_dim] operands.
#include "compute/attention.h"

#include <cmath>
#include <utility>

#include "base/checked.h"
#include "compute/convert.h"
#include "core/element_types.h"
#include "core/strides.h"
#include "kernel.h"

namespace bowline::detail::cpu::attention_kernels {
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
  s.window = t.window();
  s.softcap = t.softcap();
  s.scale =
      t.scale() != 0 ? t.scale() : static_cast<float>(1 / std::sqrt(static_cast<double>(q[3])));
  return s;
}

AttentionStrides steps_of(const Shape& x) {
  return {static_cast<size_t>(x.elements(1, 4)), static_cast<size_t>(x[3]),
          static_cast<size_t>(x.elements(2, 4))};
}

template <class T>
AttentionInput<T> input(const Arg& a) {
  return {a.as<const T>(), steps_of(*a.shape)};
}
// Keys or values at input `i`. `codes` stores the description of a quantized input and must outlive
// the result.
template <class T>
AttentionInput<T> rows(const Launch& l, size_t i, Codes& codes) {
  AttentionInput<T> x = input<T>(l.in[i]);
  if (l.is_encoded(i)) {
    codes = l.codes(i);
    x.codes = &codes;
  }
  return x;
}
template <class T>
AttentionOutput<T> output(const Arg& a) {
  return {a.as<T>(), steps_of(*a.shape)};
}

// Bytes before the scratch memory: an additive mask that is converted to f32.
uint64_t mask_bytes(file::AttentionMask kind, DType dtype, const Shape& mask) {
  return kind == file::AttentionMask::additive && dtype != DType::f32
             ? round_up(static_cast<uint64_t>(mask.elements()) * sizeof(float), 64)
             : 0;
}

// The mask at input `i`, if given, and the scratch memory behind it.
template <class T>
AttentionMask mask_of(const Launch& l, size_t i, std::byte*& scratch) {
  AttentionMask m;
  const Shape& q = *l.in[0].shape;
  const Shape& k = *l.in[1].shape;
  const Shape scores{q[0], q[2], q[1], k[1]};
  switch (l.attributes<AttentionAttributes>().mask()) {
    case file::AttentionMask::none:
      break;
    case file::AttentionMask::additive: {
      const Strides strides = broadcast_strides(*l.in[i].shape, scores);
      if constexpr (std::same_as<T, float>) {
        m.added = l.in[i].f32();
      } else {
        auto* const added = reinterpret_cast<float*>(l.workspace);
        widen(l.threads, static_cast<size_t>(l.in[i].elements()), l.in[i].as<const T>(), added);
        m.added = added;
        scratch +=
            mask_bytes(l.attributes<AttentionAttributes>().mask(), l.record.type, *l.in[i].shape);
      }
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

template <class T>
void run(const Launch& l) {
  AttentionShape s = shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape);
  std::byte* scratch = l.workspace;
  s.mask = mask_of<T>(l, 3, scratch);
  for (size_t b = 0; s.mask.lengths != nullptr && b < s.batch; ++b) {
    const int32_t length = s.mask.lengths[b];
    if (length < 0 || static_cast<size_t>(length) > s.keys) {
      l.bad_index(length);
    }
  }
  const size_t queries = std::exchange(s.queries, static_cast<size_t>(l.extent(0, 1)));
  s.keys = static_cast<size_t>(l.extent(1, 1));
  s.encoded = l.is_encoded(1) || l.is_encoded(2);
  Codes keys, values;
  attention<T>(l.threads, s, input<T>(l.in[0]), rows<T>(l, 1, keys), rows<T>(l, 2, values),
               output<T>(l.out[0]), l.out[1].f32(), queries, scratch);
}

template <class T>
void run_grad(const Launch& l) {
  AttentionBackward<T> b;
  b.q = input<T>(l.in[0]);
  b.k = input<T>(l.in[1]);
  b.v = input<T>(l.in[2]);
  b.o = input<T>(l.in[3]);
  b.lse = l.in[4].f32();
  b.dout = input<T>(l.in[5]);
  b.dq = output<T>(l.out[0]);
  b.dk = output<T>(l.out[1]);
  b.dv = output<T>(l.out[2]);
  AttentionShape s = shape_of(l.attributes<AttentionAttributes>(), *l.in[0].shape, *l.in[1].shape);
  std::byte* scratch = l.workspace;
  s.mask = mask_of<T>(l, 6, scratch);
  attention_backward<T>(l.threads, s, b, scratch);
}

uint64_t mask_bytes(const device::NodeQuery& node, size_t i) {
  return node.inputs.size() > i ? mask_bytes(node.attributes.as<AttentionAttributes>().mask(),
                                             node.type, node.inputs[i].shape)
                                : 0;
}

AttentionShape shape_of(const device::NodeQuery& node) {
  return shape_of(node.attributes.as<AttentionAttributes>(), node.inputs[0].shape,
                  node.inputs[1].shape);
}

template <class T>
uint64_t workspace(const device::NodeQuery& node, const Threads& threads) {
  AttentionShape s = shape_of(node);
  s.encoded = !node.inputs[1].encoding.is_plain() || !node.inputs[2].encoding.is_plain();
  return mask_bytes(node, 3) + attention_scratch_bytes<T>(s, threads);
}

template <class T>
uint64_t workspace_grad(const device::NodeQuery& node, const Threads& threads) {
  return mask_bytes(node, 6) + attention_backward_scratch_bytes<T>(shape_of(node), threads);
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(attention, .run = run<T>, .workspace = workspace<T>, .encoded = 0b110);
BOWLINE_KERNELS_OF_FLOATS(attention_grad, .run = run_grad<T>, .workspace = workspace_grad<T>);

}  // namespace bowline::detail::cpu::attention_kernels
