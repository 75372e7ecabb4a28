// Encodings: how the elements of a storage are stored. An encoding is a value: a form from the registry, and its parameters.
//
//   plain   each element as its dtype
//   int8    blocks of elements share a scale and, if it is not symmetric, a zero point:
//             x = scale * (code - zero), code and zero in -128..127
//           A block is `block` neighbours along `axis`, the last one of a line may be shorter; a block of 0 is the whole tensor.
//           Bytes: the codes in the order of the elements, padding up to a scale, the scales in the order of the blocks, the zero
//           points (i8). The blocks of one tensor are ordered as its elements are, with the blocks of the axis in its place.
// Source    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2018.
//
// The dtype of an encoded storage is that of the numbers which it stands for: a float.
#pragma once

#include "core/dtype.h"
#include "core/view.h"

namespace bowline {

struct EncodingForm;

// A registered form. Null if there is none of this name.
const EncodingForm* find_encoding_form(std::string_view name);
const EncodingForm& plain_form();

struct Encoding {
  const EncodingForm* form = &plain_form();
  uint32_t block = 0;
  int32_t axis = -1;
  DType scale_type = DType::f32;
  bool symmetric = true;

  bool operator==(const Encoding&) const = default;
  bool is_plain() const { return form == &plain_form(); }
  std::string_view name() const;

  // Errors  bad_argument: it does not fit a storage of this dtype and shape. The functions below want one that fits.
  Status check(DType dtype, const Shape& shape) const;

  // Of the whole storage.
  uint64_t bytes(DType dtype, const Shape& shape) const;

  // Errors  bad_argument: the view begins or ends inside a block, or turns or reshapes an axis along which blocks lie.
  Status check_view(const View& view, const Shape& shape) const;

  // The elements of `run` as f32. `from` holds the whole storage. The dtype is a float.
  void decode(std::span<const std::byte> from, DType dtype, const Shape& shape, ElementRun run,
              std::span<float> to) const;

  // The whole storage from f32. A block with a number that is not finite, or of zeros alone, gets the scale 0.
  void encode(std::span<const float> from, DType dtype, const Shape& shape,
              std::span<std::byte> to) const;
};

// "plain", "int8 block 32 axis -1 scale f16".
void append_text(std::string& out, const Encoding& encoding);

}  // namespace bowline
