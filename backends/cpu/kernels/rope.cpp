//! ops(f32, f16, bf16) Rope
// Rope over [batch, position, head, head_dim]. The table of sines and cosines is made when the record is made, or in each run where
// the positions are given.
#include "compute/rope.h"

#include "core/rope.h"
#include "kernel.h"

namespace bowline::cpu::rope_kernels {
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

void fill_table(const RopeAttributes& t, const RopeShape& s, Threads& threads, void* table) {
  const auto dims = static_cast<int64_t>(s.rotary_dims);
  rope_table(
      threads, s,
      [&](size_t i) { return rope_frequency<double>(t, static_cast<int64_t>(i), dims); }, table);
}

template <class T>
void run(const Launch& l) {
  const auto& t = l.attributes<RopeAttributes>();
  RopeShape s = shape_of(t, *l.in[0].shape);
  const void* table = l.constant;
  if (l.has_input(1)) {
    s.given = l.in[1].i32();
    s.per_outer = l.in[1].shape->rank() == 2;
    fill_table(t, s, l.threads, l.workspace);
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

uint64_t table_bytes(const device::Record& r) {
  return r.inputs.size() == 1
             ? rope_table_bytes(shape_of(r.attributes.as<RopeAttributes>(), r.inputs[0].shape))
             : 0;
}

void make_table(const device::Record& r, Threads& threads, std::byte* table) {
  const auto& t = r.attributes.as<RopeAttributes>();
  if (r.inputs.size() == 1) {
    fill_table(t, shape_of(t, r.inputs[0].shape), threads, table);
  }
}

constexpr Kernel made(void (*run_it)(const Launch&)) {
  return {.run = run_it,
          .workspace = workspace,
          .constant_bytes = table_bytes,
          .make_constant = make_table};
}

}  // namespace

extern const Kernel kernel_rope, kernel_rope_f16, kernel_rope_bf16;
const Kernel kernel_rope = made(run<float>);
const Kernel kernel_rope_f16 = made(run<f16>);
const Kernel kernel_rope_bf16 = made(run<bf16>);

}  // namespace bowline::cpu::rope_kernels
