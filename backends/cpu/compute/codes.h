// Rows of codes (core/encoding.h), decoded a run of elements at a time.
#pragma once

#include <cstddef>

#include "core/encoding.h"

namespace bowline::detail::cpu {

// Where the parts of a row begin.
struct CodeRow {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* zeros;
};

struct Codes {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;
  CodeLayout layout;

  CodeRow row(size_t row) const {
    return {codes + row * layout.row_bytes, scales + row * layout.scale_row,
            zeros + row * layout.zero_row};
  }
  // All rows from `row` on.
  Codes from_row(size_t row) const {
    return {codes + row * layout.row_bytes, scales + row * layout.scale_row,
            zeros + row * layout.zero_row, layout};
  }
};

// Elements [first, first + count) of a row.
void decode(const Codes& codes, size_t row, size_t first, size_t count, float* out);

// Row `row` of codes that take rows (Encoding::takes_rows), from numbers of T = f32, f16 or bf16.
template <class T>
void encode(const CodeLayout& layout, const T* from, size_t row, std::byte* codes,
            std::byte* scales);

}  // namespace bowline::detail::cpu
