// Rope over [batch, position, head, head_dim]. The table of sines and cosines is made when the record is made.
#include "compute/rope.h"

#include "kernel.h"

namespace bowline::cpu {
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
  s.base = static_cast<double>(t.base());
  s.position_offset = t.position_offset();
  s.interleaved = t.interleaved();
  s.inverse = t.inverse();
  return s;
}

void run(const Launch& l) {
  rope(l.threads, shape_of(l.attributes<RopeAttributes>(), *l.in[0].shape), l.in[0].f32(),
       l.out[0].f32(), l.constant);
}

uint64_t table_bytes(const device::Record& r) {
  return rope_table_bytes(shape_of(r.attributes.as<RopeAttributes>(), r.inputs[0].shape));
}

void make_table(const device::Record& r, Threads& threads, std::byte* table) {
  rope_table(threads, shape_of(r.attributes.as<RopeAttributes>(), r.inputs[0].shape), table);
}

}  // namespace

extern const Kernel kernel_rope;
const Kernel kernel_rope{.run = run, .constant_bytes = table_bytes, .make_constant = make_table};

}  // namespace bowline::cpu
