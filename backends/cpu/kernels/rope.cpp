//! ops(f32, f16, bf16) Rope
// Rope over [batch, position, head, head_dim]. Recording computes the frequencies, the slow part of
// an angle. It also computes the table of sines and cosines behind them, unless each run has its
// own positions.
#include "compute/rope.h"

#include "core/rope.h"
#include "kernel.h"

namespace bowline::detail::cpu::rope_kernels {
namespace {

RopeShape shape_of(const RopeAttributes& t, const Shape& x) {
  RopeShape s;
  s.outer = static_cast<size_t>(x[0]);
  s.positions = static_cast<size_t>(x[1]);
  s.heads = static_cast<size_t>(x[2]);
  s.dim = static_cast<size_t>(x[3]);
  s.rotary_dims = t.rotary_dims() == 0 ? s.dim : static_cast<size_t>(t.rotary_dims());
  s.x_head = s.y_head = s.dim;
  s.x_position = s.y_position = s.dim * s.heads;
  s.x_outer = s.y_outer = s.dim * s.heads * s.positions;
  s.position_offset = t.position_offset();
  s.interleaved = t.interleaved();
  s.inverse = t.inverse();
  return s;
}

size_t frequency_bytes(const RopeShape& s) { return s.rotary_dims / 2 * sizeof(double); }

template <class T>
void run(const Launch& l) {
  RopeShape s = shape_of(l.attributes<RopeAttributes>(), *l.in[0].shape);
  const void* table = l.constant + frequency_bytes(s);
  if (l.has_input(1)) {
    s.given = l.in[1].i32();
    s.per_outer = l.in[1].shape->rank() == 2;
    rope_table(l.threads, s, reinterpret_cast<const double*>(l.constant), l.workspace);
    table = l.workspace;
  }
  rope(l.threads, s, l.in[0].as<const T>(), l.out[0].as<T>(), table);
}

uint64_t workspace(const device::NodeQuery& node, const Threads&) {
  if (node.inputs.size() == 1) {
    return 0;
  }
  RopeShape s = shape_of(node.attributes.as<RopeAttributes>(), node.inputs[0].shape);
  s.per_outer = node.inputs[1].shape.rank() == 2;
  return rope_table_bytes(s);
}

uint64_t constant_bytes(const device::Record& r) {
  const RopeShape s = shape_of(r.attributes.as<RopeAttributes>(), r.inputs[0].shape);
  return frequency_bytes(s) + (r.inputs.size() == 1 ? rope_table_bytes(s) : 0);
}

void make_constant(const device::Record& r, Threads& threads, std::byte* constant) {
  const auto& t = r.attributes.as<RopeAttributes>();
  const RopeShape s = shape_of(t, r.inputs[0].shape);
  auto* frequency = reinterpret_cast<double*>(constant);
  for (size_t i = 0; i < s.rotary_dims / 2; ++i) {
    frequency[i] =
        rope_frequency<double>(t, static_cast<int64_t>(i), static_cast<int64_t>(s.rotary_dims));
  }
  if (r.inputs.size() == 1) {
    rope_table(threads, s, frequency, constant + frequency_bytes(s));
  }
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(rope, .run = run<T>, .workspace = workspace,
                          .constant_bytes = constant_bytes, .make_constant = make_constant);

}  // namespace bowline::detail::cpu::rope_kernels
