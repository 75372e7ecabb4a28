// Forms with blocks within rows: int4, and the block formats.
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

int code_at(const CodeLayout& l, std::span<const std::byte> from, uint64_t codes, uint64_t i) {
  if (l.bits == 8) {
    return static_cast<int8_t>(from[codes + i]);
  }
  return static_cast<int>(from[codes + i / 2]) >> (i % 2 * 4) & 15;
}

void decode_rows(const Encoding& e, std::span<const std::byte> from, DType dtype,
                 const Shape& shape, ElementRun run, std::span<float> to) {
  const Rows rows(e, dtype, shape);
  decode_codes(rows.layout, from, rows.base, static_cast<uint64_t>(run.first), to);
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

void encode_block_int4(const Encoding& e, std::span<const float> from, std::span<std::byte> to,
                       const CodePlace& at) {
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
    to[at.codes + i / 2] |= static_cast<std::byte>(static_cast<int>(code) << (i % 2 * 4));
  }
}

void encode_int4(const Encoding& e, std::span<const float> from, DType dtype, const Shape& shape,
                 std::span<std::byte> to) {
  const Rows rows(e, dtype, shape);
  std::fill(to.begin(), to.end(), std::byte{0});
  for (uint64_t row = 0; row < rows.rows; ++row) {
    for (uint64_t b = 0; b < rows.blocks; ++b) {
      const uint64_t first = row * rows.layout.columns + b * rows.layout.block;
      encode_block_int4(e, from.subspan(first, rows.length(b)), to, rows.block(row, b));
    }
  }
}

Status check_format(const Encoding& e, DType dtype, const Shape& shape) {
  BOWLINE_REQUIRE(is_float(dtype), "A storage of {} cannot be {}: only floats can be quantized.",
                  dtype, e.name());
  BOWLINE_REQUIRE(e == e.form->usual, "The encoding \"{}\" takes no parameters.", e.name());
  BOWLINE_REQUIRE(shape.rank() >= 1 && shape.back() % format_of(e).block == 0,
                  "Rows of {} elements are not a multiple of {}, the block size of {}.",
                  columns_of(shape), format_of(e).block, e.name());
  return {};
}

std::optional<CodeLayout> layout_format(const Encoding& e, const Shape& shown) {
  const BlockFormat& f = format_of(e);
  CodeLayout out;
  out.format = &f;
  out.bits = f.strided.bits;
  out.half = f.strided.half;
  out.zero = f.strided.zero;
  out.scale_type = DType::f16;
  out.columns = columns_of(shown);
  out.block = f.block;
  out.block_bytes = f.bytes;
  out.row_bytes = columns_rounded(shown, f.block) * f.bytes;
  out.scale_row = out.row_bytes;
  out.scale_block = out.block_bytes;
  return out;
}

uint64_t bytes_format(const Encoding& e, DType, const Shape& shape) {
  const auto rows = static_cast<uint64_t>(shape.elements(0, shape.rank() - 1));
  return rows * layout_format(e, shape)->row_bytes;
}

CodePlace place_format(const Encoding& e, DType, const Shape& shape, uint64_t first) {
  return advanced(*layout_format(e, shape), {format_of(e).strided.first, 0, 0}, first);
}

// A block with a non-finite value becomes zeros, as in other forms.
void encode_format(const Encoding& e, std::span<const float> from, DType, const Shape&,
                   std::span<std::byte> to) {
  const BlockFormat& f = format_of(e);
  std::ranges::fill(to, std::byte{0});
  for (size_t b = 0; b < from.size() / f.block; ++b) {
    const std::span<const float> block = from.subspan(b * f.block, f.block);
    if (std::ranges::all_of(block, [](float x) { return std::isfinite(x); })) {
      f.encode(block.data(), to.data() + b * f.bytes);
    }
  }
}

// Dequantizes elements [first, first + to.size()) from `blocks` on.
void decode_format(const BlockFormat& f, const std::byte* blocks, uint64_t first,
                   std::span<float> to) {
  float block[kMostFormatBlock];
  while (!to.empty()) {
    const uint64_t skipped = first % f.block;
    const uint64_t n = std::min<uint64_t>(f.block - skipped, to.size());
    f.decode(blocks + first / f.block * f.bytes, block);
    std::copy_n(block + skipped, n, to.begin());
    first += n;
    to = to.subspan(n);
  }
}

}  // namespace

const EncodingFunctions kInt4Functions{check_int4,  bytes_int4,  check_view_blocks, decode_rows,
                                       encode_int4, layout_int4, place_int4};
const EncodingFunctions kFormatFunctions{check_format, bytes_format,  check_view_blocks,
                                         decode_rows,  encode_format, layout_format,
                                         place_format};

void decode_codes(const CodeLayout& l, std::span<const std::byte> storage, const CodePlace& place,
                  uint64_t skipped, std::span<float> to) {
  if (l.format != nullptr) {
    return decode_format(*l.format, storage.data() + place.scales, skipped, to);
  }
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
  if (l.format != nullptr) {
    return last.scales + l.format->bytes;
  }
  const uint64_t length = (l.columns - 1) % l.block + 1;
  const uint64_t bytes = l.bits == 8 ? length : (length + 1) / 2;
  return std::max({last.codes + bytes, last.scales + size_of(l.scale_type),
                   l.zero_points ? last.zeros + 1 : 0});
}

}  // namespace bowline
