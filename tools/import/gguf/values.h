// The numbers of a tensor of GGUF, any run of them, as the tensor of Hugging Face has them: rows in
// its order, codes that Bowline has not as f32.
#pragma once

#include <memory>

#include "gguf/file.h"
#include "gguf/terms.h"

namespace bowline::gguf {

// `heads`: of a tensor whose rows are those of heads. `file` stays open as long as the source.
struct Laid {
  const TensorEntry* tensor = nullptr;
  Order order = Order::same;
  int64_t heads = 1;
};

// Whether the bytes are given as they are, row by row; otherwise as f32.
bool stays_encoded(const Laid& laid);
// Bytes of all of them, as values_of() gives them.
uint64_t value_bytes(const Laid& laid);
// Errors  bad_file: the rows are not those of so many heads, or what is transposed has not two
//         axes.
Status check_laid(const Laid& laid);
// `file` keeps the bytes of the tensor; null: the caller does.
ValueSource values_of(std::shared_ptr<const File> file, const Laid& laid);

// The row of GGUF where row `row` of Hugging Face lies, of heads of `head_dim` rows.
constexpr uint64_t gguf_row(uint64_t row, uint64_t head_dim) {
  const uint64_t at = row % head_dim;
  const uint64_t half = head_dim / 2;
  return row - at + at % half * 2 + at / half;
}
// The way back.
constexpr uint64_t hugging_face_row(uint64_t row, uint64_t head_dim) {
  const uint64_t at = row % head_dim;
  return row - at + at / 2 + at % 2 * (head_dim / 2);
}

}  // namespace bowline::gguf
