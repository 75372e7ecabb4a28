//! ops(f32, f16, bf16) Rope FusedWriteRows
// Rope, and the writes into a KV cache with the Rope before them.
#include "core/rope.h"

#include <algorithm>
#include <cmath>

#include "kernel.h"

namespace bowline::detail::vulkan::rope_kernels {
namespace {

// As 64-bit fractions of a turn, low word first.
std::vector<uint32_t> frequencies(const RopeAttributes& t, int64_t dims) {
  std::vector<uint32_t> words;
  const long double turn = 2 * std::acos(-1.0L);
  for (int64_t j = 0; j < dims / 2; ++j) {
    const long double turns = rope_frequency<long double>(t, j, dims) / turn;
    const long double fraction = turns - std::floor(turns);
    const auto bits = static_cast<uint64_t>(std::ldexp(fraction, 64));
    words.push_back(static_cast<uint32_t>(bits));
    words.push_back(static_cast<uint32_t>(bits >> 32));
  }
  return words;
}

void rope(Launch& l) {
  const auto& attributes = l.attributes<RopeAttributes>();
  const Shape& x = l.in_shape(0);
  const int64_t dims = attributes.rotary_dims() == 0 ? x.back() : attributes.rotary_dims();
  const auto heads = static_cast<uint64_t>(x.rows());
  const uint64_t n = heads * static_cast<uint64_t>(x.back() - dims / 2);
  const Grid grid = l.over_elements(n);
  const auto offset = static_cast<uint64_t>(attributes.position_offset());
  std::vector<uint32_t> words = frequencies(attributes, dims);
  Push push;
  const bool is_given = l.inputs() > 1;
  push.add(l.in(0), l.out(0))
      .table(l.table(words))
      .add(is_given ? l.in(1) : 0)
      .u32(n, grid.per_group);
  push.u32(x.back(), dims / 2, x[2], x[1], offset, offset >> 32, attributes.inverse(),
           is_given ? static_cast<uint64_t>(l.in_shape(1).rank()) : 0);
  l.dispatch(shader::rope, {attributes.interleaved()}, push, grid,
             {static_cast<double>(n) * 60, static_cast<double>(n) * 16});
}

// The table Details of fused_write_rows.comp.
std::vector<uint32_t> details_of(const Launch& l) {
  const auto& t = l.attributes<FusedWriteRowsAttributes>();
  const Shape& k = l.in_shape(2);
  const Shape& v = l.in_shape(3);
  const size_t heads_axis = static_cast<size_t>(k.rank()) - 2;
  std::vector<uint32_t> words;
  const auto add = [&](auto... values) { (words.push_back(static_cast<uint32_t>(values)), ...); };
  add(l.count_word(2, static_cast<int>(heads_axis) - 1), l.count_word(3, 0));
  add(l.in_shape(0)[0], l.in_shape(1)[0]);
  add(k[static_cast<int>(heads_axis)], v[1], t.rope() ? l.in_shape(4)[2] : 0);
  add(k.back(), v.back(), k.back());
  const Attributes rope = Attributes::of(rope_of(t));
  const auto& of_rope = rope.as<RopeAttributes>();
  const int64_t dims = !t.rope() ? 0 : t.rotary_dims() == 0 ? k.back() : t.rotary_dims();
  const auto offset = static_cast<uint64_t>(t.position_offset());
  add(v[0], dims / 2, offset, offset >> 32, t.inverse(), l.node());
  std::ranges::copy(frequencies(of_rope, dims), std::back_inserter(words));
  return words;
}

void fused_write_rows(Launch& l) {
  const bool has_rope = l.attributes<FusedWriteRowsAttributes>().rope();
  const std::vector<uint32_t> details = details_of(l);
  Push push;
  push.add(l.in(2), l.in(3), has_rope ? l.in(4) : 0, l.out(0), l.out(1), has_rope ? l.out(2) : 0,
           has_rope ? l.in(5) : 0)
      .table(l.table(details));
  const bool encoded = l.is_encoded(0);
  if (encoded) {
    push.table(l.table(l.code_words(0))).table(l.table(l.code_words(1)));
  }
  l.push_step_words(push);
  uint64_t elements = 0, heads = 0;
  for (size_t i = 2; i < (has_rope ? 5u : 4u); ++i) {
    elements += static_cast<uint64_t>(l.in_shape(i).elements());
    heads += static_cast<uint64_t>(l.in_shape(i).rows());
  }
  // One subgroup checks the position even if there is nothing to write.
  const Grid grid = l.over_rows(std::max<uint64_t>(heads, 1));
  const bool interleaved = l.attributes<FusedWriteRowsAttributes>().interleaved();
  l.dispatch(encoded ? shader::fused_write_rows_codes : shader::fused_write_rows_plain,
             {interleaved}, push, grid, l.each(elements, 60, 2));
}

const char* refusal(const NodeView& v) {
  const auto& inputs = v.query.inputs;
  if (inputs[0].encoding.is_plain() != inputs[1].encoding.is_plain()) {
    return "Only one of keys and values is quantized.";
  }
  for (size_t i = 0; i < std::min<size_t>(inputs.size(), 5); ++i) {
    if (inputs[i].encoding.is_plain() ? inputs[i].dtype != v.query.type
                                      : inputs[i].bytes() > UINT32_MAX) {
      return "The states and the rows have several dtypes, or a state has more than 2^32 bytes.";
    }
  }
  return nullptr;
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(rope, .launch = rope);
BOWLINE_KERNELS_OF_FLOATS(fused_write_rows, .launch = fused_write_rows, .refusal = refusal,
                          .encoded = 0b11);

}  // namespace bowline::detail::vulkan::rope_kernels
