// Encodings: how the elements of a storage are stored. An encoding is a form from the registry and
// its parameters. In code, quantized values are called codes.
//
// - plain: each element is stored in its dtype.
// - int8: the elements of a block share a scale and, if not symmetric, a zero point:
//   x = scale * (code - zero). Code and zero are in -128..127. A block is `block` neighbours along
//   `axis`; the last block of a line may be shorter. A block size of 0 makes the whole tensor one
//   block. Bytes: the codes in the order of the elements, padding to the alignment of a scale, the
//   scales, the zero points (i8). Blocks are ordered like elements, with the block index in place
//   of the index along `axis`.
//   Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
//   Integer-Arithmetic-Only Inference", 2018.
// - int4: as int8, but code and zero are in 0..15, and blocks are along the last axis. A symmetric
//   encoding uses the zero point 8. Bytes: the codes row by row, two per byte, the first in the low
//   bits; each row starts at a new byte. The rest is as for int8.
// - The block formats of base/formats.h, such as q8_0 and q4_k: blocks along the last axis, whose
//   length must be a multiple of the block size. The bytes are those of GGUF.
//
// The dtype of a quantized storage is the float dtype of its dequantized values.
#pragma once

#include <optional>

#include "base/formats.h"
#include "core/dtype.h"
#include "core/view.h"

namespace bowline {

struct EncodingForm;

// The layout with which a kernel reads quantized values. A tensor consists of rows of `columns`
// elements. A row consists of blocks. All strides are in bytes. A block of a format starts where
// its scale does, and the strides describe its values too if they can (StridedFormat).
struct CodeLayout {
  const BlockFormat* format = nullptr;  // null: not a block format
  uint32_t bits = 8;  // bits per code: 8 (signed), 4 (unsigned), or 0: only `format` describes them
  uint32_t half = 0;  // 4 bits: elements i and i + half of a block share a byte; 0: neighbours do
  int32_t zero = 0;   // the zero point of every block if `zero_points` is false
  bool zero_points = false;  // i8
  DType scale_type = DType::f32;
  uint64_t columns = 0;
  uint64_t block = 0;  // elements
  uint64_t row_bytes = 0;
  uint64_t block_bytes = 0;
  uint64_t scale_row = 0;
  uint64_t scale_block = 0;
  uint64_t zero_row = 0;
  uint64_t zero_block = 0;
};

// Where codes, scales and zero points of a run of elements start, in bytes from the start of the
// storage. For plain elements, only `codes` is used. For a block format, `scales` is the first
// block.
struct CodePlace {
  uint64_t codes = 0;
  uint64_t scales = 0;
  uint64_t zeros = 0;
  bool operator==(const CodePlace&) const = default;
};

// Returns the form of this name, or null.
const EncodingForm* find_encoding_form(std::string_view name);
const EncodingForm& plain_form();

// A block size: the length of the last axis.
constexpr uint32_t kWholeRow = UINT32_MAX;

struct Encoding {
  const EncodingForm* form = &plain_form();
  uint32_t block = 0;
  int32_t axis = -1;
  DType scale_type = DType::f32;
  bool symmetric = true;

  bool operator==(const Encoding&) const = default;
  bool is_plain() const { return form == &plain_form(); }
  std::string_view name() const;

  // Replaces a block size of kWholeRow by the length of the last axis of `shape`.
  Encoding for_shape(const Shape& shape) const;
  // Returns an equal encoding for this shape: if there is only one block, its block size is 0.
  Encoding simplest(const Shape& shape) const;

  // Errors  bad_argument: the encoding does not fit a storage of this dtype and shape. The
  //         functions below require that it fits.
  Status check(DType dtype, const Shape& shape) const;

  // Returns the size of the whole storage in bytes.
  uint64_t bytes(DType dtype, const Shape& shape) const;

  // Errors  bad_argument: the view starts or ends inside a block, or transposes or reshapes an axis
  //         that is divided into blocks.
  Status check_view(const View& view, const Shape& shape) const;

  // Returns the layout with which kernels read a view of shape `shown` (before it is transposed).
  // nullopt: kernels cannot read it, because it is plain or its blocks are not along the last axis.
  std::optional<CodeLayout> layout(const Shape& shown) const;
  // Whether rows of the last axis can be written separately: 8-bit codes without zero points, and
  // f32 scales for each row.
  bool takes_rows(const Shape& shape) const;
  // Returns the place of a run of elements. It must start where a view may start.
  CodePlace place(DType dtype, const Shape& shape, uint64_t first_element) const;

  // Dequantizes the elements of `run` to f32. `from` is the whole storage. `dtype` is a float
  // dtype.
  void decode(std::span<const std::byte> from, DType dtype, const Shape& shape, ElementRun run,
              std::span<float> to) const;

  // Quantizes a whole storage from f32. A block gets the scale 0 if it contains a non-finite value
  // or only zeros.
  void encode(std::span<const float> from, DType dtype, const Shape& shape,
              std::span<std::byte> to) const;
};

// "plain", "int8 block 32 axis -1 scale f16", "int8 block row axis -1 scale f32", "q8_0".
void append_text(std::string& out, const Encoding& encoding);
// Parses this text. The parameters at its end may be left out. Their defaults are, for int8, an f32
// scale for the whole tensor, and for int4 an f16 scale for blocks of 32.
// Errors  bad_argument: the text is not an encoding.
Result<Encoding> parse_encoding(std::string_view text);

}  // namespace bowline
