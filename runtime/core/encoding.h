// Encodings: how the elements of a storage are stored. An encoding is a value: a form from the
// registry, and its parameters.
//
//   plain   each element as its dtype
//   int8    blocks of elements share a scale and, if it is not symmetric, a zero point:
//             x = scale * (code - zero), code and zero in -128..127
//           A block is `block` neighbours along `axis`, the last one of a line may be shorter; a
//               block of 0 is the whole tensor.
//           Bytes: the codes in the order of the elements, padding up to a scale, the scales in the
//               order of the blocks, the zero
//           points (i8). The blocks of one tensor are ordered as its elements are, with the blocks
//               of the axis in its place.
//           Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
//               Integer-Arithmetic-Only Inference", 2018.
//   int4    the same with codes and zero points of 0..15 along the last axis; without zero points 8
//       stands for all of them.
//           Bytes: the codes row by row, each from a byte of its own on, two to a byte and the
//               first one in its low bits; then as int8.
//   q8_0    blocks of 32 along the last axis, whose length is a multiple of that: a scale (f16), 32
//       codes (i8)
//   q4_0    the same: a scale (f16), 16 bytes; byte i has the codes of elements i (low bits) and i
//       + 16, x = scale * (code - 8)
//           Source: ggml-quants.c of ggml 2023. The bytes are equal unless the scale is a denormal
//           of f16: such a scale is rounded up where values would lie beyond the last code.
//
// The dtype of an encoded storage is that of the numbers which it stands for: a float.
#pragma once

#include <optional>

#include "core/dtype.h"
#include "core/view.h"

namespace bowline {

struct EncodingForm;

// What a kernel reads codes by. A tensor is rows of `columns` elements, each cut into blocks; all
// strides are bytes.
struct CodeLayout {
  uint32_t bits = 8;  // of a code: 8 with a sign, or 4 without
  uint32_t half =
      0;             // of 4 bits: elements i and i + half of a block share a byte; 0: neighbours do
  int32_t zero = 0;  // of every block where there are no zero points
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

// Where the parts of a run of elements begin, in bytes of its storage. Of plain elements all is
// codes.
struct CodePlace {
  uint64_t codes = 0;
  uint64_t scales = 0;
  uint64_t zeros = 0;
  bool operator==(const CodePlace&) const = default;
};

// A registered form. Null if there is none of this name.
const EncodingForm* find_encoding_form(std::string_view name);
const EncodingForm& plain_form();

// As a block: as long as the last axis of whatever is encoded.
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

  // With a block of this shape for kWholeRow.
  Encoding for_shape(const Shape& shape) const;
  // The same bytes, said without blocks where there is but one.
  Encoding simplest(const Shape& shape) const;

  // Errors  bad_argument: it does not fit a storage of this dtype and shape. The functions below
  //         want one that fits.
  Status check(DType dtype, const Shape& shape) const;

  // Of the whole storage.
  uint64_t bytes(DType dtype, const Shape& shape) const;

  // Errors  bad_argument: the view begins or ends inside a block, or turns or reshapes an axis
  //         along which blocks lie.
  Status check_view(const View& view, const Shape& shape) const;

  // How kernels read what a view shows of such a storage, before it is transposed. None: no kernel
  // does (blocks along another axis than the last one, or plain). With the place of the run it is
  // all that decoding needs.
  std::optional<CodeLayout> layout(const Shape& shown) const;
  // Whether rows of the last axis can be written one by one: as codes of 8 bits without zero
  // points, with f32 scales of their own.
  bool takes_rows(const Shape& shape) const;
  // Of a run that begins where a view may.
  CodePlace place(DType dtype, const Shape& shape, uint64_t first_element) const;

  // The elements of `run` as f32. `from` holds the whole storage. The dtype is a float.
  void decode(std::span<const std::byte> from, DType dtype, const Shape& shape, ElementRun run,
              std::span<float> to) const;

  // The whole storage from f32. A block with a number that is not finite, or of zeros alone, gets
  // the scale 0.
  void encode(std::span<const float> from, DType dtype, const Shape& shape,
              std::span<std::byte> to) const;
};

// "plain", "int8 block 32 axis -1 scale f16", "int8 block row axis -1 scale f32", "q8_0".
void append_text(std::string& out, const Encoding& encoding);
// The same text, or its begin: what is left out is f32 and the whole tensor of int8, f16 and 32 of
// int4.
// Errors  bad_argument: it is none.
Result<Encoding> parse_encoding(std::string_view text);

}  // namespace bowline
