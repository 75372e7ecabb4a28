// Forms with blocks within rows: int4, and q8_0 and q4_0 of GGUF.
#include "core/code_rows.h"
#include "core/encoding_forms.h"

namespace bowline {
namespace {

// The place of element `first`, which begins a block, in a storage whose parts begin at `base`.
CodePlace advanced(const CodeLayout& l, const CodePlace& base, uint64_t first) {
  const uint64_t row = l.columns == 0 ? 0 : first / l.columns;
  const uint64_t block = l.columns == 0 ? 0 : first % l.columns / l.block;
  return {base.codes + row * l.row_bytes + block * l.block_bytes,
          base.scales + row * l.scale_row + block * l.scale_block,
          base.zeros + row * l.zero_row + block * l.zero_block};
}

// The rows of blocks of a storage.
struct Rows {
  CodeLayout layout;
  CodePlace base;
  uint64_t rows;
  uint64_t blocks;  // of a row

  Rows(const Encoding& e, DType dtype, const Shape& shape)
      : layout(*e.layout(shape)),
        base(e.place(dtype, shape, 0)),
        rows(shape.rank() == 0 ? 1 : static_cast<uint64_t>(shape.elements(0, shape.rank() - 1))),
        blocks(layout.columns == 0 ? 0 : (layout.columns + layout.block - 1) / layout.block) {}

