// Reads byte ranges of GGUF tensors in the layout of Hugging Face: reordered rows, and f32 for
// quantized tensors without a Bowline encoding.
#pragma once

#include <memory>

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// A tensor with its layout. `heads`: number of heads, if the layout reorders the rows of heads.
struct Laid {
  const TensorEntry* tensor = nullptr;
  Order order = Order::same;
  int64_t heads = 1;
};

// True if the values keep the encoding of the file; otherwise they are converted to f32.
bool stays_encoded(const Laid& laid);
// Total bytes that values_of() returns.
uint64_t value_bytes(const Laid& laid);
// Errors  bad_file: the rows do not divide into the heads, or a transposed tensor does not have two
//         axes.
Status check_laid(const Laid& laid);
// `file` owns the bytes of the tensor. Null: the caller owns them.
ValueSource values_of(std::shared_ptr<const File> file, const Laid& laid);

// Index of the GGUF row with the Hugging Face row `row`, for heads of `head_dim` rows.
constexpr uint64_t gguf_row(uint64_t row, uint64_t head_dim) {
  const uint64_t at = row % head_dim;
  const uint64_t half = head_dim / 2;
  return row - at + at % half * 2 + at / half;
}
// The inverse of gguf_row().
constexpr uint64_t hugging_face_row(uint64_t row, uint64_t head_dim) {
  const uint64_t at = row % head_dim;
  return row - at + at / 2 + at % 2 * (head_dim / 2);
}

}  // namespace bowline::gguf
