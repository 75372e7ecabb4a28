//! ops(f32, f16, bf16) Embedding EmbeddingGrad Dropout
// Table rows selected by id, their gradient in a fixed order, and dropout.
#include <algorithm>

#include "base/random.h"
#include "convert.h"

namespace bowline::detail::vulkan::tokens_kernels {
namespace {

uint64_t elements(const Shape& shape) { return static_cast<uint64_t>(shape.elements()); }

// Loops over the ids, and over matching ids, stay below the limit of a software device.
constexpr uint64_t kIdsAtOnce = 24576;

void embedding(Launch& l) {
  const Shape& table = l.in_shape(0);
  const uint64_t count = elements(l.in_shape(1));
  Push push;
  l.is_encoded(0) ? push.table(l.table(l.code_words(0))) : push.add(l.in(0));
  push.add(l.in(1), l.out(0), l.step()).u32(count, table[0], table[1], l.node());
  l.dispatch(l.is_encoded(0) ? variant(shader::embedding_codes, l.type())
                             : variant(shader::embedding, l.type()),
             {l.is_encoded(0) ? l.code_format(0) : 0}, push, l.over_rows(count),
             l.each(l.out_shape(0).elements(), 0, 2));
}

// Offsets in quantized operands have 32 bits.
const char* refusal(const NodeView& v) {
  const device::Operand& table = v.query.inputs[0];
  return table.encoding.is_plain() || table.bytes() <= UINT32_MAX
             ? nullptr
             : "The quantized table has more than 2^32 bytes.";
}

void embedding_grad(Launch& l) {
  const Shape& table = l.out_shape(0);
  const uint64_t count = elements(l.in_shape(0));
  const auto rows = static_cast<uint64_t>(table[0]);
  const auto n = static_cast<uint64_t>(table[1]);
  if (elements(table) == 0) {
    return;
  }
  Wide wide(l);
  // A subgroup owns S columns of a row and searches the ids. There is one row per table row, or per
  // id if there are fewer ids. Long lists of ids are divided into consecutive dispatches.
  const bool over_rows = rows <= count;
  const uint64_t blocks = (n + l.lanes() - 1) / l.lanes();
  if (!over_rows) {
    Place to = l.out_place(0);
    if (l.type() != DType::f32) {
      const VkDeviceAddress skipped = wide.out(0) - l.workspace();
      to = l.workspace_place();
      to.offset += skipped;
      to.address += skipped;
    }
    l.fill(to, elements(table) * 4, 0);
    l.barrier();
  }
  for (uint64_t first = 0; first < count; first += kIdsAtOnce) {
    const uint64_t end = std::min(count, first + kIdsAtOnce);
    Push push;
    push.add(wide.in(0), wide.in(1), wide.out(0)).u32(count, rows, n, blocks, first, end);
    const uint64_t subgroups = (over_rows ? rows : end - first) * blocks;
    const double looks =
        static_cast<double>(subgroups) * static_cast<double>(end - first) / l.lanes();
    l.dispatch(over_rows ? shader::embedding_grad_rows : shader::embedding_grad_ids, {}, push,
               l.over_rows(subgroups), {looks * 20, static_cast<double>((end - first) * n) * 12});
    l.barrier();
  }
  wide.finish();
}

void dropout(Launch& l) {
  const auto& attributes = l.attributes<DropoutAttributes>();
  const uint64_t n = elements(l.in_shape(0));
  const uint64_t blocks = (n + 3) / 4;
  const Grid grid = l.over_elements(blocks);
  const double rate = static_cast<double>(attributes.rate());
  Push push;
  push.add(l.in(0), l.out(0));
  l.push_step_words(push);
  push.u32(n, blocks, grid.per_group, attributes.stream(), l.iteration(), dropout_threshold(rate))
      .f32(1 / (1 - rate));
  l.dispatch(shader::dropout, {}, push, grid, l.each(n, 40, 2));
}

}  // namespace

BOWLINE_KERNELS_OF_FLOATS(embedding, .launch = embedding, .refusal = refusal, .encoded = 0b1);
BOWLINE_KERNELS_OF_FLOATS(embedding_grad, .launch = embedding_grad, .workspace = Wide::bytes);
BOWLINE_KERNELS_OF_FLOATS(dropout, .launch = dropout);

}  // namespace bowline::detail::vulkan::tokens_kernels