  CodePlace block(uint64_t row, uint64_t number) const {
    return advanced(layout, base, row * layout.columns + number * layout.block);
  }
  uint64_t length(uint64_t number) const {
    return std::min(layout.block, layout.columns - number * layout.block);
  }
};

// The byte of quantized value i of a block, and its shift within the byte.
struct Nibble {
  uint64_t byte;
  uint32_t shift;
};
Nibble nibble(const CodeLayout& l, uint64_t i) {
  return l.half != 0 ? Nibble{i % l.half, i < l.half ? 0u : 4u}
                     : Nibble{i / 2, i % 2 == 0 ? 0u : 4u};
}

int code_at(const CodeLayout& l, std::span<const std::byte> from, uint64_t codes, uint64_t i) {
  if (l.bits == 8) {
    return static_cast<int8_t>(from[codes + i]);
  }
  const Nibble at = nibble(l, i);
  return static_cast<int>(from[codes + at.byte]) >> at.shift & 15;
}

void put_code(const CodeLayout& l, std::span<std::byte> to, uint64_t codes, uint64_t i, int code) {
  if (l.bits == 8) {
    to[codes + i] = static_cast<std::byte>(code);
  } else {
    const Nibble at = nibble(l, i);
    to[codes + at.byte] |= static_cast<std::byte>((code & 15) << at.shift);
  }
}

void decode_rows(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to) {
  const Rows rows(e, dtype, shape);
  decode_codes(rows.layout, from, rows.base, static_cast<uint64_t>(run.first), to);
}

// Encodes a block: its scale and its quantized values.
using EncodeBlock = void (*)(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                             std::span<std::byte> to, const CodePlace& at);

void encode_rows(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to, EncodeBlock encode) {
  const Rows rows(e, dtype, shape);
  std::fill(to.begin(), to.end(), std::byte{0});
  for (uint64_t row = 0; row < rows.rows; ++row) {
    for (uint64_t b = 0; b < rows.blocks; ++b) {
      const uint64_t first = row * rows.layout.columns + b * rows.layout.block;
      encode(e, rows.layout, from.subspan(first, rows.length(b)), to, rows.block(row, b));
    }
  }
}

BlockExtent extent_of(std::span<const float> block) {
  BlockExtent out;
  for (const float x : block) {
    out.add(x);
  }
  return out;
}

uint64_t columns_rounded(const Shape& shape, uint64_t to) {
  return (columns_of(shape) + to - 1) / to;
}

Status check_int4(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be int4: only floats can be quantized.",
                  dtype);
  BOWLINE_REQUIRE(is_float(e.scale_type), "The scales of int4 cannot be {}: they must be floats.",
                  e.scale_type);
  BOWLINE_REQUIRE(e.axis == -1, "The blocks of int4 lie along the last axis, not {}.", e.axis);
  BOWLINE_REQUIRE(e.block >= 2 && e.block % 2 == 0,
                  "A block of int4 cannot have {} elements: it needs an even number of at least 2.",
                  e.block);
  BOWLINE_REQUIRE(shape.rank() >= 1, "A storage of rank 0 cannot have blocks of {}.", e.block);
  return {};
}

std::optional<CodeLayout> layout_int4(const Encoding& e, const Shape& shown) {
  CodeLayout out;
  out.bits = 4;
  out.zero = 8;
  out.zero_points = !e.symmetric;
  out.scale_type = e.scale_type;
  out.columns = columns_of(shown);
  out.block = e.block;
  out.row_bytes = columns_rounded(shown, 2);
  out.block_bytes = e.block / 2;
  const uint64_t blocks = columns_rounded(shown, e.block);
  out.scale_block = size_of(e.scale_type);
  out.scale_row = blocks * out.scale_block;
  out.zero_block = e.symmetric ? 0 : 1;
  out.zero_row = e.symmetric ? 0 : blocks;
  return out;
}

// The beginnings of the scales and the zero points, and the end.
CodePlace parts_int4(const Encoding& e, const Shape& shape, uint64_t& end) {
  const auto rows = static_cast<uint64_t>(shape.elements(0, shape.rank() - 1));
  const CodeLayout l = *layout_int4(e, shape);
  const uint64_t scales = round_up(rows * l.row_bytes, size_of(e.scale_type));
  const uint64_t zeros = scales + rows * l.scale_row;
  end = zeros + rows * l.zero_row;
  return {0, scales, zeros};
}

uint64_t bytes_int4(const Encoding& e, DType, const Shape& shape) {
  uint64_t end = 0;
  (void)parts_int4(e, shape, end);
  return end;
}

CodePlace place_int4(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  uint64_t end = 0;
  const CodePlace base = parts_int4(e, shape, end);
  return advanced(*layout_int4(e, shape), base, first);
}

void encode_block_int4(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  const BlockExtent extent = extent_of(from);
  const float rounded = store_scale(e, extent, to.data() + at.scales);
  float zero = 8;
  if (!e.symmetric) {
    zero = rounded == 0 ? 0 : std::clamp(-std::nearbyint(extent.least / rounded), 0.0f, 15.0f);
    to[at.zeros] = static_cast<std::byte>(static_cast<int>(zero));
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const float code =
        rounded == 0 ? zero : std::clamp(std::nearbyint(from[i] / rounded) + zero, 0.0f, 15.0f);
    put_code(l, to, at.codes, i, static_cast<int>(code));
  }
}

void encode_int4(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to) {
  encode_rows(e, from, dtype, shape, to, encode_block_int4);
}

Status check_gguf(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be {}: only floats can be quantized.",
                  dtype, e.name());
  BOWLINE_REQUIRE(e == e.form->usual, "The encoding \"{}\" takes no parameters.", e.name());
  BOWLINE_REQUIRE(shape.rank() >= 1 && shape.back() % kGgufBlock == 0,
                  "Rows of {} elements are not a multiple of {}, the block size of {}.",
                  columns_of(shape), kGgufBlock, e.name());
  return {};
}

// A scale and 32 codes.
template <uint32_t kBits>
std::optional<CodeLayout> layout_gguf(const Encoding&, const Shape& shown) {
  CodeLayout out;
  out.bits = kBits;
  out.half = kBits == 4 ? kGgufBlock / 2 : 0;
  out.zero = kBits == 4 ? 8 : 0;
  out.scale_type = DType::f16;
  out.columns = columns_of(shown);
  out.block = kGgufBlock;
  out.block_bytes = size_of(DType::f16) + kGgufBlock * kBits / 8;
  out.row_bytes = columns_rounded(shown, kGgufBlock) * out.block_bytes;
  out.scale_row = out.row_bytes;
  out.scale_block = out.block_bytes;
  return out;
}

