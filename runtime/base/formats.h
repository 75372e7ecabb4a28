// Block formats: quantized values in blocks of a fixed size, as GGUF files have them. A file of
// formats/ describes each format for all backends (formats/README.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bowline {

// How strides describe a block that starts with one f16 scale. The bits of a value are signed if
// there are 8, else unsigned.
struct StridedFormat {
  uint32_t bits = 0;   // per value; 0: strides cannot describe the format
  uint32_t first = 0;  // byte of the first value
  uint32_t half = 0;   // 4 bits: elements i and i + half share a byte
  int32_t zero = 0;    // x = scale * (value - zero)
};

// Rows of a tensor in this format consist of whole blocks. A block consists of groups, each of
// which has a scale and, in some formats, a minimum: x = scale * value - minimum. The values are
// integers of at most 8 bits, and scale * value is exact in f32.
struct BlockFormat {
  std::string_view name;  // of the encoding: "q4_k"
  uint32_t number;        // from 1 on. It depends on the build: files contain names
  uint32_t block;         // elements of a block
  uint32_t bytes;         // of a block
  uint32_t group;         // elements of a group
  bool has_minimum;
  uint32_t gguf_type;     // number of the tensor type
  std::string_view gguf;  // name of the tensor type: "Q4_K"
  uint32_t gguf_file;     // value of general.file_type for files of this type
  double steps;           // from 0 to the largest magnitude of a block
  double most_wrong;      // largest error that quantize() accepts, in steps
  // Offsets of the f16 scales of a block. If all of them are finite, so are the values.
  std::array<int16_t, 2> halves;
  uint32_t half_count;  // 0: a block can be non-finite without an f16 scale
  StridedFormat strided;
  void (*decode)(const std::byte* block, float* to);
  // Quantizes finite values.
  void (*encode)(const float* from, std::byte* block);
};

constexpr uint32_t kMostFormatBlock = 256;  // elements
constexpr uint32_t kMostFormatGroup = 32;

// The formats of the build (BOWLINE_OPS), by number.
std::span<const BlockFormat> block_formats();
// Returns null if the build has no format of this name.
const BlockFormat* find_block_format(std::string_view name);
// Returns the format of a tensor type of GGUF, or null.
const BlockFormat* find_block_format_of_gguf(uint32_t type);

}  // namespace bowline
