// Dequantizes values (core/encoding.h): single elements, or four neighbours at a time.
#pragma once

#include "device/formats.cuh"

namespace bowline::detail::BOWLINE_CUDA_NAMESPACE {

// Quantized rows in device memory. If `codes` is null, the operand is not quantized.
struct Codes {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* zeros = nullptr;
  uint32_t format = 0;  // BlockFormat::number; 0: strides describe the values
  uint32_t bits = 0;
  uint32_t half = 0;
  int32_t zero = 0;
  bool zero_points = false;
  DType scale_type = DType::f32;
  uint32_t block = 0;
  int block_shift = -1;  // log2 of the block size if it is a power of two, else -1
  // Four neighbours, from a multiple of four on, share a scale and start at a byte boundary.
  bool four = false;
  int64_t columns = 0;
  int64_t row_bytes = 0;
  int64_t block_bytes = 0;
  int64_t scale_row = 0;
  int64_t scale_block = 0;
  int64_t zero_row = 0;
  int64_t zero_block = 0;

  __device__ const void* scale_at(int64_t row, uint32_t number) const {
    return scales + row * scale_row + number * scale_block;
  }
};

// Input i of a launch.
inline Codes codes_of(const Launch& l, size_t i) {
  Codes out;
  if (!l.is_encoded(i)) {
    return out;
  }
  const CodeLayout layout = l.code_layout(i);
  const Launch::CodeParts parts = l.code_parts(i);
  out.codes = parts.codes;
  out.scales = parts.scales;
  out.zeros = parts.zeros;
  out.format = layout.format == nullptr ? 0 : layout.format->number;
  out.bits = layout.bits;
  out.half = layout.half;
  out.zero = layout.zero;
  out.zero_points = layout.zero_points;
  out.scale_type = layout.scale_type;
  out.block = static_cast<uint32_t>(layout.block);
  for (int shift = 0; shift < 31; ++shift) {
    out.block_shift = out.block == 1u << shift ? shift : out.block_shift;
  }
  out.four = layout.block % 4 == 0 || layout.block == layout.columns;
  out.columns = static_cast<int64_t>(layout.columns);
  out.row_bytes = static_cast<int64_t>(layout.row_bytes);
  out.block_bytes = static_cast<int64_t>(layout.block_bytes);
  out.scale_row = static_cast<int64_t>(layout.scale_row);
  out.scale_block = static_cast<int64_t>(layout.scale_block);
  out.zero_row = static_cast<int64_t>(layout.zero_row);
  out.zero_block = static_cast<int64_t>(layout.zero_block);
  return out;
}

// A block of a row: the address of its values, and their scale and zero point. For a block format,
// only the address and the column of the block.
struct CodeBlock {
  const uint8_t* codes;
  float scale;
  int zero;
  uint32_t first;  // column
};

__device__ inline float scale_of(const Codes& c, int64_t row, uint32_t number) {
  const void* const at = c.scale_at(row, number);
  return c.scale_type == DType::f32   ? read(static_cast<const float*>(at))
         : c.scale_type == DType::f16 ? read(static_cast<const __half*>(at))
                                      : read(static_cast<const __nv_bfloat16*>(at));
}

__device__ inline CodeBlock code_block(const Codes& c, int64_t row, uint32_t column) {
  const uint32_t number = c.block_shift >= 0 ? column >> c.block_shift : column / c.block;
  if (c.format != 0) {
    return {c.scales + row * c.scale_row + number * c.scale_block, 0, 0, number * c.block};
  }
  const int zero = c.zero_points
                       ? static_cast<int8_t>(c.zeros[row * c.zero_row + number * c.zero_block])
                       : c.zero;
  return {c.codes + row * c.row_bytes + number * c.block_bytes, scale_of(c, row, number), zero,
          number * c.block};
}

// Elements i .. i + 3 of a block of a format. They belong to the same group. A kernel for one
// format calls this with its type.
template <class F>
__device__ float4 decode4_of(const uint8_t* block, int i) {
  const formats::Block from = {block, 1};
  const int g = i / F::kGroup;
  float scale, least;
  F::scales(from, g, scale, least);
  const formats::Value value = F::code(from, g, {0, i % F::kGroup});
  const auto at = [&](uint32_t j) {
    return scale * (byte_above_two_to_23(value.bytes, j) - value.zero_above_two_to_23()) - least;
  };
  return make_float4(at(0), at(1), at(2), at(3));
}

// The same for the format of this number. Not inlined, because every kernel would contain the code
// of all formats.
__device__ __noinline__ inline float4 decode4_of(uint32_t format, const uint8_t* block, int i) {
  float4 out = make_float4(0, 0, 0, 0);
  formats::with_format(format, [&](auto type) { out = decode4_of<decltype(type)>(block, i); });
  return out;
}

// A value that strides describe.
__device__ inline float decode_value(const Codes& c, const CodeBlock& b, uint32_t column) {
  const uint32_t i = column - b.first;
  if (c.bits == 8) {
    return b.scale * static_cast<float>(static_cast<int8_t>(b.codes[i]) - b.zero);
  }
  const uint32_t byte = c.half == 0 ? i / 2 : i % c.half;
  const uint32_t shift = 4 * (c.half == 0 ? i % 2 : i / c.half);
  return b.scale * static_cast<float>((b.codes[byte] >> shift & 15) - b.zero);
}

__device__ inline float decode(const Codes& c, int64_t row, uint32_t column) {
  const CodeBlock b = code_block(c, row, column);
  if (c.format == 0) {
    return decode_value(c, b, column);
  }
  const uint32_t i = column - b.first;
  const float4 four = decode4_of(c.format, b.codes, static_cast<int>(i / 4 * 4));
  return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
}

// Dequantizes columns [column, column + 4) of a row, with zeros from `columns` on. If c.four is
// set, `column` is a multiple of four.
__device__ inline void decode4(const Codes& c, int64_t row, uint32_t column, uint32_t columns,
                               float (&to)[4]) {
  for (float& x : to) {
    x = 0;
  }
  if (column >= columns) {
    return;
  }
  const CodeBlock b = code_block(c, row, column);
  if (c.format != 0 && column % 4 == 0) {  // rows are whole blocks, and groups multiples of four
    const float4 four = decode4_of(c.format, b.codes, static_cast<int>(column - b.first));
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
    return;
  }
  if (c.format == 0 && c.four && column + 4 <= columns) {
    BOWLINE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      to[j] = decode_value(c, b, column + j);
    }
    return;
  }
  // The code for one value moves the others, because an array with a variable index would be in
  // memory.
  BOWLINE_ROLL
  for (uint32_t j = 4; j-- > 0;) {
    to[3] = to[2], to[2] = to[1], to[1] = to[0];
    to[0] = column + j < columns ? decode(c, row, column + j) : 0.0f;
  }
}

}  // namespace bowline::detail::BOWLINE_CUDA_NAMESPACE