template <uint32_t kBits>
uint64_t bytes_gguf(const Encoding& e, DType, const Shape& shape) {
  const auto rows = static_cast<uint64_t>(shape.elements(0, shape.rank() - 1));
  return rows * layout_gguf<kBits>(e, shape)->row_bytes;
}

template <uint32_t kBits>
CodePlace place_gguf(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  return advanced(*layout_gguf<kBits>(e, shape), {size_of(DType::f16), 0, 0}, first);
}

// ggml divides by the exact scale. That would move values by whole steps if f16 stores the scale as
// a denormal.
float inverse_of_scale(float exact, float stored) {
  constexpr float kLeastNormal = 0x1p-14f;
  return stored == 0 ? 0 : 1 / (stored < kLeastNormal ? stored : exact);
}

void encode_block_q8_0(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  const BlockExtent extent = extent_of(from);
  const float stored = store_scale(e, extent, to.data() + at.scales);
  const float inverse = inverse_of_scale(extent.magnitude() / 127, stored);
  for (size_t i = 0; i < from.size() && inverse != 0; ++i) {
    const float code = std::clamp(std::round(from[i] * inverse), -127.0f, 127.0f);
    put_code(l, to, at.codes, i, static_cast<int>(code));
  }
}

void encode_block_q4_0(const Encoding& e, const CodeLayout& l, std::span<const float> from,
                       std::span<std::byte> to, const CodePlace& at) {
  float most = 0;  // the first value of the largest magnitude
  for (const float x : from) {
    most = std::abs(x) > std::abs(most) ? x : most;
  }
  const float stored = store_scale(e, extent_of(from), to.data() + at.scales);
  const float sign = most > 0 ? -1.0f : 1.0f;
  store_float(stored == 0 ? 0 : sign * stored, to.data() + at.scales, DType::f16);
  const float inverse = sign * inverse_of_scale(std::abs(most) / 8, stored);
  for (size_t i = 0; i < from.size(); ++i) {
    const float x = inverse == 0 ? 0 : from[i] * inverse;
    put_code(l, to, at.codes, i, std::clamp(static_cast<int>(x + 8.5f), 0, 15));
  }
}

template <EncodeBlock kEncode>
void encode_gguf(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to) {
  encode_rows(e, from, dtype, shape, to, kEncode);
}

}  // namespace

const EncodingFunctions kInt4Functions{check_int4,  bytes_int4,  check_view_blocks, decode_rows,
                                       encode_int4, layout_int4, place_int4};
const EncodingFunctions kQ8_0Functions{
    check_gguf,     bytes_gguf<8>, check_view_blocks, decode_rows, encode_gguf<encode_block_q8_0>,
    layout_gguf<8>, place_gguf<8>};
const EncodingFunctions kQ4_0Functions{
    check_gguf,     bytes_gguf<4>, check_view_blocks, decode_rows, encode_gguf<encode_block_q4_0>,
    layout_gguf<4>, place_gguf<4>};

void decode_codes(const CodeLayout& l, std::span<const std::byte> storage, const CodePlace& place,
                  uint64_t skipped, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const uint64_t element = skipped + i;
    const CodePlace at = advanced(l, place, element);
    const int zero = l.zero_points ? static_cast<int8_t>(storage[at.zeros]) : l.zero;
    const int code = code_at(l, storage, at.codes, element % l.columns % l.block);
    to[i] = load_float(storage.data() + at.scales, l.scale_type) * static_cast<float>(code - zero);
  }
}

uint64_t codes_end(const CodeLayout& l, const CodePlace& place, const Shape& shown) {
  const auto elements = static_cast<uint64_t>(shown.elements());
  if (elements == 0) {
    return 0;
  }
  const CodePlace last = advanced(l, place, elements - 1);
  const uint64_t length = (l.columns - 1) % l.block + 1;
  const uint64_t bytes = l.bits == 8 ? length : l.half != 0 ? l.half : (length + 1) / 2;
  return std::max({last.codes + bytes, last.scales + size_of(l.scale_type),
                   l.zero_points ? last.zeros + 1 : 0});
}

}  // namespace bowline
