// Dequantizes single elements (core/encoding.h): x = scale * (code - zero), or by the formula of a
// block format (runtime/base/formats). Launch::code_words() provides the words.
#include "half.glsl"

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer CodeTable {
  Words codes;
  Words scales;
  Words zeros;
  uint codes_at;  // bytes
  uint scales_at;
  uint zeros_at;
  uint bits;
  uint half_block;  // 0: neighbours share a byte
  int zero;
  uint zero_points;
  uint scale_type;  // a DType
  uint block;
  uint row_bytes;
  uint block_bytes;
  uint scale_row;
  uint scale_block;
  uint zero_row;
  uint zero_block;
  uint format;  // BlockFormat::number; 0: strides describe the values
};

// A shader defines FORMAT before it includes this file: a specialization constant, or this number.
// The number means that the format is read from the table.
const uint kFormatOfTable = 255;

const uint kScaleF32 = 0;
const uint kScaleF16 = 1;

uint code_byte(Words words, uint at) { return words.v[at / 4] >> (8 * (at & 3)) & 255u; }
int signed_byte(uint byte) { return int(byte << 24) >> 24; }

// The dialect of block formats (runtime/base/formats/README.md).
#define FUNCTION
#define Index int
#define Value int
#define SCALES(name) void name##_scales(Block b, int g, inout float scale, inout float least)
#define CODE(name) int name##_code(Block b, int g, int i)
#define TABLE(name, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                    \
  const int name##_values[16] = int[16](a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p); \
  int name(int at) { return name##_values[at]; }
struct Block {
  Words words;
  uint at;  // byte
};
int byte_at(Block b, int i) { return int(code_byte(b.words, b.at + uint(i))); }
int signed_at(Block b, int i) { return signed_byte(code_byte(b.words, b.at + uint(i))); }
// Blocks with f16 scales, and their scales, start at even addresses.
float half_at(Block b, int i) {
  const uint at = b.at + uint(i);
  return half_to_float(b.words.v[at / 4] >> (8 * (at & 2)) & 65535u);
}
float float_of_bits(int bits) { return intBitsToFloat(bits); }
#include "formats.glsl"

float code_scale(CodeTable c, uint at) {
  const uint word = c.scales.v[at / 4];
  const uint bits16 = word >> (8 * (at & 2)) & 65535u;
  return c.scale_type == kScaleF32   ? uintBitsToFloat(word)
         : c.scale_type == kScaleF16 ? half_to_float(bits16)
                                     : bhalf_to_float(bits16);
}

float decode(CodeTable c, uint row, uint column) {
  const uint number = column / c.block;
  const uint i = column - number * c.block;
  const uint format = FORMAT == kFormatOfTable ? c.format : FORMAT;
  if (format != 0) {
    const uint block = c.scales_at + row * c.scale_row + number * c.scale_block;
    return decode_format(format, Block(c.scales, block), int(i));
  }
  const uint begin = c.codes_at + row * c.row_bytes + number * c.block_bytes;
  const float scale = code_scale(c, c.scales_at + row * c.scale_row + number * c.scale_block);
  int zero = c.zero;
  if (c.zero_points != 0) {
    zero = signed_byte(code_byte(c.zeros, c.zeros_at + row * c.zero_row + number * c.zero_block));
  }
  const bool whole = c.bits == 8;
  const uint byte = whole ? i : c.half_block == 0 ? i / 2 : i % c.half_block;
  const uint shift = c.half_block == 0 ? 4 * (i & 1) : 4 * (i / c.half_block);
  const uint bits = code_byte(c.codes, begin + byte);
  return scale * float((whole ? signed_byte(bits) : int(bits >> shift & 15u)) - zero);
}

// Four bytes from byte `at` on, which may be anywhere in a word.
uint four_bytes(Words words, uint at) {
  const uint shift = 8 * (at & 3);
  const uint low = words.v[at / 4] >> shift;
  return shift == 0 ? low : low | words.v[at / 4 + 1] << (32 - shift);
}

// Eight neighbours of a row. `column` is a multiple of 8.
void decode_8(CodeTable c, uint row, uint column, out float x[8]) {
  if (c.bits == 0 || c.block % 8 != 0 || c.half_block % 8 != 0) {
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      x[e] = decode(c, row, column + e);
    }
    return;
  }
  const uint number = column / c.block;
  const uint i = column - number * c.block;
  const uint begin = c.codes_at + row * c.row_bytes + number * c.block_bytes;
  const float scale = code_scale(c, c.scales_at + row * c.scale_row + number * c.scale_block);
  int zero = c.zero;
  if (c.zero_points != 0) {
    zero = signed_byte(code_byte(c.zeros, c.zeros_at + row * c.zero_row + number * c.zero_block));
  }
  if (c.bits == 8) {
    const uint low = four_bytes(c.codes, begin + i);
    const uint high = four_bytes(c.codes, begin + i + 4);
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      const int code = signed_byte((e < 4 ? low : high) >> 8 * (e & 3) & 255u);
      x[e] = scale * float(code - zero);
    }
  } else if (c.half_block == 0) {
    const uint codes = four_bytes(c.codes, begin + i / 2);
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      x[e] = scale * float(int(codes >> 4 * e & 15u) - zero);
    }
  } else {
    const uint at = begin + i % c.half_block;
    const uint low = four_bytes(c.codes, at);
    const uint high = four_bytes(c.codes, at + 4);
    const uint shift = 4 * (i / c.half_block);
    [[unroll]] for (uint e = 0; e < 8; ++e) {
      x[e] = scale * float(int((e < 4 ? low : high) >> (8 * (e & 3) + shift) & 15u) - zero);
    }
  }
}
