//! ops(any) Copy Fill Transpose Slice SliceGrad Concat Split BroadcastTo Expand WriteRows MaskTail
// Strided copies: operators that only move elements.
#include <algorithm>

#include "base/float16.h"
#include "index.h"
#include "kernel.h"

namespace bowline::detail::vulkan::layout_kernels {
namespace {

// Sets output 0 to these bits everywhere. Whole words need no shader.
void fill_output(Launch& l, uint64_t bits) {
  if (size_of(l.type()) == 4) {
    return l.fill(l.out_place(0), l.out_bytes(0), static_cast<uint32_t>(bits));
  }
  const auto n = static_cast<uint64_t>(l.out_shape(0).elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.out(0)).u32(n).u32(grid.per_group).u32(bits).u32(bits >> 32);
  l.dispatch(of_bytes(l.type(), shader::fill_1, shader::fill_2, shader::fill_4, shader::fill_8), {},
             push, grid, static_cast<double>(n), static_cast<double>(l.out_bytes(0)));
}

// y[first_y + at . strides_y] = x[first_x + at . strides_x]
void strided(Launch& l, const Place& x, int64_t first_x, const Place& y, int64_t first_y,
             Loops loops) {
  loops.finish();
  const auto n = static_cast<uint64_t>(loops.elements());
  if (loops.rank() == 1 && loops.strides(0)[0] == 1 && loops.strides(1)[0] == 1) {
    const uint64_t size = size_of(l.type());
    const uint64_t bytes_x = static_cast<uint64_t>(first_x) * size;
    const uint64_t bytes_y = static_cast<uint64_t>(first_y) * size;
    l.copy({y.buffer, y.offset + bytes_y, y.address + bytes_y},
           {x.buffer, x.offset + bytes_x, x.address + bytes_x}, n * size);
    return;
  }
  std::vector<uint32_t> words;
  loops.append_to(&words);
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(x.address).add(y.address).table(l.table(words)).u32(n).u32(grid.per_group);
  push.u32(static_cast<uint64_t>(first_x)).u32(static_cast<uint64_t>(first_y));
  l.dispatch(of_bytes(l.type(), shader::strided_copy_1, shader::strided_copy_2,
                      shader::strided_copy_4, shader::strided_copy_8),
             {loops.rank()}, push, grid, static_cast<double>(n) * 20,
             static_cast<double>(n) * 2 * l.element_bytes());
}

void transpose(Launch& l) {
  const Shape& x = l.in_shape(0);
  const Shape& y = l.out_shape(0);
  const auto from = strides_of(x);
  const auto to = strides_of(y);
  const auto* permutation = l.attributes<TransposeAttributes>().permutation();
  Loops loops(2);
  for (int axis = 0; axis < y.rank(); ++axis) {
    const int source = permutation->Get(static_cast<flatbuffers::uoffset_t>(axis));
    const int positive = source < 0 ? source + x.rank() : source;
    loops.add(y[axis], {from[static_cast<size_t>(positive)], to[static_cast<size_t>(axis)]});
  }
  strided(l, l.in_place(0), 0, l.out_place(0), 0, loops);
}

// The elements of `part`, which is inside `whole` from `start` on along one axis. `whole_first`
// gives the order of the strides.
Loops part_of(const Shape& part, const Shape& whole, bool whole_first) {
  const auto inside = strides_of(whole);
  const auto own = strides_of(part);
  Loops loops(2);
  for (int axis = 0; axis < part.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    loops.add(part[axis], {whole_first ? inside[a] : own[a], whole_first ? own[a] : inside[a]});
  }
  return loops;
}

void slice(Launch& l) {
  const auto& attributes = l.attributes<SliceAttributes>();
  const Shape& x = l.in_shape(0);
  const auto axis = static_cast<size_t>(positive_axis(attributes.axis(), x.rank()));
  const int64_t start =
      attributes.start() < 0 ? attributes.start() + x[static_cast<int>(axis)] : attributes.start();
  strided(l, l.in_place(0), start * strides_of(x)[axis], l.out_place(0), 0,
          part_of(l.out_shape(0), x, true));
}

void slice_grad(Launch& l) {
  const auto& attributes = l.attributes<SliceGradAttributes>();
  const Shape& dx = l.out_shape(0);
  const auto axis = static_cast<size_t>(positive_axis(attributes.axis(), dx.rank()));
  const int64_t start =
      attributes.start() < 0 ? attributes.start() + dx[static_cast<int>(axis)] : attributes.start();
  fill_output(l, 0);
  l.barrier();
  strided(l, l.in_place(0), 0, l.out_place(0), start * strides_of(dx)[axis],
          part_of(l.in_shape(0), dx, false));
}

void concat(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto axis =
      static_cast<size_t>(positive_axis(l.attributes<ConcatAttributes>().axis(), y.rank()));
  int64_t start = 0;
  for (size_t i = 0; i < l.inputs(); ++i) {
    const Shape& x = l.in_shape(i);
    strided(l, l.in_place(i), 0, l.out_place(0), start * strides_of(y)[axis], part_of(x, y, false));
    start += x[static_cast<int>(axis)];
  }
}

void split(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto axis =
      static_cast<size_t>(positive_axis(l.attributes<SplitAttributes>().axis(), x.rank()));
  int64_t start = 0;
  for (size_t i = 0; i < l.outputs(); ++i) {
    const Shape& y = l.out_shape(i);
    strided(l, l.in_place(0), start * strides_of(x)[axis], l.out_place(i), 0, part_of(y, x, true));
    start += y[static_cast<int>(axis)];
  }
}

void broadcast_to(Launch& l) {
  const Shape& y = l.out_shape(0);
  const auto from = broadcast_strides(l.in_shape(0), y);
  const auto to = strides_of(y);
  Loops loops(2);
  for (int axis = 0; axis < y.rank(); ++axis) {
    loops.add(y[axis], {from[static_cast<size_t>(axis)], to[static_cast<size_t>(axis)]});
  }
  strided(l, l.in_place(0), 0, l.out_place(0), 0, loops);
}

void copy(Launch& l) {
  const Place from = l.in_place(0);
  const Place to = l.out_place(0);
  if (from.address != to.address) {
    l.copy(to, from, l.out_bytes(0));
  }
}

void mask_tail(Launch& l) {
  const auto& t = l.attributes<MaskTailAttributes>();
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(t.axis(), x.rank());
  const auto n = static_cast<uint64_t>(x.elements());
  const Grid grid = l.over_elements(n);
  Push push;
  push.add(l.in(0)).add(l.out(0)).add(l.step());
  push.u32(l.count_word(0, axis)).u32(n).u32(grid.per_group);
  push.u32(static_cast<uint64_t>(x[axis]));
  push.u32(static_cast<uint64_t>(x.elements(axis + 1, x.rank())));
  const uint64_t bits = stored_bits(l.type(), t.fill());
  push.u32(bits).u32(bits >> 32);
  l.dispatch(of_bytes(l.type(), shader::mask_tail_1, shader::mask_tail_2, shader::mask_tail_4,
                      shader::mask_tail_8),
             {}, push, grid, static_cast<double>(n) * 20,
             static_cast<double>(n) * 2 * l.element_bytes());
}

void write_codes(Launch& l) {
  const Shape& state = l.in_shape(0);
  const Shape& rows = l.in_shape(1);
  const int axis = positive_axis(l.attributes<WriteRowsAttributes>().axis(), state.rank());
  const std::vector<uint32_t> words = l.code_words(0);
  const auto block = static_cast<uint64_t>(l.code_layout(0).block);
  const uint64_t n = static_cast<uint64_t>(rows.rows()) *
                     ((static_cast<uint64_t>(rows.back()) + block - 1) / block);
  Push push;
  push.add(l.in(1)).add(l.out(0)).table(l.table(words));
  l.push_step_words(push);
  push.u32(l.count_word(1, axis)).u32(n);
  push.u32(static_cast<uint64_t>(rows[axis])).u32(static_cast<uint64_t>(state[axis]));
  push.u32(static_cast<uint64_t>(state.elements(axis + 1, state.rank() - 1)));
  push.u32(static_cast<uint64_t>(rows.back())).u32(l.node());
  // One subgroup checks the position even if there is nothing to write.
  const auto elements = static_cast<double>(rows.elements());
  l.dispatch(
      of_type(l.type(), shader::write_codes_f32, shader::write_codes_f16, shader::write_codes_bf16),
      {}, push, l.over_rows(std::max<uint64_t>(n, 1)), elements * 20,
      elements * (2 * l.element_bytes() + 1));
}

// Offsets in quantized operands have 32 bits.
const char* write_refusal(const NodeView& node) {
  const device::Operand& state = node.query.inputs[0];
  return state.encoding.is_plain() || state.bytes() <= UINT32_MAX
             ? nullptr
             : "The quantized state has more than 2^32 bytes.";
}

void write_rows(Launch& l) {
  if (l.is_encoded(0)) {
    return write_codes(l);
  }
  const Shape& state = l.in_shape(0);
  const Shape& rows = l.in_shape(1);
  const int axis = positive_axis(l.attributes<WriteRowsAttributes>().axis(), state.rank());
  const auto n = static_cast<uint64_t>(rows.elements());
  // One invocation checks the position even if there is nothing to write.
  const Grid grid = l.over_elements(std::max<uint64_t>(n, 1));
  Push push;
  push.add(l.in(1)).add(l.out(0));
  l.push_step_words(push);
  push.u32(l.count_word(1, axis)).u32(n).u32(grid.per_group);
  push.u32(static_cast<uint64_t>(rows[axis])).u32(static_cast<uint64_t>(state[axis]));
  push.u32(static_cast<uint64_t>(state.elements(axis + 1, state.rank()))).u32(l.node());
  l.dispatch(of_bytes(l.type(), shader::write_rows_1, shader::write_rows_2, shader::write_rows_4,
                      shader::write_rows_8),
             {}, push, grid, static_cast<double>(n) * 20,
             static_cast<double>(n) * 2 * l.element_bytes());
}

void fill(Launch& l) {
  fill_output(l, stored_bits(l.type(), l.attributes<FillAttributes>().value()));
}

}  // namespace

BOWLINE_VULKAN_KERNEL(transpose, .launch = transpose);
BOWLINE_VULKAN_KERNEL(slice, .launch = slice);
BOWLINE_VULKAN_KERNEL(slice_grad, .launch = slice_grad);
BOWLINE_VULKAN_KERNEL(concat, .launch = concat);
BOWLINE_VULKAN_KERNEL(split, .launch = split);
BOWLINE_VULKAN_KERNEL(broadcast_to, .launch = broadcast_to);
BOWLINE_VULKAN_KERNEL(expand, .launch = broadcast_to);
BOWLINE_VULKAN_KERNEL(copy, .launch = copy);
BOWLINE_VULKAN_KERNEL(mask_tail, .launch = mask_tail);
BOWLINE_VULKAN_KERNEL(write_rows, .launch = write_rows, .refusal = write_refusal, .encoded = 0b1);
BOWLINE_VULKAN_KERNEL(fill, .launch = fill);

}  // namespace bowline::detail::vulkan::layout_kernels
