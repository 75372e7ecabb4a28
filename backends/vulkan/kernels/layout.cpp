//! ops(any) Copy Fill Transpose Slice SliceGrad Concat Split BroadcastTo Expand WriteRows MaskTail
// Strided copies: operators that only move elements.
#include <algorithm>

#include "base/float16.h"
#include "core/moves.h"
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

void move(Launch& l) {
  for_each_move(l.record(), [&l](const Move& m) {
    strided(l, l.in_place(m.input), m.first_x, l.out_place(m.output), m.first_y, m.loops);
  });
}

void slice_grad(Launch& l) {
  fill_output(l, 0);
  l.barrier();
  move(l);
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

BOWLINE_KERNEL(transpose, .launch = move);
BOWLINE_KERNEL(slice, .launch = move);
BOWLINE_KERNEL(slice_grad, .launch = slice_grad);
BOWLINE_KERNEL(concat, .launch = move);
BOWLINE_KERNEL(split, .launch = move);
BOWLINE_KERNEL(broadcast_to, .launch = move);
BOWLINE_KERNEL(expand, .launch = move);
BOWLINE_KERNEL(copy, .launch = copy);
BOWLINE_KERNEL(mask_tail, .launch = mask_tail);
BOWLINE_KERNEL(write_rows, .launch = write_rows, .refusal = write_refusal, .encoded = 0b1);
BOWLINE_KERNEL(fill, .launch = fill);

}  // namespace bowline::detail::vulkan::layout_kernels
