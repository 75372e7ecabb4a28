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
  const Grid grid = l.over_elements(l.out_shape(0).elements());
  Push push;
  push.add(l.out(0)).u32(grid.elements, grid.per_group, bits, bits >> 32);
  l.dispatch(shader::fill, {}, push, grid,
             {static_cast<double>(grid.elements), static_cast<double>(l.out_bytes(0))});
}

// y[first_y + at . strides_y] = x[first_x + at . strides_x]
void strided(Launch& l, const Place& x, int64_t first_x, const Place& y, int64_t first_y,
             const Loops<2>& loops) {
  if (loops.is_run()) {
    const uint64_t size = size_of(l.type());
    const uint64_t bytes_x = static_cast<uint64_t>(first_x) * size;
    const uint64_t bytes_y = static_cast<uint64_t>(first_y) * size;
    return l.copy({y.buffer, y.offset + bytes_y, y.address + bytes_y},
                  {x.buffer, x.offset + bytes_x, x.address + bytes_x}, loops.elements() * size);
  }
  const Grid grid = l.over_elements(loops.elements());
  Push push;
  push.add(x.address, y.address).table(l.table(words_of(loops)));
  push.u32(grid.elements, grid.per_group, first_x, first_y);
  l.dispatch(shader::strided_copy, {rank_of(loops)}, push, grid, l.each(grid.elements, 20, 2));
}

void transpose(Launch& l) {
  const Shape& x = l.in_shape(0);
  const auto* permutation = l.attributes<TransposeAttributes>().permutation();
  const Strides own = strides_of(x);
  Strides from{};
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int source = permutation->Get(static_cast<flatbuffers::uoffset_t>(axis));
    from[static_cast<size_t>(axis)] = own[static_cast<size_t>(positive_axis(source, x.rank()))];
  }
  strided(l, l.in_place(0), 0, l.out_place(0), 0,
          Loops<2>(l.out_shape(0), {from, strides_of(l.out_shape(0))}));
}

// A loop over the elements of `part`, which is a part of `whole`. Operand 0 has the strides of
// `whole` if `whole_first` is set, else the strides of `part`; operand 1 has the other strides.
Loops<2> part_of(const Shape& part, const Shape& whole, bool whole_first) {
  const Strides inside = strides_of(whole), own = strides_of(part);
  return Loops<2>(part, {whole_first ? inside : own, whole_first ? own : inside});
}

// The distance of neighbours along an axis.
int64_t step_of(const Shape& x, int axis) { return x.elements(axis + 1, x.rank()); }

void slice(Launch& l) {
  const auto& attributes = l.attributes<SliceAttributes>();
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(attributes.axis(), x.rank());
  const int64_t start = attributes.start() < 0 ? attributes.start() + x[axis] : attributes.start();
  strided(l, l.in_place(0), start * step_of(x, axis), l.out_place(0), 0,
          part_of(l.out_shape(0), x, true));
}

void slice_grad(Launch& l) {
  const auto& attributes = l.attributes<SliceGradAttributes>();
  const Shape& dx = l.out_shape(0);
  const int axis = positive_axis(attributes.axis(), dx.rank());
  const int64_t start = attributes.start() < 0 ? attributes.start() + dx[axis] : attributes.start();
  fill_output(l, 0);
  l.barrier();
  strided(l, l.in_place(0), 0, l.out_place(0), start * step_of(dx, axis),
          part_of(l.in_shape(0), dx, false));
}

void concat(Launch& l) {
  const Shape& y = l.out_shape(0);
  const int axis = positive_axis(l.attributes<ConcatAttributes>().axis(), y.rank());
  int64_t start = 0;
  for (size_t i = 0; i < l.inputs(); ++i) {
    const Shape& x = l.in_shape(i);
    strided(l, l.in_place(i), 0, l.out_place(0), start * step_of(y, axis), part_of(x, y, false));
    start += x[axis];
  }
}

void split(Launch& l) {
  const Shape& x = l.in_shape(0);
  const int axis = positive_axis(l.attributes<SplitAttributes>().axis(), x.rank());
  int64_t start = 0;
  for (size_t i = 0; i < l.outputs(); ++i) {
    const Shape& y = l.out_shape(i);
    strided(l, l.in_place(0), start * step_of(x, axis), l.out_place(i), 0, part_of(y, x, true));
    start += y[axis];
  }
}

void broadcast_to(Launch& l) {
  const Shape& y = l.out_shape(0);
  strided(l, l.in_place(0), 0, l.out_place(0), 0, Loops<2>::broadcast(y, {&l.in_shape(0), &y}));
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
  const Grid grid = l.over_elements(x.elements());
  Push push;
  push.add(l.in(0), l.out(0), l.step()).u32(l.count_word(0, axis), grid.elements, grid.per_group);
  push.u32(x[axis], x.elements(axis + 1, x.rank()));
  const uint64_t bits = stored_bits(l.type(), t.fill());
  push.u32(bits, bits >> 32);
  l.dispatch(shader::mask_tail, {}, push, grid, l.each(grid.elements, 20, 2));
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
  push.add(l.in(1), l.out(0)).table(l.table(words));
  l.push_step_words(push);
  push.u32(l.count_word(1, axis), n, rows[axis], state[axis]);
  push.u32(state.elements(axis + 1, state.rank() - 1), rows.back(), l.node());
  // One subgroup checks the position even if there is nothing to write.
  const auto elements = static_cast<double>(rows.elements());
  l.dispatch(shader::write_codes, {}, push, l.over_rows(std::max<uint64_t>(n, 1)),
             {elements * 20, elements * (2 * l.element_bytes() + 1)});
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
  push.add(l.in(1), l.out(0));
  l.push_step_words(push);
  push.u32(l.count_word(1, axis), n, grid.per_group, rows[axis], state[axis]);
  push.u32(state.elements(axis + 1, state.rank()), l.node());
  l.dispatch(shader::write_rows, {}, push, grid, l.each(n, 20, 2));
}

void fill(Launch& l) {
  fill_output(l, stored_bits(l.type(), l.attributes<FillAttributes>().value()));
}

}  // namespace

BOWLINE_KERNEL(transpose, .launch = transpose);
BOWLINE_KERNEL(slice, .launch = slice);
BOWLINE_KERNEL(slice_grad, .launch = slice_grad);
BOWLINE_KERNEL(concat, .launch = concat);
BOWLINE_KERNEL(split, .launch = split);
BOWLINE_KERNEL(broadcast_to, .launch = broadcast_to);
BOWLINE_KERNEL(expand, .launch = broadcast_to);
BOWLINE_KERNEL(copy, .launch = copy);
BOWLINE_KERNEL(mask_tail, .launch = mask_tail);
BOWLINE_KERNEL(write_rows, .launch = write_rows, .refusal = write_refusal, .encoded = 0b1);
BOWLINE_KERNEL(fill, .launch = fill);

}  // namespace bowline::detail::vulkan::layout_kernels
